package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// strict is a type that does not fit everything that a schema may let pass.
type strict struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Inner
		Days    int8              `json:"days"`
		Timeout metav1.Duration   `json:"timeout"`
		Hosts   []host            `json:"hosts"`
		ByName  map[string]*host  `json:"byName"`
		Labels  map[string]string `json:"labels"`
		Data    []byte            `json:"data"`
		Next    *strict           `json:"next"`
		Loud    loud              `json:"loud"`
		ignored int
		Hidden  int `json:"-"`
	} `json:"spec"`
}

type Inner struct {
	Flag bool `json:"flag"`
}

type host struct {
	Port *int32 `json:"port"`
}

// loud quotes what it cannot decode.
type loud struct{}

func (*loud) UnmarshalJSON(value []byte) error {
	return errors.Join(fmt.Errorf("what is %s?", value),
		&json.UnmarshalTypeError{Value: string(value), Field: string(value), Type: reflect.TypeFor[int]()})
}

// A field that does not fit is named, with its type, and no value of the object ever is.
func TestTheFieldThatDoesNotFitIsNamed(t *testing.T) {
	for spec, want := range map[string]string{
		`{"days":"swordfish"}`:     "spec.days is a JSON string that cannot be decoded into the Go type int8",
		`{"days":300}`:             "spec.days is a JSON number that cannot be decoded into the Go type int8",
		`{"days":1.5}`:             "spec.days is a JSON number that cannot be decoded into the Go type int8",
		`{"flag":{"swordfish":1}}`: "spec.flag is a JSON object that cannot be decoded into the Go type bool",
		`{"timeout":"swordfish"}`: "spec.timeout is a JSON string that cannot be decoded into the Go " +
			"type v1.Duration",
		`{"hosts":[{"port":1},{"port":[]}]}`: "spec.hosts[1].port is a JSON array that cannot be decoded into the " +
			"Go type int32",
		`{"hosts":{}}`: "spec.hosts is a JSON object that cannot be decoded into the Go type " +
			"[]wire.host",
		`{"byName":{"swordfish":{"port":true}}}`: "spec.byName[...].port is a JSON boolean that cannot be decoded " +
			"into " +
			"the Go type int32",
		`{"labels":{"a":"b","swordfish":7}}`: "spec.labels[...] is a JSON number that cannot be decoded into the Go " +
			"type string",
		`{"data":"sword fish"}`: "spec.data is a JSON string that cannot be decoded into the Go type " +
			"[]uint8",
		`{"next":{"spec":{"days":"x"}}}`: "spec.next.spec.days is a JSON string that cannot be decoded into the " +
			"Go type int8",
		`{"loud":"swordfish"}`: "spec.loud is a JSON string that cannot be decoded into the Go type " +
			"wire.loud",
		`"swordfish"`: "spec is a JSON string that cannot be decoded into the Go type struct",
	} {
		d := &Decoder{Type: Type{Item: reflect.TypeFor[strict]()}}
		_, err := d.decodeInto(&strict{}, raw{data: []byte(`{"kind":"Strict","spec":` + spec + `}`)}, false)
		require.ErrorIs(t, err, ErrUndecodable, spec)
		require.True(t, strings.HasPrefix(err.Error(), want), "%s: %v", spec, err)
		require.NotContains(t, err.Error(), "fish", spec)
	}
	for _, garbled := range []string{``, `{`, `{"spec":}`, `{"spec":{"days":swordfish}}`} {
		_, err := (&Decoder{Type: Type{Item: reflect.TypeFor[strict]()}}).decodeInto(&strict{},
			raw{data: []byte(garbled)}, false)
		require.Equal(t, ErrUndecodable, err, garbled)
	}
	// The Secret, whose values matter most.
	_, err := (&Decoder{Type: Type{Item: reflect.TypeFor[strict]()}}).decodeInto(&corev1.Secret{},
		raw{data: []byte(`{"data":{"swordfish":"sword fish"}}`)}, false)
	require.EqualError(t, err, "data[...] is a JSON string that cannot be decoded into the Go type []uint8")
}

// A type that contains itself, in an object that does so, too, costs no more than the bound.
func TestTheSearchForTheFieldHasAnEnd(t *testing.T) {
	deep := strings.Repeat(`{"spec":{"next":`, 3000) + `{"spec":{"days":"x"}}` + strings.Repeat(`}}`, 3000)
	found := misfitOf([]byte(deep), reflect.TypeFor[strict]())
	require.Equal(t, maxMisfitDepth/3+1, strings.Count(found.field, "next"), found.field)
}

func (s *strict) DeepCopyObject() runtime.Object { return s }

// What can be read of an object that cannot be decoded is its metadata, however much of that is well.
func TestTheMetadataOfWhatCannotBeDecoded(t *testing.T) {
	const whole = `{"kind":"Strict","metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"7",` +
		`"deletionTimestamp":"2026-11-22T10:00:00Z","finalizers":["x/y"],"labels":{"l":"m"},` +
		`"managedFields":[{"manager":"z"}],"ownerReferences":[{"name":"o","uid":"p"}]},"spec":5}`
	o := raw{data: []byte(whole)}.metadata(false)
	require.Equal(t, []string{"a", "b", "c", "7", "x/y", "m", "o"}, []string{o.Name, o.Namespace, string(o.UID),
		o.ResourceVersion, o.Finalizers[0], o.Labels["l"], o.OwnerReferences[0].Name})
	require.NotNil(t, o.DeletionTimestamp)
	require.Empty(t, o.ManagedFields)
	require.Empty(t, o.Kind)

	for name, r := range map[string]raw{
		"cut":            {data: []byte(whole[:len(whole)-30]), cut: true},
		"odd labels":     {data: []byte(strings.Replace(whole, `{"l":"m"}`, `5`, 1))},
		"odd time":       {data: []byte(strings.Replace(whole, `2026-11`, `2026-99`, 1))},
		"after the name": {data: []byte(`{"metadata":{"uid":"c","namespace":"b","resourceVersion":"7","name":"a"`)},
	} {
		o := r.metadata(false)
		require.Equal(t, metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c", ResourceVersion: "7"}, o.ObjectMeta,
			name)
	}

	pod := &corev1.Pod{ObjectMeta: *o.ObjectMeta.DeepCopy()}
	encoded, err := pod.Marshal()
	require.NoError(t, err)
	p := raw{data: append(encoded, 0x12, 1, 0xff)}.metadata(true) // a spec that cannot be decoded
	require.Equal(t, []string{"a", "x/y", "o"}, []string{p.Name, p.Finalizers[0], p.OwnerReferences[0].Name})
	p = raw{data: encoded[:len(encoded)/2], cut: true}.metadata(true)
	require.Equal(t, "a", p.Name)
}

// frail decodes itself, and panics when it is called bad.
type frail struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (f *frail) DeepCopyObject() runtime.Object { c := *f; return &c }

func (f *frail) UnmarshalJSON(b []byte) error {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &object); err != nil {
		return err
	}
	if f.ObjectMeta = object.ObjectMeta; f.Name == "bad" {
		panic("swordfish")
	}
	return nil
}

// An object whose own method panics is one that cannot be decoded, and no other is: one object at a time or many.
func TestAPanicOfTheDecodedType(t *testing.T) {
	for _, many := range []int{1, 3 * batchObjects} {
		list := podList("5", podAt("bad", "1"))
		for i := range many {
			list.Items = append(list.Items, *podAt(fmt.Sprint("pod-", i), "1"))
		}
		d := NewDecoder(Type{Item: reflect.TypeFor[frail]()}, intern.Never)
		r := d.Read(t.Context(), io.NopCloser(bytes.NewReader(wiretest.JSONList(list, nil))), true)
		var events []Event
		for batch := range r.Batches {
			events = append(events, batch.Events()...)
		}
		r.Close()
		require.Len(t, events, many+1)
		require.ErrorIs(t, events[0].Err, ErrUndecodable)
		require.NotContains(t, events[0].Err.Error(), "swordfish")
		require.Equal(t, "bad", events[0].Object.(*metav1.PartialObjectMetadata).Name)
		for _, e := range events[1:] {
			require.NoError(t, e.Err)
		}
	}
}
