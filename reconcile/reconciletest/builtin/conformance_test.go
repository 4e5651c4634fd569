package builtin

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

//go:embed testdata/kinds.yaml
var conversations []byte

// conversation is what is said about one object of a kind: see testdata/kinds.yaml.
type conversation struct {
	Name string
	// Brief says that a controller inside of the real API server writes the object as well, so that only creations are
	// compared.
	Brief                                       bool
	Good, Tried, Bad, Change, Immutable, Status map[string]any
}

// TestConformance has the same conversation about each kind with the server in memory and with a real one, and compares
// the answers: codes, warnings, Statuses and objects, with their generations, managers and the order of their versions.
func TestConformance(t *testing.T) {
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true})
	namespace := cluster.Namespace(t)
	require.NoError(t, cluster.Kill(t.Context(), testcluster.ControllerManager)) // there are no controllers in memory
	var all map[string]conversation
	require.NoError(t, yaml.UnmarshalStrict(conversations, &all))
	compared := 0
	for _, k := range Kinds() {
		name := nameOf(k)
		t.Run(name, func(t *testing.T) {
			c, ok := all[name]
			require.True(t, ok, "testdata/kinds.yaml has no conversation about the kind")
			want := talk(t, cluster.Config(), namespace, k, c)
			memory := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds(), Namespaces: []string{namespace},
				CollectAfter: time.Hour})
			got := talk(t, memory.Config(), namespace, k, c)
			require.Equal(t, strings.Join(want, "\n"), strings.Join(got, "\n"),
				"expected is what the real server does, actual what the server in memory does")
			compared += len(want)
		})
		delete(all, name)
	}
	require.Empty(t, slices.Collect(maps.Keys(all)), "conversations about kinds that there are not")
	t.Logf("%d requests about %d kinds were answered alike", compared, len(Kinds()))
}

// TestTheModelsAgree has the conversations about those kinds that package reconciletest has a model of with such a
// server as well. It may refuse what it does not model, and else says the same, but for what exactly is invalid: of a
// name with a slash, and of some fields, a model names more or fewer causes, or in another order.
func TestTheModelsAgree(t *testing.T) {
	var all map[string]conversation
	require.NoError(t, yaml.UnmarshalStrict(conversations, &all))
	options := reconciletest.Options{Namespaces: []string{"here"}, CollectAfter: time.Hour}
	same, refused := 0, 0
	for _, k := range Kinds() {
		options.Kinds = nil
		light := reconciletest.NewServer(t, options)
		if _, ok := discover(t, light.Config(), pathOf(k))[k.GroupVersionResource.Resource]; !ok {
			continue
		}
		c := all[nameOf(k)]
		options.Kinds = Kinds()
		want := talk(t, reconciletest.NewServer(t, options).Config(), "here", k, c)
		got := talk(t, light.Config(), "here", k, c)
		for i := range want {
			first, _, _ := strings.Cut(got[i], "\n")
			if strings.Contains(first, ": 501 ") {
				refused++
				if strings.Contains(want[i], ": 20") {
					break // what comes later depends on it
				}
				continue
			}
			expected, actual := want[i], got[i]
			if strings.Contains(first, ": 422 ") {
				expected, _, _ = strings.Cut(expected, "\n")
				actual = first
			}
			require.Equal(t, expected, actual, "%s: expected is what Kubernetes' code does", nameOf(k))
			same++
		}
	}
	require.Greater(t, same, 170, "else a model refuses what it has answered")
	t.Logf("the models said the same %d times, and refused %d requests", same, refused)
}

// TestDiscovery compares what discovery says of the kinds.
func TestDiscovery(t *testing.T) {
	cluster := testcluster.Shared(t)
	memory := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	kinds := map[string][]reconciletest.Kind{}
	for _, k := range Kinds() {
		kinds[pathOf(k)] = append(kinds[pathOf(k)], k)
	}
	compared := 0
	for path, of := range kinds {
		want, got := discover(t, cluster.Config(), path), discover(t, memory.Config(), path)
		for _, k := range of {
			for name, one := range want {
				resource, _, _ := strings.Cut(name, "/")
				if resource == k.GroupVersionResource.Resource {
					delete(one.(map[string]any), "storageVersionHash") // it is one of a real storage
					require.Equal(t, one, got[name], "%s: %s", path, name)
					compared++
				}
			}
		}
	}
	require.Greater(t, compared, len(Kinds()))
	t.Logf("discovery says the same of %d resources and subresources", compared)
}

// nameOf is the key of a kind in testdata/kinds.yaml.
func nameOf(k reconciletest.Kind) string {
	return k.GroupVersionResource.Resource + "." + k.Version + "." + k.Group
}

func pathOf(k reconciletest.Kind) string {
	if k.Group == "" {
		return "/api/" + k.Version
	}
	return "/apis/" + k.Group + "/" + k.Version
}

// discover returns what discovery says of each resource of a version.
func discover(t *testing.T, config *rest.Config, path string) map[string]any {
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	code, _, body := send(t, client, http.MethodGet, config.Host+path, "application/json", "")
	if code == http.StatusNotFound {
		return nil
	}
	var list map[string]any
	require.NoError(t, json.Unmarshal(body, &list))
	all := map[string]any{}
	for _, one := range list["resources"].([]any) {
		all[one.(map[string]any)["name"].(string)] = one
	}
	return all
}

func send(t *testing.T, client *http.Client, method, url, contentType, body string) (int, http.Header, []byte) {
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "conformance/1")
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, resp.Header, answer
}

// talk has a conversation with a server, and returns the answers.
func talk(t *testing.T, config *rest.Config, namespace string, k reconciletest.Kind,
	c conversation) (answers []string) {
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	path := pathOf(k)
	if !k.ClusterScoped {
		path += "/namespaces/" + namespace
	}
	path = config.Host + path + "/" + k.GroupVersionResource.Resource
	name := c.Name
	if name == "" {
		name = "a.example.com" // which all kinds accept
	}
	versions := []string{}
	say := func(method, sub, contentType, body string) {
		body = strings.ReplaceAll(body, "$NS", namespace)
		code, header, answer := send(t, client, method, path+sub, contentType, body)
		answers = append(answers, fmt.Sprintf("%s %s: %d %v\n%s", method, sub, code, header.Values("Warning"),
			normal(t, answer, &versions)))
	}
	const merge, strategic, apply, object = "application/merge-patch+json", "application/strategic-merge-patch+json",
		"application/apply-patch+yaml", "application/json"
	one := "/" + name
	good := objectOf(t, k, name, c.Good, nil)
	say("POST", "", object, objectOf(t, k, name, c.Good, c.Bad))
	say("POST", "", object, objectOf(t, k, name, nil, nil))
	say("POST", "", object, objectOf(t, k, "A_/b", c.Good, nil))
	say("POST", "?dryRun=All", object, good)
	if c.Tried != nil {
		say("POST", "?dryRun=All", object, objectOf(t, k, name, c.Good, c.Tried))
	}
	say("POST", "", object, good)
	say("POST", "", object, good)
	if c.Brief {
		return answers
	}
	say("PUT", one, object, good)
	say("GET", one, object, "")
	say("PATCH", one, merge, patchOf(t, c.Change))
	say("PATCH", one, strategic, `{"metadata":{"labels":{"l":"m"},"finalizers":["example.com/f"]}}`)
	if c.Immutable != nil {
		say("PATCH", one, merge, patchOf(t, c.Immutable))
	}
	say("PATCH", one, merge, patchOf(t, c.Bad))
	say("PATCH", one+"?fieldManager=other&force=true", apply, good)
	say("PATCH", "/applied.example.com?fieldManager=other", apply,
		objectOf(t, k, "applied.example.com", c.Good, nil))
	if _, ok := k.ResetFields["status"]; ok {
		say("PATCH", one+"/status", merge, `{"metadata":{"labels":{"by":"status"}},"spec":{"x":1}}`)
		if c.Status != nil {
			say("PATCH", one+"/status", merge, patchOf(t, c.Status))
		}
		say("GET", one+"/status", object, "")
	}
	say("GET", "?fieldSelector=metadata.name%3D"+name, object, "")
	say("DELETE", one, object, "")
	say("PUT", one, object, good) // without the finalizer, which was all that kept it
	say("GET", one, object, "")
	say("PATCH", one, merge, `{"metadata":{"finalizers":null}}`)
	say("DELETE", "/applied.example.com", object, `{"propagationPolicy":"Background"}`)
	return answers
}

// objectOf is an object in JSON, with a merge patch.
func objectOf(t *testing.T, k reconciletest.Kind, name string, content, patch map[string]any) string {
	o := map[string]any{}
	maps.Copy(o, content)
	o["apiVersion"], o["kind"], o["metadata"] = k.GroupVersion().String(), k.Kind, map[string]any{"name": name}
	data, err := json.Marshal(o)
	require.NoError(t, err)
	if patch != nil {
		data, err = jsonpatch.MergePatch(data, []byte(patchOf(t, patch)))
		require.NoError(t, err)
	}
	return string(data)
}

func patchOf(t *testing.T, patch map[string]any) string {
	if patch == nil {
		return "{}"
	}
	data, err := json.Marshal(patch)
	require.NoError(t, err)
	return string(data)
}

var (
	moments = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z`)
	quoted  = regexp.MustCompile(`(\\"resourceVersion\\+":\\+")[0-9]+`)
	ids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// normal is an answer without what two servers never agree in: moments, UIDs, and the numbers of versions, of which the
// order stays.
func normal(t *testing.T, answer []byte, versions *[]string) string {
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		return string(answer)
	}
	number(v, versions)
	leaveOut(v)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", " ")
	require.NoError(t, encoder.Encode(v))
	text := moments.ReplaceAllString(b.String(), "MOMENT")
	text = quoted.ReplaceAllString(text, "${1}VERSION") // in the text of an error
	return ids.ReplaceAllString(text, "UID")
}

// number gives each resourceVersion its number among those of the conversation. That of a list depends on what others
// have written.
func number(v any, versions *[]string) {
	switch v := v.(type) {
	case map[string]any:
		if entries, ok := v["managedFields"].([]any); ok { // which are in the order of their seconds
			slices.SortStableFunc(entries, func(a, b any) int { return strings.Compare(timeless(a), timeless(b)) })
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, ok := v[key].(string)
			if key != "resourceVersion" || !ok || text == "" {
				number(v[key], versions)
				continue
			}
			if _, list := v["selfLink"]; list || v["name"] == nil {
				v[key] = "VERSION"
				continue
			}
			at := slices.Index(*versions, text)
			if at < 0 {
				*versions = append(*versions, text)
				at = len(*versions) - 1
			}
			v[key] = fmt.Sprint(at)
		}
	case []any:
		for _, one := range v {
			number(one, versions)
		}
	}
}

// timeless prints an entry of managed fields without its time.
func timeless(entry any) string {
	e := maps.Clone(entry.(map[string]any))
	delete(e, "time")
	return fmt.Sprint(e)
}

// leaveOut removes who asks for a certificate: the administrators of the servers have different names.
func leaveOut(v any) {
	switch v := v.(type) {
	case map[string]any:
		if spec, ok := v["spec"].(map[string]any); ok && spec["signerName"] != nil {
			delete(spec, "username")
			delete(spec, "extra")
		}
		for _, one := range v {
			leaveOut(one)
		}
	case []any:
		for _, one := range v {
			leaveOut(one)
		}
	}
}
