package informer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// The forms in which a server sends objects, put together by hand: a list must be able to hold an object that is
// damaged.

func jsonList(list *corev1.PodList, damage func(string, []byte) []byte) []byte {
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

func jsonFrame(t watch.EventType, o runtime.Object, damage func(string, []byte) []byte) []byte {
	object, _ := json.Marshal(o)
	frame := append([]byte(`{"type":"`+string(t)+`","object":`), damaged(damage, nameOf(o), object)...)
	return append(frame, "}\n"...)
}

func protoList(list *corev1.PodList, damage func(string, []byte) []byte) []byte {
	head, _ := list.ListMeta.Marshal()
	message := protoField(nil, 1, head)
	for i := range list.Items {
		item, _ := list.Items[i].Marshal()
		message = protoField(message, 2, damaged(damage, list.Items[i].Name, item))
	}
	return enveloped("PodList", message)
}

func protoFrame(t watch.EventType, o runtime.Object, damage func(string, []byte) []byte) []byte {
	object, _ := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	return protoFrameOf(t, enveloped(o.GetObjectKind().GroupVersionKind().Kind, damaged(damage, nameOf(o), object)))
}

func protoFrameOf(t watch.EventType, object []byte) []byte {
	event := metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: object}}
	message, _ := event.Marshal()
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

func enveloped(kind string, message []byte) []byte {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: message}
	body, _ := unknown.Marshal()
	return append([]byte(protoMagic), body...)
}

func protoField(message []byte, number uint64, b []byte) []byte {
	message = binary.AppendUvarint(message, number<<3|wireBytes)
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
