//go:build !purego

package wire

import (
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire/intern"
)

// The first objects of a resource share nothing, and cost no tables; those after them share. Two values may want one
// place of a table, by a seed that is drawn: one of five decoders shares.
func TestOnlyManyObjectsShare(t *testing.T) {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "shop"}}}
	body, err := p.Marshal()
	require.NoError(t, err)
	shares := false
	for range 5 {
		d := NewDecoder(Type{Item: reflect.TypeFor[corev1.Pod]()}, intern.Never)
		var labels []uintptr
		var objects []any // they stay alive, or another one may get the same address
		for i := range 2*few + 3 {
			r := raw{event: watch.Added, data: body}
			if i < few { // changes are no more objects
				r.event = watch.Modified
			}
			e := d.decode(r, true)
			require.NoError(t, e.Err)
			objects = append(objects, e.Object)
			labels = append(labels, reflect.ValueOf(e.Object.(*corev1.Pod).Labels).Pointer())
		}
		for i := range 2 * few {
			require.NotContains(t, labels[i+1:], labels[i])
		}
		runtime.KeepAlive(objects)
		shares = shares || labels[2*few] == labels[2*few+1] && labels[2*few] == labels[2*few+2]
	}
	require.True(t, shares)
}
