package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	stdjson "encoding/json"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// collect runs a splitter over a body that comes byte by byte, or as it likes, and returns what it found.
func collect(body []byte, slowly bool, split func(*bufio.Reader, *response) error) (found []raw, head *metav1.ListMeta,
	err error) {
	var from io.Reader = bytes.NewReader(body)
	if slowly {
		from = iotest.OneByteReader(from)
	}
	out := &response{}
	out.add = func(r raw) {
		r.data = bytes.Clone(r.data)
		found = append(found, r)
	}
	err = split(bufio.NewReaderSize(from, 16), out)
	return found, out.head, err
}

// sameEitherWay checks that it does not matter in which pieces the bytes come.
func sameEitherWay(t *testing.T, body []byte, split func(*bufio.Reader, *response) error) ([]raw, *metav1.ListMeta,
	error) {
	t.Helper()
	found, head, err := collect(body, false, split)
	slowly, slowHead, slowErr := collect(body, true, split)
	require.Equal(t, found, slowly)
	require.Equal(t, head, slowHead)
	require.Equal(t, err, slowErr)
	return found, head, err
}

// The model: the whole body decoded at once.
func FuzzSplitProtoList(f *testing.F) {
	f.Add(wiretest.ProtoList(podList("5", podAt("a", "3"), podAt("b", "4")), nil))
	f.Add(wiretest.ProtoList(podList("5", podAt("a", "3"), podAt("b", "4")), wiretest.SpoilSpec("b")))
	f.Add(wiretest.Enveloped("PodList", []byte{}))
	c := decoderOf[*corev1.Pod]()
	f.Fuzz(func(t *testing.T, body []byte) {
		found, head, err := sameEitherWay(t, body, splitProtoList)
		rest, ok := bytes.CutPrefix(body, []byte(protoMagic))
		var unknown runtime.Unknown
		var list struct {
			corev1.PodList
			items [][]byte
		}
		if !ok || unknown.Unmarshal(rest) != nil || unknown.Raw == nil || list.Unmarshal(unknown.Raw) != nil ||
			isObject(unknown.APIVersion, unknown.Kind) != nil {
			return // not a list of pods; the splitter may find objects in it nevertheless
		}
		if err != nil {
			// What the splitter is stricter about: one message, of a list, after the type that it is of.
			require.True(t, errors.Is(err, ErrViolation) || errors.Is(err, errGarbled) ||
				errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
			return
		}
		if len(found) != len(list.Items) || head.ResourceVersion != list.ResourceVersion ||
			head.Continue != list.Continue {
			// Fields that come twice: the last, or a mixture, counts for the one, the first for the other.
			require.True(t, twice(rest) || twice(unknown.Raw), "%d items, %d expected", len(found), len(list.Items))
			return
		}
		for i, r := range found {
			a := c.decode(r, true)
			require.NoError(t, a.Err)
			require.Equal(t, &list.Items[i], a.Object)
		}
	})
}

// twice reports whether a message has its field 1 or 2 twice.
func twice(message []byte) bool {
	seen := map[uint64]int{}
	_ = eachField(message, true, func(number uint64, _ []byte) error { seen[number]++; return nil })
	return seen[1] > 1 || seen[2] > 1
}

func decoderOf[T runtime.Object]() *Decoder {
	return NewDecoder(Type{Item: reflect.TypeFor[T]().Elem()}, intern.Never)
}

func podAt(name, version string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name),
			ResourceVersion: version}}
}

func podList(version string, pods ...*corev1.Pod) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list
}

func FuzzSplitJSONList(f *testing.F) {
	f.Add(wiretest.JSONList(podList("5", podAt("a", "3"), podAt("b", "4")), nil))
	f.Add([]byte(`{ "apiVersion":"v1", "items":[ {"a":"\\"]}"} , {} ],"kind":"PodList",` +
		`"metadata":{"resourceVersion":"5"},"x":[1,{"y":null}]}`))
	f.Add([]byte(`{"kind":"PodList","metadata":{"continue":"\u0041"},"items":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		found, head, err := sameEitherWay(t, body, splitJSONList)
		var list struct {
			Kind       string               `json:"kind"`
			APIVersion string               `json:"apiVersion"`
			Metadata   metav1.ListMeta      `json:"metadata"`
			Items      []stdjson.RawMessage `json:"items"`
		}
		if !stdjson.Valid(body) || json.Unmarshal(body, &list) != nil ||
			!bytes.HasSuffix([]byte(list.Kind), []byte("List")) {
			return // not a list; the splitter may find objects in it nevertheless
		}
		if err != nil {
			require.True(t, duplicated(body), "%v", err)
			return
		}
		if duplicated(body) {
			return
		}
		require.Len(t, found, len(list.Items))
		require.Equal(t, list.Metadata, *head)
		for i, r := range found {
			require.JSONEq(t, string(list.Items[i]), string(r.data))
		}
	})
}

// duplicated reports whether an object has two members of one name, or null in place of what must be there, of which
// decoders make this or that.
func duplicated(body []byte) bool {
	d := stdjson.NewDecoder(bytes.NewReader(body))
	_, _ = d.Token()
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		var value stdjson.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return true
		}
		key, _ := name.(string)
		if seen[key] || string(value) == "null" && key != "items" {
			return true
		}
		seen[key] = true
	}
	return false
}

// The model: one frame after the other, each decoded by itself.
func FuzzSplitProtoWatch(f *testing.F) {
	f.Add(append(wiretest.ProtoFrame(watch.Added, podAt("a", "3"), nil),
		wiretest.ProtoFrame(watch.Deleted, podAt("a", "4"), nil)...))
	f.Add(wiretest.ProtoFrame(watch.Bookmark, podAt("", "4"), nil)[:20])
	twice := wiretest.ProtoField(wiretest.Enveloped("Pod", nil), 1, nil) // what comes twice is merged
	f.Add(wiretest.ProtoFrameOf(watch.Added, twice))
	f.Fuzz(func(t *testing.T, body []byte) {
		found, _, err := sameEitherWay(t, body, splitProtoWatch)
		var events []metav1.WatchEvent
		for rest := body; len(rest) >= 4; {
			n := binary.BigEndian.Uint32(rest)
			var event metav1.WatchEvent
			if uint64(n) > uint64(len(rest)-4) || event.Unmarshal(rest[4:4+n]) != nil {
				break
			}
			events, rest = append(events, event), rest[4+n:]
		}
		require.LessOrEqual(t, len(found), len(events))
		require.Error(t, err)
		if err == io.EOF {
			require.Len(t, found, len(events))
		}
		for i, r := range found {
			var unknown runtime.Unknown
			if unknown.Unmarshal(bytes.TrimPrefix(events[i].Object.Raw, []byte(protoMagic))) != nil {
				continue // for reasons that the splitter does not look at
			}
			require.Equal(t, events[i].Type, string(r.event))
			require.Equal(t, string(unknown.Raw), string(r.data))
			require.Equal(t, unknown.Kind, r.kind)
		}
	})
}

func FuzzSplitJSONWatch(f *testing.F) {
	f.Add(append(wiretest.JSONFrame(watch.Added, podAt("a", "3"), nil),
		wiretest.JSONFrame(watch.Deleted, podAt("a", "4"), nil)...))
	f.Add([]byte(`{"object":{"a":[]},"type":"A\u0044DED","more":{}}{"type":"x","object":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		found, _, _ := sameEitherWay(t, body, splitJSONWatch)
		d := stdjson.NewDecoder(bytes.NewReader(body))
		for i := 0; ; i++ {
			var frame stdjson.RawMessage
			var event struct {
				Type   string             `json:"type"`
				Object stdjson.RawMessage `json:"object"`
			}
			if d.Decode(&frame) != nil || frame[0] != '{' || duplicated(frame) ||
				json.Unmarshal(frame, &event) != nil || event.Object == nil {
				return
			}
			require.Greater(t, len(found), i)
			require.Equal(t, event.Type, string(found[i].event))
			require.JSONEq(t, string(event.Object), string(found[i].data))
		}
	})
}

// Whatever the bytes of an object are, decoding ends, and gives an object or a reason.
func FuzzDecodeObject(f *testing.F) {
	encoded, err := podAt("a", "3").Marshal()
	require.NoError(f, err)
	inJSON, err := json.Marshal(podAt("a", "3"))
	require.NoError(f, err)
	f.Add(encoded, true, false)
	f.Add(inJSON, false, false)
	f.Add(inJSON[:20], false, true)
	c := decoderOf[*corev1.Pod]()
	f.Fuzz(func(t *testing.T, data []byte, protobuf, cut bool) {
		a := c.decode(raw{event: watch.Added, data: data, cut: cut}, protobuf)
		require.NotNil(t, a.Object)
		var model corev1.Pod
		var failed error
		if protobuf {
			failed = model.Unmarshal(data)
		} else {
			failed = json.Unmarshal(data, &model)
		}
		if isObject(model.APIVersion, model.Kind) == nil {
			require.Equal(t, failed != nil || cut, a.Err != nil)
		}
		if failed == nil {
			o := a.Object.(metav1.Object)
			require.Contains(t, []string{"", model.Name}, o.GetName(), "what is left of it is of the same object")
		}
	})
}
