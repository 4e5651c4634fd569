package wire

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// ownedPod has everything that Keep is given, and much that it is not.
func ownedPod(name string) *corev1.Pod {
	yes := true
	p := podAt(name, "7")
	p.Labels = map[string]string{"app": `a "shop"`, "tier": "}{", "": "none"}
	p.Annotations = map[string]string{"metadata": `{"name":"other"}`}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u-1",
		Controller: &yes}, {APIVersion: "v1", Kind: "Node", Name: "n", UID: "u-2"}}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:name":{}}}`)}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Args: []string{"metadata", `"}`}}}
	return p
}

// brief is what Keep is to be given of an object.
func brief(o *metav1.ObjectMeta, keyOnly bool) metav1.ObjectMeta {
	b := metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
	if !keyOnly {
		b.Labels, b.OwnerReferences = o.Labels, o.OwnerReferences
	}
	return b
}

// TestAnObjectOutsideIsNotDecoded in any encoding, and any type: its spec may be what it likes.
func TestAnObjectOutsideIsNotDecoded(t *testing.T) {
	inProtobuf, err := ownedPod("a").Marshal()
	require.NoError(t, err)
	inJSON, err := stdjson.MarshalIndent(ownedPod("a"), " ", "\t")
	require.NoError(t, err)
	spoiled := bytes.Replace(inJSON, []byte(`"containers": [`), []byte(`"containers": ["x", `), 1)
	require.NotEqual(t, inJSON, spoiled)
	for _, of := range []any{corev1.Pod{}, metav1.PartialObjectMetadata{}, unstructured.Unstructured{}} {
		for _, protobuf := range []bool{true, false} {
			for _, keyOnly := range []bool{true, false} {
				name := fmt.Sprintf("%T, protobuf %v, key only %v", of, protobuf, keyOnly)
				d := NewDecoder(Type{Item: reflect.TypeOf(of)}, intern.Never)
				data := spoiled
				if protobuf {
					if data = inProtobuf; !d.protobuf {
						continue
					}
				}
				keeps := false
				var given []metav1.ObjectMeta
				d.KeyOnly, d.Keep = keyOnly, func(o *metav1.ObjectMeta) bool {
					given = append(given, *o)
					return keeps
				}
				for _, event := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
					e := d.decode(raw{event: event, data: data, size: 5}, protobuf)
					require.Equal(t, ErrNotKept, e.Err, name)
					require.Equal(t, event, e.Type)
					require.EqualValues(t, 5, e.Size)
					want := brief(&ownedPod("a").ObjectMeta, keyOnly)
					require.Equal(t, want, e.Object.(*metav1.PartialObjectMetadata).ObjectMeta, name)
					require.Equal(t, want, given[len(given)-1], name)
				}
				keeps = true
				if !protobuf {
					data = inJSON
				}
				e := d.decode(raw{event: watch.Added, data: data, apiVersion: "v1", kind: "PodList", listed: true},
					protobuf)
				require.NoError(t, e.Err, name)
				require.Equal(t, reflect.PointerTo(reflect.TypeOf(of)), reflect.TypeOf(e.Object), name)
				n := len(given)
				e = d.decode(raw{event: watch.Bookmark, data: data}, protobuf)
				require.NoError(t, e.Err)
				require.Len(t, given, n, "a bookmark is of all shares")
			}
		}
	}
}

// TestWhatCannotBeReadIsNotOutside: it becomes what it was without a share, an invalid object.
func TestWhatCannotBeReadIsNotOutside(t *testing.T) {
	d := decoderOf[*corev1.Pod]()
	d.Keep = func(*metav1.ObjectMeta) bool { return false }
	for _, data := range []string{`{"metadata":{"name":7}}`, `{"metadata":{"namespace":"x"}}`, `{"metadata":[]}`, `{}`,
		``, `{"metadata":{"name":"a","labels":{"x":1}}}`, `{"metadata":{"name":"a"`, `{"metadata":{"name":"a"}`[:22]} {
		e := d.decode(raw{event: watch.Added, data: []byte(data)}, false)
		require.NotErrorIs(t, e.Err, ErrNotKept, data)
	}
	for _, data := range []string{` { "metadata" : { "n" : [ ] , "name" : "\u0061" } , "spec" : 7 }`,
		`{"metadata":{"name":"a"}}`, `{"x":null,"metadata":{"labels":null,"ownerReferences":null,"name":"a"},"spec":`} {
		e := d.decode(raw{event: watch.Added, data: []byte(data)}, false)
		require.Equal(t, ErrNotKept, e.Err, data)
		require.Equal(t, "a", e.Object.(*metav1.PartialObjectMetadata).Name)
	}
}

// FuzzBrief: what Keep is given is what a decoder makes of the metadata, or nothing.
func FuzzBrief(f *testing.F) {
	encoded, err := ownedPod("a").Marshal()
	require.NoError(f, err)
	inJSON, err := json.Marshal(ownedPod("a"))
	require.NoError(f, err)
	f.Add(encoded, true)
	f.Add(inJSON, false)
	f.Add([]byte(`{"a":{"b":[]},"metadata":{"name":"x"}}`), false)
	f.Fuzz(func(t *testing.T, data []byte, protobuf bool) {
		var got metav1.ObjectMeta
		var model corev1.Pod
		if protobuf {
			if briefProtobuf(raw{data: data}, false, &got) && model.Unmarshal(data) == nil && !twice(data) {
				require.Equal(t, types.NamespacedName{Namespace: model.Namespace, Name: model.Name},
					types.NamespacedName{Namespace: got.Namespace, Name: got.Name})
				require.Len(t, got.OwnerReferences, len(model.OwnerReferences))
			}
			return
		}
		if !briefJSON(data, false, &got) || json.Unmarshal(data, &model) != nil || duplicated(data) {
			return
		}
		var parts map[string]stdjson.RawMessage
		require.NoError(t, json.Unmarshal(data, &parts))
		if _, exact := parts["metadata"]; exact && !duplicated(parts["metadata"]) {
			require.Equal(t, model.ResourceVersion, got.ResourceVersion)
			require.Equal(t, model.Name, got.Name)
			require.Equal(t, len(model.Labels), len(got.Labels))
		}
	})
}

// BenchmarkOutside is what an object costs that is not kept, beside one that is.
func BenchmarkOutside(b *testing.B) {
	p := ownedPod("a")
	for range 3 {
		p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
	}
	for range 40 {
		p.ManagedFields[0].FieldsV1.Raw = append(p.ManagedFields[0].FieldsV1.Raw, ` `...)
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "A_NAME", Value: "some value"})
	}
	inProtobuf, err := p.Marshal()
	require.NoError(b, err)
	inJSON, err := json.Marshal(p)
	require.NoError(b, err)
	for _, keeps := range []bool{true, false} {
		for _, keyOnly := range []bool{true, false} {
			for format, data := range map[string][]byte{"protobuf": inProtobuf, "json": inJSON} {
				b.Run(fmt.Sprintf("kept=%v/keyOnly=%v/%s", keeps, keyOnly, format), func(b *testing.B) {
					d := decoderOf[*corev1.Pod]()
					d.KeyOnly, d.Keep = keyOnly, func(*metav1.ObjectMeta) bool { return keeps }
					b.ReportAllocs()
					for b.Loop() {
						d.decode(raw{event: watch.Modified, data: data}, format == "protobuf")
					}
				})
			}
		}
	}
}
