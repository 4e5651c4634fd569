package informer

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// What a kind and its list are called is the resource's own choice, and the members of a list may stand in any order.
func TestAnyKindCanBeHeld(t *testing.T) {
	item := func(kind string) string {
		of := ""
		if kind != "" {
			of = `"kind":"` + kind + `","apiVersion":"db.example.com/v1",`
		}
		return `{` + of + `"metadata":{"name":"a","namespace":"default","uid":"1","resourceVersion":"3"}}`
	}
	head := `"metadata":{"resourceVersion":"5"}`
	for name, c := range map[string]struct{ body, kind string }{
		"Table":             {`{"kind":"TableList","apiVersion":"db.example.com/v1",` + head + `,"items":[` + item("Table") + `]}`, "Table"},
		"Status":            {`{"kind":"StatusList","apiVersion":"db.example.com/v1",` + head + `,"items":[` + item("Status") + `]}`, "Status"},
		"list called Table": {`{"kind":"Table","apiVersion":"db.example.com/v1",` + head + `,"items":[` + item("Row") + `]}`, "Row"},
		"any list kind":     {`{"kind":"Everything","apiVersion":"db.example.com/v1",` + head + `,"items":[` + item("Row") + `]}`, "Row"},
		"kind at the end":   {`{` + head + `,"items":[` + item("") + `],"apiVersion":"db.example.com/v1","kind":"RowList"}`, "Row"},
		"kind in the midst": {`{"apiVersion":"db.example.com/v1","items":[` + item("") + `],"kind":"RowList",` + head + `}`, "Row"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &answers{list: func() []byte { return []byte(c.body) }}
				client, err := restPods[*unstructured.UnstructuredList](&rest.Config{Host: "http://server", QPS: -1}, &http.Client{Transport: server})
				require.NoError(t, err)
				inf, err := New[*unstructured.Unstructured](client, Options[*unstructured.Unstructured]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
				o, ok := inf.Get(named("a"))
				require.True(t, ok)
				require.Equal(t, c.kind, o.GetKind())
				require.Equal(t, "db.example.com/v1", o.GetAPIVersion())
			})
		})
	}
}

func TestWhatIsNoListIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"Status":            `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
		"Status in the end": `{"metadata":{},"status":"Success","items":[],"kind":"Status","apiVersion":"v1"}`,
		"Table":             `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"rows":[]}`,
		"an object":         `{"kind":"Row","apiVersion":"db.example.com/v1","metadata":{"name":"a","uid":"1","resourceVersion":"5"},"items":[]}`,
		"anything":          `{"kind":"Row","apiVersion":"db.example.com/v1","metadata":{"resourceVersion":"5"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &answers{list: func() []byte { return []byte(body) }}
				inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				require.False(t, inf.HasSynced())
				require.ErrorIs(t, inf.Health().LastError, errViolation)
				require.Empty(t, inf.ResourceVersion(metav1.NamespaceAll))
			})
		})
	}
}
