package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const manifests = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
data: {password: aHVudGVyMg==}
---
apiVersion: v1
kind: Namespace
metadata: {name: default}
`

// file writes manifests to a file.
func file(t *testing.T, content string) options {
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return options{file: path, manager: "kubectl"}
}

// screen takes what is printed.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// shows returns what was printed since the last call.
func (s *screen) shows() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text.String()
	s.text.Reset()
	return text
}

func TestItShowsWhatOthersHaveSetUntilItIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := reconciletest.NewServer(t, reconciletest.Options{})
		clients := kubernetes.NewForConfigOrDie(server.Config())
		deployments, secrets := clients.AppsV1().Deployments("default"), clients.CoreV1().Secrets("default")
		o, out := file(t, manifests), &screen{}

		drifted, err := run(ctx, out, server.Config(), "default", o)
		require.NoError(t, err)
		require.True(t, drifted)
		missing := out.shows()
		require.Contains(t, missing, "Deployment default/web\n")
		require.Regexp(t, `\.spec\.replicas +desired 3 +is nothing +is missing\n`, missing)
		require.Regexp(t, `\.data\.password +desired \(hidden\) +is nothing +is missing\n`, missing)
		require.NotContains(t, missing, "aHVudGVyMg")
		require.Contains(t, missing, "Namespace default\n  no differences\n", "it lives in no namespace")

		targets, err := readTargets(server.Config(), o.file, "default")
		require.NoError(t, err)
		apply := func() {
			for _, target := range targets {
				data, err := target.desired.MarshalJSON()
				require.NoError(t, err)
				_, err = target.client.Patch(ctx, target.desired.GetName(), types.ApplyPatchType, data,
					metav1.PatchOptions{FieldManager: "kubectl", Force: new(true)})
				require.NoError(t, err)
			}
		}
		apply()
		drifted, err = run(ctx, out, server.Config(), "default", o)
		require.NoError(t, err)
		require.False(t, drifted)
		require.Equal(t, "Deployment default/web\n  no differences\nSecret default/key\n  no differences\n"+
			"Namespace default\n  no differences\n", out.shows())

		o.watch = true
		ended := make(chan error, 1)
		go func() {
			_, err := run(ctx, out, server.Config(), "default", o)
			ended <- err
		}()
		require.Contains(t, out.shows(), "no differences")
		byHand := metav1.PatchOptions{FieldManager: "editor"}
		_, err = deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), byHand)
		require.NoError(t, err)
		require.Equal(t, "Deployment default/web\n  .spec.replicas   desired 3   is 5   was set by editor\n",
			out.shows())
		_, err = secrets.Patch(ctx, "key", types.MergePatchType, []byte(`{"data":{"password":"eA=="}}`), byHand)
		require.NoError(t, err)
		require.Equal(t, "Secret default/key\n  .data.password   desired (hidden)   is (hidden)   was set by editor\n",
			out.shows())
		_, err = deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`),
			byHand)
		require.NoError(t, err)
		require.Empty(t, out.shows(), "what the manifest does not set is not compared")
		apply()
		undone := out.shows()
		require.Contains(t, undone, "Deployment default/web\n  no differences\n")
		require.Contains(t, undone, "Secret default/key\n  no differences\n")
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestWhatItCannotCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		for content, want := range map[string]string{
			"":                                "has no manifest",
			"apiVersion: v1\nkind: [":         "read ",
			"apiVersion: v1\nkind: ConfigMap": "a ConfigMap has no metadata.name",
			"{apiVersion: v1, kind: Odd, metadata: {name: a}}":     "the server has no kind Odd in v1",
			"{apiVersion: odd/v1, kind: Odd, metadata: {name: a}}": "discover odd/v1: ",
		} {
			_, err := run(t.Context(), &screen{}, server.Config(), "default", file(t, content))
			require.ErrorContains(t, err, want)
		}
		_, err := run(t.Context(), &screen{}, server.Config(), "default", options{file: "nowhere.yaml"})
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	_, _, err := options{file: "x"}.config([]string{"y"})
	require.ErrorContains(t, err, `unexpected argument "y"`)
	_, _, err = options{}.config(nil)
	require.ErrorContains(t, err, "-f is needed")
}
