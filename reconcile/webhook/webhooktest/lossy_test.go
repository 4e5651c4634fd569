package webhooktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
)

// anyJSON is a value of an API that is written as the JSON that it has.
type anyJSON struct{ Raw []byte }

func (j anyJSON) MarshalJSON() ([]byte, error) {
	if len(j.Raw) == 0 {
		return []byte("null"), nil
	}
	return j.Raw, nil
}

func (j *anyJSON) UnmarshalJSON(data []byte) error {
	if string(data) != "null" {
		j.Raw = append([]byte(nil), data...)
	}
	return nil
}

// volume has a field of each type that is filled in a way of its own.
type volume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Size    resource.Quantity             `json:"size"`
	Limits  map[string]resource.Quantity  `json:"limits,omitempty"`
	Raw     apiruntime.RawExtension       `json:"raw"`
	Message json.RawMessage               `json:"message,omitempty"`
	Any     any                           `json:"any,omitempty"`
	Values  map[string]any                `json:"values,omitempty"`
	JSON    *anyJSON                      `json:"json,omitempty"`
	Parts   []struct{ Default []anyJSON } `json:"parts,omitempty"`
}

func (v *volume) DeepCopyObject() apiruntime.Object {
	c := *v
	return &c
}

// failure is a test that ends when it fails.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Helper() {}

func (f *failure) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf is how 200 round trips fail, of which change is one way; empty: they do not.
func failureOf(t *testing.T, change func(v *volume)) string {
	f := &failure{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		same := func(v *volume) (*volume, error) { c := *v; return &c, nil }
		changed := func(v *volume) (*volume, error) {
			c := *v
			if change(&c); c.Name == "" {
				return nil, errors.New("it has no name")
			}
			return &c, nil
		}
		for seed := range uint64(200) {
			roundTrip(f, random[*volume](f, seed, nil), changed, same)
		}
	}()
	<-ended
	return f.text
}

// TestWhatIsLost: a conversion that drops a value is found, whatever its type.
func TestWhatIsLost(t *testing.T) {
	require.Empty(t, failureOf(t, func(*volume) {}))
	require.Empty(t, failureOf(t, func(v *volume) { v.Size = resource.MustParse(v.Size.String()) }))
	for name, drop := range map[string]func(v *volume){
		"size":     func(v *volume) { v.Size = resource.Quantity{} },
		"fraction": func(v *volume) { v.Size = *resource.NewQuantity(v.Size.Value(), resource.DecimalSI) },
		"limits":   func(v *volume) { v.Limits = nil },
		"raw":      func(v *volume) { v.Raw.Raw = nil },
		"message":  func(v *volume) { v.Message = json.RawMessage(`{"a":1}`) },
		"any":      func(v *volume) { v.Any = nil },
		"values":   func(v *volume) { v.Values = nil },
		"json":     func(v *volume) { v.JSON = nil },
		"parts":    func(v *volume) { v.Parts = nil },
	} {
		text := failureOf(t, drop)
		require.True(t, strings.HasPrefix(text, "*webhooktest.volume became"), "%s: %s", name, text)
	}
	require.Equal(t, "*webhooktest.volume cannot be converted: it has no name",
		failureOf(t, func(v *volume) { v.Name = "" }))
}

// TestWhatIsGiven: a conversion may read an object by methods that remember what they have computed, and not change it.
func TestWhatIsGiven(t *testing.T) {
	same := func(v *volume) (*volume, error) { c := *v; return &c, nil }
	reads := func(v *volume) (*volume, error) { _ = v.Size.String(); return same(v) }
	changes := func(v *volume) (*volume, error) { v.Size = resource.Quantity{}; return same(v) }
	v := &volume{Size: *resource.NewQuantity(5, resource.DecimalSI)}
	roundTrip(t, v, reads, same)
	f, ended := &failure{TB: t}, make(chan struct{})
	go func() { defer close(ended); roundTrip(f, v, changes, same) }()
	<-ended
	require.Contains(t, f.text, "has changed what it was given")
}
