// Package wiretest writes the bytes of responses as an API server sends them. It puts them together by hand, since a
// list must be able to hold an object that is damaged.
package wiretest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Magic is what every response in protobuf begins with.
const Magic = "k8s\x00"

func JSONList(list *corev1.PodList, damage func(string, []byte) []byte) []byte {
	items := []json.RawMessage{}
	for i := range list.Items {
		item, _ := json.Marshal(&list.Items[i])
		items = append(items, damaged(damage, list.Items[i].Name, item))
	}
	head, _ := json.Marshal(list.ListMeta)
	// By hand, because the encoder would find out.
	body := append([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":`), head...)
	body = append(append(body, `,"items":[`...), bytes.Join(rawBytes(items), []byte{','})...)
	return append(body, "]}"...)
}

func rawBytes(items []json.RawMessage) (all [][]byte) {
	for _, item := range items {
		all = append(all, item)
	}
	return all
}

func JSONFrame(t watch.EventType, o runtime.Object, damage func(string, []byte) []byte) []byte {
	object, _ := json.Marshal(o)
	frame := append([]byte(`{"type":"`+string(t)+`","object":`), damaged(damage, nameOf(o), object)...)
	return append(frame, "}\n"...)
}

func ProtoList(list *corev1.PodList, damage func(string, []byte) []byte) []byte {
	head, _ := list.ListMeta.Marshal()
	message := ProtoField(nil, 1, head)
	for i := range list.Items {
		item, _ := list.Items[i].Marshal()
		message = ProtoField(message, 2, damaged(damage, list.Items[i].Name, item))
	}
	return Enveloped("PodList", message)
}

func ProtoFrame(t watch.EventType, o runtime.Object, damage func(string, []byte) []byte) []byte {
	object, _ := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	return ProtoFrameOf(t, Enveloped(o.GetObjectKind().GroupVersionKind().Kind, damaged(damage, nameOf(o), object)))
}

func ProtoFrameOf(t watch.EventType, object []byte) []byte {
	event := metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: object}}
	message, _ := event.Marshal()
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

func Enveloped(kind string, message []byte) []byte {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: message}
	body, _ := unknown.Marshal()
	return append([]byte(Magic), body...)
}

func ProtoField(message []byte, number uint64, b []byte) []byte {
	message = binary.AppendUvarint(message, number<<3|2)
	return append(binary.AppendUvarint(message, uint64(len(b))), b...)
}

func damaged(damage func(string, []byte) []byte, name string, encoded []byte) []byte {
	if damage == nil || name == "" {
		return encoded
	}
	return damage(name, encoded)
}

func nameOf(o runtime.Object) string {
	if object, ok := o.(metav1.Object); ok {
		return object.GetName()
	}
	return ""
}

// SpoilSpec damages the pod of that name: its spec cannot be decoded, its metadata can.
func SpoilSpec(name string) func(string, []byte) []byte {
	return func(of string, encoded []byte) []byte {
		switch {
		case of != name:
			return encoded
		case encoded[0] == '{':
			return bytes.Replace(encoded, []byte(`"spec":{`), []byte(`"spec":{"priority":"swordfish",`), 1)
		default:
			return ProtoField(encoded, 2, []byte{0xff, 's', 'w', 'o', 'r', 'd', 'f', 'i', 's', 'h'})
		}
	}
}
