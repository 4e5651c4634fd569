package informer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// damaging makes whatever holds its mark undecodable on its way from the server: in JSON by a control character in a
// string, in protobuf by a wire type that does not exist. Where one object ends and the next begins stays as it was.
type damaging struct{ next http.RoundTripper }

const mark = "DAMAGE"

func (d damaging) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet {
		resp.Body = &damagedBody{ReadCloser: resp.Body}
	}
	return resp, err
}

type damagedBody struct {
	io.ReadCloser
	seen int // how much of the mark stands before what comes next
}

func (b *damagedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for i, c := range p[:n] {
		switch {
		case b.seen == len(mark):
			b.seen = 0
			if broken, ok := map[byte]byte{'-': 0x01, 0x12: 0x07}[c]; ok {
				p[i] = broken
			}
		case c == mark[b.seen]:
			b.seen++
		default:
			b.seen = 0
		}
	}
	return n, err
}

// On a real server: lists and watches in JSON and protobuf, streamed and paged.
func TestRESTOnARealServer(t *testing.T) {
	c := testcluster.Shared(t)
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for _, streaming := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,streaming=%t", contentType, streaming), func(t *testing.T) {
				namespace := c.Namespace(t)
				admin := kubernetes.NewForConfigOrDie(c.Config()).CoreV1().ConfigMaps(namespace)
				create := func(name string, data map[string]string) {
					_, err := admin.Create(t.Context(),
						&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data},
						metav1.CreateOptions{})
					require.NoError(t, err)
				}
				for i := range 7 {
					create(fmt.Sprint("good-", i), map[string]string{"key": strings.Repeat("value", 5000)})
				}
				marked := map[string]string{mark: mark + "-"}
				create("damaged", marked)
				require.Eventually(t, func() bool {
					_, err := admin.Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
					return err == nil
				}, time.Minute, 10*time.Millisecond, "a controller makes it in each namespace")

				cfg := c.Config()
				cfg.ContentType = contentType
				cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return damaging{next} })
				maps := follow(t, resource[*corev1.ConfigMap](t, cfg,
					corev1.SchemeGroupVersion.WithResource("configmaps")).In(namespace),
					informer.Options[*corev1.ConfigMap]{DisableWatchList: !streaming,
						PageSize: 3})
				require.Equal(t, 8, maps.Len(), "%s", maps.Health()) // with kube-root-ca.crt
				require.ErrorContains(t, maps.Invalid(informer.Key{Namespace: namespace, Name: "damaged"}), "damaged")
				require.Equal(t, 1, maps.Health().Rejected)
				lists := maps.Health().Lists // before 1.34 the first one, a streamed list, is refused

				create("damaged-later", marked)
				create("good-later", nil)
				require.NoError(t, admin.Delete(t.Context(), "damaged", metav1.DeleteOptions{}))
				require.NoError(t, admin.Delete(t.Context(), "good-0", metav1.DeleteOptions{}))
				require.Eventually(t, func() bool {
					_, gone := maps.Get(informer.Key{Namespace: namespace, Name: "good-0"})
					return !gone && maps.Invalid(informer.Key{Namespace: namespace, Name: "damaged"}) == nil
				}, time.Minute, 5*time.Millisecond, "%s", maps.Health())
				require.Equal(t, 8, maps.Len())
				require.Error(t, maps.Invalid(informer.Key{Namespace: namespace, Name: "damaged-later"}))
				require.Equal(t, lists, maps.Health().Lists)
			})
		}
	}
}

func TestRESTWithCustomResources(t *testing.T) {
	c := testcluster.Shared(t)
	namespace := c.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	admin := dynamic.NewForConfigOrDie(c.Config())
	group := schema.GroupVersion{Group: "rest.thermostat.example", Version: "v1"}
	crds := admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	_, err := crds.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "knobs." + group.Group},
		"spec": map[string]any{
			"group": group.Group, "scope": "Namespaced", "names": map[string]any{"plural": "knobs", "kind": "Knob"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, crds.Delete(context.Background(), "knobs."+group.Group, metav1.DeleteOptions{}))
	})

	knobs := admin.Resource(group.WithResource("knobs")).Namespace(namespace)
	create := func(name string) error {
		_, err := knobs.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group.String(), "kind": "Knob", "metadata": map[string]any{"name": name}, "turned": int64(7),
		}}, metav1.CreateOptions{})
		return err
	}
	require.Eventually(t, func() bool { return create("a") == nil }, time.Minute, 50*time.Millisecond,
		"the resource is never served")
	for _, streaming := range []bool{true, false} {
		full := follow(t, resource[*unstructured.Unstructured](t, c.Config(),
			group.WithResource("knobs")).In(namespace),
			informer.Options[*unstructured.Unstructured]{DisableWatchList: !streaming})
		a, ok := full.Get(informer.Key{Namespace: namespace, Name: "a"})
		require.True(t, ok, "%s", full.Health())
		require.Equal(t, int64(7), a.Object["turned"])
		require.Equal(t, "Knob", a.GetKind())

		metadata := follow(t, resource[*metav1.PartialObjectMetadata](t, c.Config(),
			group.WithResource("knobs")).In(namespace),
			informer.Options[*metav1.PartialObjectMetadata]{DisableWatchList: !streaming})
		require.Equal(t, full.Len(), metadata.Len())
		name := fmt.Sprintf("later-%t", streaming)
		require.NoError(t, create(name))
		require.Eventually(t, func() bool {
			_, inFull := full.Get(informer.Key{Namespace: namespace, Name: name})
			_, inMetadata := metadata.Get(informer.Key{Namespace: namespace, Name: name})
			return inFull && inMetadata
		}, time.Minute, 5*time.Millisecond)
	}
}

func resource[T informer.Object](t *testing.T, cfg *rest.Config,
	gvr schema.GroupVersionResource) *informer.Resource[T] {
	t.Helper()
	r, err := informer.NewResource[T](cfg, gvr, informer.ResourceOptions{})
	require.NoError(t, err)
	return r
}

// follow runs an informer for the rest of the test and waits for its first list.
func follow[T informer.Object, L runtime.Object](t *testing.T, client informer.Client[L],
	opts informer.Options[T]) *informer.SharedIndexInformer[T] {
	t.Helper()
	inf, err := informer.New[T](client, opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	waiting, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	require.NoError(t, inf.WaitForSync(waiting))
	return inf
}
