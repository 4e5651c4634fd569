package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// A reading whose context ends at any point delivers no batch that is never decoded: its receiver would wait for ever.
func TestEachBatchThatIsDeliveredIsDecoded(t *testing.T) {
	list := podList("9")
	for i := range 4 * batchObjects {
		list.Items = append(list.Items, *podAt(fmt.Sprint("pod-", i), "5"))
	}
	body := wiretest.JSONList(list, nil)
	for range 50 { // it was a matter of chance
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r := decoderOf[*corev1.Pod]().Read(ctx, io.NopCloser(bytes.NewReader(body)), true)
			for batch := range r.Batches {
				synctest.Wait()
				select {
				case <-batch.decoded:
				default:
					t.Error("this batch is never decoded")
				}
			}
			_, err := r.End()
			require.ErrorIs(t, err, context.Canceled)
			r.Close()
		})
	}
}

// The keys of an UnstructuredList are sorted, so its kind stands behind its items, which say their own.
func TestAListWhoseKindComesLastIsStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		d := NewDecoder(Type{Item: unstructuredType}, intern.Never)
		r := d.Read(t.Context(), from, true)
		var delivered []string
		t.Cleanup(r.Close)
		go func() {
			for batch := range r.Batches {
				for _, e := range batch.Events() {
					require.NoError(t, e.Err)
					o := e.Object.(*unstructured.Unstructured)
					delivered = append(delivered, fmt.Sprint(o.GetAPIVersion(), " ", o.GetKind(), " ", o.GetName()))
				}
			}
		}()
		write := func(text string, want ...string) {
			_, err := io.WriteString(to, text)
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, want, delivered)
		}
		write(`{"items":[{"apiVersion":"a/v2","kind":"B","metadata":{"name":"b"}}`, "a/v2 B b")
		write(`,{"kind":"B","metadata":{"name":"c"}}`, "a/v2 B b")
		write(`,{"apiVersion":"a/v2","metadata":{"name":"d"}}`, "a/v2 B b")
		write(`,{"metadata":{"name":"e"},"kind":"B","apiVersion":"a/v2"}]`, "a/v2 B b", "a/v2 B e")
		write(`,"apiVersion":"a/v1","kind":"CList","metadata":{"resourceVersion":"5"}}`, "a/v2 B b", "a/v2 B e",
			"a/v1 B c", "a/v2 C d")
		head, err := r.End()
		require.NoError(t, err)
		require.Equal(t, "5", head.ResourceVersion)
	})
}

// BenchmarkRead reads a list of 2,000 pods.
func BenchmarkRead(b *testing.B) {
	list := podList("9")
	for i := range 2000 {
		p := podAt(fmt.Sprint("pod-", i), "5")
		p.Labels = map[string]string{"app.kubernetes.io/name": "a-long-application", "tier": "backend"}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/image:1"}}
		list.Items = append(list.Items, *p)
	}
	for name, body := range map[string][]byte{
		"protobuf": wiretest.ProtoList(list, nil), "JSON": wiretest.JSONList(list, nil),
	} {
		b.Run(name, func(b *testing.B) {
			d := decoderOf[*corev1.Pod]()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r, objects := d.Read(b.Context(), io.NopCloser(bytes.NewReader(body)), true), 0
				for batch := range r.Batches {
					objects += len(batch.Events())
					r.Recycle(batch)
				}
				if _, err := r.End(); err != nil || objects != 2000 {
					b.Fatal(objects, err)
				}
				r.Close()
			}
		})
	}
}
