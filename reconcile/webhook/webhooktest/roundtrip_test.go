package webhooktest_test

import (
	"maps"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/thermostat-go/thermostat/reconcile/webhook/webhooktest"
)

type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Size              int    `json:"size"`
	Color             string `json:"color,omitempty"`
}

func (g *gadget) DeepCopyObject() runtime.Object {
	c := *g
	c.Labels, c.Annotations = maps.Clone(g.Labels), maps.Clone(g.Annotations)
	return &c
}

// text is a gadget of another version, whose size is text and which has no color.
type text struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Size              string `json:"size"`
}

func (g *text) DeepCopyObject() runtime.Object {
	c := *g
	c.Labels, c.Annotations = maps.Clone(g.Labels), maps.Clone(g.Annotations)
	return &c
}

const colorNote = "gadgets.example/color"

func toText(g *gadget) (*text, error) {
	t := &text{ObjectMeta: *g.ObjectMeta.DeepCopy(), Size: strconv.Itoa(g.Size)}
	if g.Color != "" {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, colorNote, g.Color)
	}
	return t, nil
}

func fromText(t *text) (*gadget, error) {
	size, err := strconv.Atoi(t.Size)
	g := &gadget{ObjectMeta: *t.ObjectMeta.DeepCopy(), Size: size, Color: t.Annotations[colorNote]}
	if delete(g.Annotations, colorNote); len(g.Annotations) == 0 {
		g.Annotations = nil
	}
	return g, err
}

// FuzzRoundTrip keeps the color in an annotation. Without that, or if a conversion changes what it is given, it fails.
func FuzzRoundTrip(f *testing.F) {
	webhooktest.FuzzRoundTrip(f, toText, fromText, func(t *text, c randfill.Continue) {
		c.Fill(&t.ObjectMeta)
		t.Size = strconv.Itoa(int(c.Int31()))
	})
}
