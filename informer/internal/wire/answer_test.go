package wire

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// What somebody else's client gets decodes to the first objects of what was read.
func TestAnswers(t *testing.T) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}}
	for i := range 50 {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), ResourceVersion: "7"}}
		list.Items = append(list.Items, p)
	}
	for _, protobuf := range []bool{false, true} {
		t.Run(fmt.Sprintf("protobuf=%t", protobuf), func(t *testing.T) {
			ofList, ofEvent := wiretest.JSONList(list, nil), wiretest.JSONFrame
			if protobuf {
				ofList, ofEvent = wiretest.ProtoList(list, nil), wiretest.ProtoFrame
			}
			d := NewDecoder(Type{Item: reflect.TypeFor[corev1.Pod]()}, intern.Never)
			read := func(body []byte, isList bool) (r *Reader, batches []*Batch) {
				r = d.Read(t.Context(), io.NopCloser(bytes.NewReader(body)), isList)
				for b := range r.Batches {
					batches = append(batches, b)
				}
				return r, batches
			}
			for _, n := range []int{0, 1, 40, 50} {
				r, batches := read(ofList, true)
				decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), r.ListAnswer(batches, n))
				require.NoError(t, err)
				require.Equal(t, list.ListMeta, decoded.(*corev1.PodList).ListMeta)
				require.Len(t, decoded.(*corev1.PodList).Items, n)
				for i, p := range decoded.(*corev1.PodList).Items {
					require.Equal(t, list.Items[i], p)
				}
			}
			var events []byte
			for i, what := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
				p := list.Items[i].DeepCopy()
				p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
				events = append(events, ofEvent(what, p, nil)...)
			}
			_, batches := read(events, false)
			require.Len(t, batches, 1)
			_, again := read(batches[0].WatchAnswer(3), false)
			require.Equal(t, batches[0].Events()[:3], again[0].Events())
			for i, r := range again[0].raws {
				require.Equal(t, batches[0].raws[i].kind, r.kind)
				require.Equal(t, batches[0].raws[i].apiVersion, r.apiVersion)
			}
		})
	}
}
