package wire

import (
	"encoding/binary"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ListAnswer encodes a list that is the one that was read, but for its items: it has the first n objects of batches. It
// may be called once the list has been read completely.
func (r *Reader) ListAnswer(batches []*Batch, n int) []byte {
	items := []json.RawMessage{}
	for _, b := range batches {
		for _, item := range b.raws[:min(len(b.raws), n-len(items))] {
			items = append(items, item.data)
		}
	}
	if !r.protobuf {
		list, _ := json.Marshal(struct { // its items have been decoded, so they are JSON
			Kind       string            `json:"kind"`
			APIVersion string            `json:"apiVersion"`
			Metadata   metav1.ListMeta   `json:"metadata"`
			Items      []json.RawMessage `json:"items"`
		}{r.kind, r.apiVersion, r.head, items})
		return list
	}
	head, _ := r.head.Marshal() // generated code, which cannot fail
	list := protoField(nil, 1, head)
	for _, item := range items {
		list = protoField(list, 2, item)
	}
	return enveloped(r.apiVersion, r.kind, list)
}

// WatchAnswer encodes the first n events of a batch as a watch has them.
func (b *Batch) WatchAnswer(n int) (events []byte) {
	for _, r := range b.raws[:n] {
		if !b.protobuf {
			object := runtime.RawExtension{Raw: r.data}
			event, _ := json.Marshal(metav1.WatchEvent{Type: string(r.event), Object: object})
			events = append(append(events, event...), '\n')
			continue
		}
		event := protoField(nil, 1, []byte(r.event))
		event = protoField(event, 2, protoField(nil, 1, enveloped(r.apiVersion, r.kind, r.data)))
		events = append(binary.BigEndian.AppendUint32(events, uint32(len(event))), event...)
	}
	return events
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
