package informer

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// What a kind and its list are called is the resource's own choice, and the members of a list may stand in any order.
func TestAnyKindCanBeHeld(t *testing.T) {
	item := func(kind string) string {
		of := ""
		if kind != "" {
			of = `"kind":"` + kind + `","apiVersion":"db.io/v1",`
		}
		return `{` + of + `"metadata":{"name":"a","namespace":"default","uid":"1","resourceVersion":"3"}}`
	}
	head := `"metadata":{"resourceVersion":"5"}`
	for name, c := range map[string]struct{ body, kind string }{
		"Table": {`{"kind":"TableList","apiVersion":"db.io/v1",` + head + `,"items":[` + item("Table") +
			`]}`, "Table"},
		"Status": {`{"kind":"StatusList","apiVersion":"db.io/v1",` + head + `,"items":[` + item("Status") +
			`]}`, "Status"},
		"list called Table": {`{"kind":"Table","apiVersion":"db.io/v1",` + head + `,"items":[` + item("Row") + `]}`,
			"Row"},
		"any list kind": {`{"kind":"Everything","apiVersion":"db.io/v1",` + head + `,"items":[` + item("Row") +
			`]}`, "Row"},
		"kind at the end": {`{` + head + `,"items":[` + item("") + `],"apiVersion":"db.io/v1","kind":"RowList"}`,
			"Row"},
		"kind in the midst": {`{"apiVersion":"db.io/v1","items":[` + item("") + `],"kind":"RowList",` + head + `}`,
			"Row"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &answers{list: func() []byte { return []byte(c.body) }}
				client, err := restPods[*unstructured.Unstructured](
					&rest.Config{Host: "http://server", QPS: -1}, &http.Client{Transport: server})
				require.NoError(t, err)
				inf, err := New[*unstructured.Unstructured](client,
					Options[*unstructured.Unstructured]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
				o, ok := inf.Get(named("a"))
				require.True(t, ok)
				require.Equal(t, c.kind, o.GetKind())
				require.Equal(t, "db.io/v1", o.GetAPIVersion())
			})
		})
	}
}

// Nor does it matter for objects of types of one's own, in lists and in watches.
func TestOwnTypesMayBeCalledTableOrStatus(t *testing.T) {
	for _, kind := range []string{"Table", "Status"} {
		synctest.Test(t, func(t *testing.T) {
			object := func(name, version string) string {
				return `{"kind":"` + kind + `","apiVersion":"db.io/v1","metadata":{"name":"` + name +
					`","namespace":"default","uid":"` + name + `","resourceVersion":"` + version + `"}}`
			}
			server := &answers{
				list: func() []byte {
					return []byte(`{"kind":"` + kind + `List","apiVersion":"db.io/v1",` +
						`"metadata":{"resourceVersion":"5"},"items":[` +
						object("a", "3") + `]}`)
				},
				watches: []io.Reader{io.MultiReader(strings.NewReader(`{"type":"ADDED","object":`+object("b", "6")+`}`),
					never{t.Context()})},
			}
			client, err := restOver[*widget](&rest.Config{Host: "http://server"}, &http.Client{Transport: server},
				schema.GroupVersionResource{Group: "db.io", Version: "v1", Resource: "widgets"}, kind)
			require.NoError(t, err)
			inf, err := New[*widget](client, Options[*widget]{DisableWatchList: true})
			require.NoError(t, err)
			run(t, inf)
			synctest.Wait()
			require.Equal(t, 2, inf.Len(), "%s %v", inf.Health(), inf.Health().LastBadObject)
			require.Zero(t, inf.Health().Rejected)
		})
	}
}

func TestWhatIsNoListIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"Status":            `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
		"Status in the end": `{"metadata":{},"status":"Success","items":[],"kind":"Status","apiVersion":"v1"}`,
		"Table": `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},` +
			`"rows":[]}`,
		"an object": `{"kind":"Row","apiVersion":"db.io/v1","metadata":{"name":"a","uid":"1",` +
			`"resourceVersion":"5"},"items":[]}`,
		"anything": `{"kind":"Row","apiVersion":"db.io/v1","metadata":{"resourceVersion":"5"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &answers{list: func() []byte { return []byte(body) }}
				inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				require.False(t, inf.HasSynced())
				require.ErrorIs(t, inf.Health().LastError, wire.ErrViolation)
				require.Empty(t, inf.ResourceVersion(metav1.NamespaceAll))
			})
		})
	}
}
