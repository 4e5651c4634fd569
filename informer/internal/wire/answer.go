package wire

import (
	"encoding/binary"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ListAnswer encodes a list that is the one that was read, but for its items: it has the first object of a batch, or
// none. It may be called once the list has been read completely.
func (r *Reader) ListAnswer(sample *Batch) []byte {
	if r.protobuf {
		head, _ := r.head.Marshal() // generated code, which cannot fail
		list := protoField(nil, 1, head)
		if sample != nil {
			list = protoField(list, 2, sample.raws[0].data)
		}
		return enveloped(r.apiVersion, r.kind, list)
	}
	items := []json.RawMessage{}
	if sample != nil {
		items = append(items, sample.raws[0].data)
	}
	list, _ := json.Marshal(struct { // its items have been decoded, so they are JSON
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   metav1.ListMeta   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}{r.kind, r.apiVersion, r.head, items})
	return list
}

// WatchAnswer encodes the first event of a batch as a watch has it.
func (b *Batch) WatchAnswer() []byte {
	first := b.raws[0]
	if !b.protobuf {
		event, _ := json.Marshal(metav1.WatchEvent{Type: string(first.event), Object: runtime.RawExtension{Raw: first.data}})
		return append(event, '\n')
	}
	object := enveloped(first.apiVersion, first.kind, first.data)
	event := protoField(nil, 1, []byte(first.event))
	event = protoField(event, 2, protoField(nil, 1, object))
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// enveloped puts a message into the envelope of the API.
func enveloped(apiVersion, kind string, message []byte) []byte {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: message}
	body, _ := unknown.Marshal()
	return append([]byte(protoMagic), body...)
}

// protoField appends a length-delimited field to a message.
func protoField(message []byte, number uint64, content []byte) []byte {
	message = binary.AppendUvarint(message, number<<3|wireBytes)
	return append(binary.AppendUvarint(message, uint64(len(content))), content...)
}
