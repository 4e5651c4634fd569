package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// startManager runs a Manager with one ConfigMap, bad, whose reconciles fail for good, and serves its pages.
func startManager(t *testing.T) (m *reconcile.Manager, address string) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	client, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	cache, err := informer.New[*corev1.ConfigMap](client.CoreV1().ConfigMaps(""), informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	c, err := reconcile.NewController("maps",
		reconcile.Func(func(context.Context, reconcile.Key) (reconcile.Result, error) {
			return reconcile.Result{}, reconcile.Terminal(io.ErrClosedPipe)
		}), reconcile.Options{})
	require.NoError(t, err)
	reconcile.For(c, cache)
	m, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	key := reconcile.Key{Namespace: "default", Name: "bad"}
	require.Eventually(t, func() bool { return c.InspectKey(key).State == status.KeyFailed }, time.Minute,
		time.Millisecond)
	pages := httptest.NewServer(inspect.Handler(inspect.Options{Manager: m}))
	t.Cleanup(pages.Close)
	return m, pages.URL
}

func TestWhy(t *testing.T) {
	m, address := startManager(t)
	file := filepath.Join(t.TempDir(), "bundle")
	var bundle bytes.Buffer
	require.NoError(t, inspect.WriteBundle(t.Context(), &bundle, m))
	require.NoError(t, os.WriteFile(file, bundle.Bytes(), 0o600))
	for _, from := range [][]string{{"-address", address}, {"-bundle", file}} {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), append(from, "default/bad"), &out, io.Discard))
		require.Contains(t, out.String(), "default/bad")
		require.Contains(t, out.String(), "terminal, took ")
		require.Contains(t, out.String(), "named by  For ")
		out.Reset()
		require.NoError(t, run(t.Context(), append(from, "top"), &out, io.Discard))
		require.Contains(t, out.String(), "Working for ")
		require.Regexp(t, `CACHE +STATE +FOR +OBJECTS +BY METADATA +HEAP +REASON\n\S+ +Live +\S+ +\d+ +0 +\d+ kB`,
			out.String())
		require.Regexp(t, `default/bad +Failed +\S+ +\d+ +\S+ +terminal`, out.String())
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-address", address, "default/none"}, &out, io.Discard))
	require.Contains(t, out.String(), "default/none")
}

func TestWatchSaysWhatChanges(t *testing.T) {
	m, address := startManager(t)
	ctx, stop := context.WithCancel(t.Context())
	lines, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-every", "10ms", "-address", address, "watch", "default/bad"}, out, io.Discard)
	}()
	read := make([]byte, 4096)
	n, err := lines.Read(read)
	require.NoError(t, err)
	require.Contains(t, string(read[:n]), "maps: default/bad")
	m.Controllers()[0].Enqueue(reconcile.Key{Namespace: "default", Name: "bad"})
	n, err = lines.Read(read)
	require.NoError(t, err, "it has run again")
	require.Contains(t, string(read[:n]), "maps: default/bad")
	go io.Copy(io.Discard, lines)
	stop()
	require.NoError(t, <-ended)
}

func TestServe(t *testing.T) {
	m, _ := startManager(t)
	file := filepath.Join(t.TempDir(), "bundle")
	var bundle bytes.Buffer
	require.NoError(t, inspect.WriteBundle(t.Context(), &bundle, m))
	require.NoError(t, os.WriteFile(file, bundle.Bytes(), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	lines, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"serve", file}, out, io.Discard) }()
	line := make([]byte, 200)
	_, err := lines.Read(line)
	require.NoError(t, err)
	address, _, _ := strings.Cut(string(line), " ")
	resp, err := http.Get(address + "keys?controller=maps")
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(page), "default/bad")
	stop()
	require.NoError(t, <-ended)
}

// TestADamagedBundle: what is whole is shown, with a warning.
func TestADamagedBundle(t *testing.T) {
	m, _ := startManager(t)
	file := filepath.Join(t.TempDir(), "bundle")
	var bundle bytes.Buffer
	require.NoError(t, inspect.WriteBundle(t.Context(), &bundle, m))
	require.NoError(t, os.WriteFile(file, bundle.Bytes()[:bundle.Len()-3], 0o600))
	var out, errOut bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-bundle", file, "default/bad"}, &out, &errOut))
	require.Contains(t, out.String(), "terminal, took ")
	require.Contains(t, errOut.String(), "is damaged, so a part is missing or wrong: bundle: after its last line")
	require.ErrorContains(t, run(t.Context(), []string{"-bundle", file, "default/none"}, &out, &errOut),
		"does not have this key in full")
	require.NoError(t, os.WriteFile(file, bundle.Bytes()[:15], 0o600))
	require.ErrorContains(t, run(t.Context(), []string{"serve", file}, &out, &errOut), "cut off")
}

func TestMistakesAreNamed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("<html>"))
	}))
	defer elsewhere.Close()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, args := range map[string][]string{
		"expected NAMESPACE/NAME":          {},
		"no key":                           {"web"},
		"-every is 0s":                     {"-every", "0s", "top"},
		"not defined: -x":                  {"-x"},
		"is kubectl port-forward":          {"-address", "localhost:1", "top"},
		"not as the pages":                 {"-address", elsewhere.URL, "top"},
		"-token-file":                      {"-token-file", empty + "x", "top"},
		"empty: bundle: the file is empty": {"-bundle", empty, "top"},
	} {
		require.ErrorContains(t, run(t.Context(), args, io.Discard, io.Discard), want)
	}
}

func TestNothingMovesTheCursor(t *testing.T) {
	require.Equal(t, "\uFFFD[2Ja\uFFFDb\uFFFD", plain("\x1b[2Ja\nb\u202e"))
}
