package writes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathsOfAPatch(t *testing.T) {
	const merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
	for _, test := range []struct {
		media, resource, body string
		paths                 []string
		more                  int
	}{
		{merge, "pods", `{"spec":{"replicas":3,"template":{"spec":{}}},"status":null}`,
			[]string{"spec.replicas", "spec.template.spec", "status"}, 0},
		{merge, "pods", `{"metadata":{"annotations":{"a.b/c":"canary"},"resourceVersion":"1"}}`,
			[]string{"metadata.annotations[a.b/c]"}, 0},
		{apply, "pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"c":[{"name":"x","env":[]},` +
			`{"name":"y"}],"args":["canary"]}}`, []string{"spec.c[].name", "spec.c[].env", "spec.args"}, 0},
		{"application/strategic-merge-patch+json; charset=utf-8", "pods",
			`{"spec":{"$setElementOrder/c":[{"name":"canary"}],"c":[{"$patch":"delete","name":"x"}]}}`,
			[]string{"spec.c[].name"}, 0},
		{merge, "configmaps", `{"data":{"a\"\u0062":"canary"}}`, []string{`data.a"b`}, 0},
		{merge, "secrets", `{"data":{"canary":"canary"},"stringData":{"canary":"x"},"type":"canary"}`,
			[]string{"data", "stringData", "type"}, 0},
		{"application/json-patch+json", "pods", `[{"op":"replace","path":"/spec/c/0/a~1b","value":"canary"},
			{"op":"add","path":"/spec/d/-","value":{"canary":1}}]`, []string{"spec.c[][a/b]", "spec.d[]"}, 0},
		{"application/json-patch+json", "secrets", `[{"op":"add","path":"/data/canary","value":""}]`, []string{"data"},
			0},
		{merge, "pods", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1}`,
			[]string{"a", "b", "c", "d", "e", "f", "g", "h"}, 2},
		{apply, "pods", "apiVersion: v1\nkind: canary\n", nil, 0},
		{merge, "pods", `{"a":canary"`, nil, 0},
		{merge, "pods", `"canary"`, nil, 0},
		{merge, "pods", `{"a":"canary`, nil, 0},
		{merge, "pods", `{"canary`, nil, 0},
		{"text/canary", "pods", `{"canary":1}`, nil, 0},
	} {
		paths, more := changedPaths(test.media, Target{Resource: test.resource}, []byte(test.body))
		require.Equal(t, test.more, more, test.body)
		require.ElementsMatch(t, test.paths, paths, test.body)
		require.NotContains(t, strings.Join(paths, " "), "canary")
	}
}

// FuzzPathsOfAPatch looks for values among the paths, and for bodies on which the scanner and encoding/json disagree.
func FuzzPathsOfAPatch(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[{"c":"canary"},[1,"canary",{}]]}}`))
	f.Add([]byte(`{"a\u0041":["canary",{"d":-1e3}],"$e":{"canary":[]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, resource := range []string{"secrets", "pods"} {
			_, _ = changedPaths("application/json-patch+json", Target{Resource: resource}, body)
			paths, _ := changedPaths("application/merge-patch+json", Target{Resource: resource}, body)
			var object map[string]any
			if json.Unmarshal(body, &object) != nil {
				continue
			}
			keys := map[string]bool{}
			collectKeys(keys, object)
			for _, p := range paths {
				p = strings.TrimSuffix(p, "]")
				last := p[strings.LastIndexAny(p, ".[")+1:]
				known := len(last) < 2 || last == p
				for key := range keys {
					known = known || strings.HasSuffix(key, last)
				}
				require.True(t, known, "%q of %s is no key", last, body)
			}
		}
	})
}

func collectKeys(keys map[string]bool, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inside := range v {
			keys[key] = true
			collectKeys(keys, inside)
		}
	case []any:
		for _, inside := range v {
			collectKeys(keys, inside)
		}
	}
}
