package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

// canary is the value of a Secret.
const canary = "canary-4711"

// newCanaries makes a Manager whose controller writes the canary of a Secret about in every way: into other Secrets, by
// patch, apply and update, and into the texts of errors and panics.
func newCanaries(t testing.TB, cfg *rest.Config, texts bool) *reconcile.Manager {
	cfg, err := reconcile.ClientConfig(cfg)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	secrets, err := informer.New[*corev1.Secret](client.CoreV1().Secrets(metav1.NamespaceAll),
		informer.Options[*corev1.Secret]{Transform: func(s *corev1.Secret) (*corev1.Secret, error) {
			if s.Name == "invalid" {
				return nil, fmt.Errorf("cannot take %s", s.Data["password"])
			}
			return s, nil
		}})
	require.NoError(t, err)
	run := func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		s, ok := secrets.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		var err error
		in, value := client.CoreV1().Secrets(key.Namespace), string(s.Data["password"])
		switch key.Name {
		case "patch":
			_, err = in.Patch(ctx, "target", types.MergePatchType, fmt.Appendf(nil,
				`{"stringData":{"password":%q,%q:"x"},"metadata":{"annotations":{"a":%[1]q}}}`, value, value),
				metav1.PatchOptions{})
		case "apply":
			_, err = in.Patch(ctx, "target", types.ApplyPatchType,
				fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Secret",`+
					`"metadata":{"name":"target"},"stringData":{"applied":%q}}`, value), metav1.PatchOptions{
					FieldManager: "a"})
		case "update":
			s = s.DeepCopy()
			s.ResourceVersion, s.Labels = "1", map[string]string{"a": value + "!!"}
			_, err = in.Update(ctx, s, metav1.UpdateOptions{})
		case "panic":
			panic(value)
		case "terminal":
			return reconcile.Result{}, reconcile.Terminal(fmt.Errorf("the password is %s", value))
		case "stuck":
			<-ctx.Done()
			time.Sleep(time.Minute)
		default:
			return reconcile.Result{RequeueAfter: time.Hour}, nil
		}
		return reconcile.Result{}, err
	}
	c, err := reconcile.NewController("canaries", reconcile.Func(run),
		reconcile.Options{Timeout: time.Minute, Workers: 3})
	require.NoError(t, err)
	reconcile.For(c, secrets)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, ErrorTexts: texts})
	require.NoError(t, err)
	return m
}

var canaries = []string{"target", "patch", "apply", "update", "panic", "terminal", "stuck", "invalid", "plain"}

// TestNoValueIsShown looks for the value of a Secret in all pages, in JSON and in a bundle. Error texts that are asked
// for have it, which shows that it was there to be found.
func TestNoValueIsShown(t *testing.T) {
	for _, texts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := reconciletest.NewServer(t, reconciletest.Options{})
			client, err := kubernetes.NewForConfig(server.Config())
			require.NoError(t, err)
			for _, name := range canaries {
				_, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Data:       map[string][]byte{"password": []byte(canary)}}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			m := newCanaries(t, server.Config(), texts)
			ended := make(chan error)
			ctx, stop := context.WithCancel(t.Context())
			go func() { ended <- m.Run(ctx) }()
			time.Sleep(90 * time.Second)
			synctest.Wait()
			shown := everything(t, m)
			c := m.Inspect().Controllers[0]
			require.Equal(t, []int{1, 1}, []int{c.Failed, c.Invalid}, "terminal and invalid")
			for _, there := range []string{`class="state bad">panic`, "Conflict", `"terminal"`, "<code>stringData"} {
				require.True(t, strings.Contains(shown, there), "the runs are there: %s", there)
			}
			at := strings.Index(shown, "canary-")
			require.Equal(t, texts, strings.Contains(shown, "the password is "+canary))
			if !texts && at >= 0 {
				require.Fail(t, "a value is shown", shown[max(at-200, 0):at+20])
			}
			stop()
			require.NoError(t, <-ended)
		})
	}
}

// everything returns all that can be had of a Manager by HTTP, and its bundle.
func everything(t *testing.T, m *reconcile.Manager) string {
	h := Handler(Options{Manager: m, Actions: true, Unguarded: true})
	var all strings.Builder
	get := func(path string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		all.WriteString(w.Body.String())
	}
	get("")
	get("index.json")
	for _, suffix := range []string{"", ".json"} {
		get("keys" + suffix + "?controller=canaries")
		for _, name := range canaries {
			get("key" + suffix + "?controller=canaries&namespace=default&name=" + name)
		}
	}
	var b bytes.Buffer
	require.NoError(t, WriteBundle(t.Context(), &b, m))
	r, err := gzip.NewReader(&b)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return all.String() + string(text)
}

// TestAManagerServesItsPages: by serve.Options.Handlers, without being told of the Manager.
func TestAManagerServesItsPages(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server, err := serve.New(serve.Options{Address: ":0",
		Handlers: map[string]http.Handler{"/inspect/": Handler(Options{})}})
	require.NoError(t, err)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Beside: map[string]func(context.Context) error{"nothing": func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}},
		Serve: server.Run,
	})
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	require.Eventually(t, func() bool { return server.Address() != "" }, time.Minute, time.Millisecond)
	resp, page := do(t, http.MethodGet, "http://"+server.Address()+"/inspect/", "")
	require.Equal(t, http.StatusOK, resp.StatusCode, page)
	require.Contains(t, page, "<h2>Process</h2>")
	resp, err = http.Get("http://" + server.Address() + "/inspect/events?page=index")
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = resp.Body.Read(make([]byte, 10))
	require.NoError(t, err)
	stop()
	require.NoError(t, <-ended, "the stream ends with the Manager")
}
