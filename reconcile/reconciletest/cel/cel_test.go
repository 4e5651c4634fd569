package cel

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

//go:embed testdata/ranges.yaml
var manifest []byte

var (
	ranges      = schema.GroupVersionResource{Group: "rules.example.com", Version: "v1", Resource: "ranges"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

// request creates the object r, or patches it if there is one; an empty name is that of another object.
type request struct{ name, spec, status string }

// cases begin with no object, each.
var cases = map[string][]request{
	"creation":         {{"r", `{"low":1,"high":2}`, ""}},
	"a broken rule":    {{"r", `{"low":3,"high":2}`, ""}},
	"two broken rules": {{"x", `{"low":3,"high":2,"note":"ABC"}`, ""}},
	"a transition": {{"r", `{"low":1,"high":5}`, ""}, {"r", `{"high":6}`, ""}, {"r", `{"high":4}`, ""},
		{"r", `{"note":"abc"}`, ""}},
	"an optional old value": {{"r", `{"low":1,"high":5,"note":"abc"}`, ""}, {"r", `{"note":"abd"}`, ""},
		{"r", `{"note":null}`, ""}},
	"an immutable field": {{"r", `{"low":1,"high":5}`, ""}, {"r", `{"unit":"one"}`, ""}, {"r", `{"unit":"ten"}`, ""}},
	"what the schema forbids comes first": {{"r", `{"low":3,"high":"x"}`, ""}, {"r", `{"low":3}`, ""},
		{"r", `{"low":3,"high":2,"unit":"many"}`, ""}, {"r", `{"low":-3,"high":-4}`, ""}},
	"integers or strings": {{"r", `{"low":1,"high":2,"size":0}`, ""}, {"r", `{"low":1,"high":2,"size":"x"}`, ""},
		{"r", `{"low":1,"high":2,"size":"5%"}`, ""}, {"r", `{"size":7}`, ""}},
	"formats": {{"r", `{"low":1,"high":2,"until":"2019-01-01T00:00:00Z"}`, ""},
		{"r", `{"low":1,"high":2,"wait":"10ms"}`, ""},
		{"r", `{"low":1,"high":2,"wait":"10m","until":"2021-01-01T00:00:00Z"}`, ""}},
	"a default": {{"r", `{"low":1,"high":2,"kind":"odd"}`, ""},
		{"r", `{"low":1,"high":2}`, ""}, {"r", `{"kind":"odd"}`, ""}},
	"elements of a list": {{"r", `{"low":1,"high":2,"parts":[{"name":"a","weight":5},{"name":"toolong"}]}`, ""},
		{"r", `{"low":1,"high":2,"parts":[{"name":"a","weight":5},{"name":"b"}]}`, ""},
		{"r", `{"parts":[{"name":"b","weight":1},{"name":"a","weight":4}]}`, ""},
		{"r", `{"parts":[{"name":"b","weight":1},{"name":"a","weight":6}]}`, ""}},
	"values of a map": {{"r", `{"low":1,"high":2,"labels":{"a":"bad","forbidden":"x"}}`, ""},
		{"r", `{"low":1,"high":2,"labels":{"a":"good"}}`, ""}},
	"a rule that fails": {{"r", `{"low":1,"high":2,"divisor":0}`, ""}, {"r", `{"low":1,"high":2,"divisor":60}`, ""},
		{"r", `{"low":1,"high":2,"divisor":10}`, ""}},
	"the status": {{"r", `{"low":1,"high":5}`, ""}, {"r", "", `{"used":4}`}, {"r", "", `{"used":3}`},
		{"r", "", `{"used":6}`},
		{"r", `{"high":6}`, ""}, {"r", "", `{"used":6}`}},
	"a rule that costs too much": {{"r", `{"low":1,"high":2,"heavy":[` + strings.Repeat("1,", 999) + `1]}`, ""},
		{"r", `{"low":1,"high":2,"heavy":[1,2,3]}`, ""}},
}

func TestRulesAsOnARealServer(t *testing.T) {
	cluster := testcluster.Shared(t)
	real, err := dynamic.NewForConfig(cluster.Config())
	require.NoError(t, err)
	define(t, real, manifest)
	agreed := 0
	for name, requests := range cases {
		t.Run(name, func(t *testing.T) {
			resources, err := reconciletest.ReadCRDs(manifest)
			require.NoError(t, err)
			server := reconciletest.NewServer(t, reconciletest.Options{Resources: resources, Rules: Rules{}})
			want := send(t, cluster.Config(), cluster.Namespace(t), requests)
			got := send(t, server.Config(), "default", requests)
			require.Equal(t, want, got, "expected is what the real server does, actual what the server in memory does")
			agreed += len(requests)
		})
	}
	t.Logf("%d requests for custom resources with rules were answered alike", agreed)
}

// define creates the definition of ranges on the real server, and waits until it is served.
func define(t *testing.T, client dynamic.Interface, manifest []byte) {
	_, err := client.Resource(definitions).Create(t.Context(), decode(t, manifest), metav1.CreateOptions{})
	require.NoError(t, err)
	// The condition Established may be true before the server has heard of it.
	require.Eventually(t, func() bool {
		_, err := client.Resource(ranges).List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, time.Minute, 20*time.Millisecond, "the definition is not served")
}

func decode(t *testing.T, manifest []byte) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(manifest, &o.Object))
	return o
}

// send returns the answers: codes and causes with their messages, and objects as they are then.
func send(t *testing.T, config *rest.Config, namespace string, requests []request) (answers []string) {
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	objects := client.Resource(ranges).Namespace(namespace)
	for _, r := range requests {
		_, err := objects.Get(t.Context(), r.name, metav1.GetOptions{})
		var is *unstructured.Unstructured
		switch {
		case r.status != "":
			is, err = objects.Patch(t.Context(), r.name, types.MergePatchType, []byte(`{"status":`+r.status+`}`),
				metav1.PatchOptions{}, "status")
		case apierrors.IsNotFound(err):
			var spec map[string]any
			require.NoError(t, json.Unmarshal([]byte(r.spec), &spec))
			is, err = objects.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "rules.example.com/v1", "kind": "Range", "metadata": map[string]any{"name": r.name},
				"spec": spec,
			}}, metav1.CreateOptions{})
		default:
			require.NoError(t, err)
			is, err = objects.Patch(t.Context(), r.name, types.MergePatchType, []byte(`{"spec":`+r.spec+`}`),
				metav1.PatchOptions{})
		}
		answers = append(answers, outcome(t, is, err))
	}
	return answers
}

func outcome(t *testing.T, o *unstructured.Unstructured, err error) string {
	if err != nil {
		status, ok := err.(apierrors.APIStatus)
		require.True(t, ok, "%v", err)
		require.Equal(t, int32(http.StatusUnprocessableEntity), status.Status().Code, "%v", err)
		answer := "Invalid"
		for _, c := range status.Status().Details.Causes {
			answer += fmt.Sprintf("\n%s %s: %s", c.Type, c.Field, c.Message)
		}
		return answer
	}
	data, err := json.Marshal(map[string]any{"spec": o.Object["spec"], "status": o.Object["status"]})
	require.NoError(t, err)
	return string(data)
}

// Rules that a real server does not accept in a definition are refused here, too.
func TestRulesThatARealServerDoesNotAccept(t *testing.T) {
	cluster := testcluster.Shared(t)
	real, err := dynamic.NewForConfig(cluster.Config())
	require.NoError(t, err)
	for name, property := range map[string]string{
		"no CEL": `{type: integer, x-kubernetes-validations: [{rule: "self +"}]}`,
		"no such field": `{type: object, properties: {a: {type: string}},
			x-kubernetes-validations: [{rule: "self.b == ''"}]}`,
		"another type":  `{type: integer, x-kubernetes-validations: [{rule: "self + 1"}]}`,
		"an empty rule": `{type: integer, x-kubernetes-validations: [{rule: ""}]}`,
		"costs too much": `{type: array, items: {type: string},
			x-kubernetes-validations: [{rule: "self.all(x, self.all(y, x != y))"}]}`,
		"costs together": `{type: array, items: {type: object, properties: {a: {type: string,
			x-kubernetes-validations: [{rule: "self.matches('(a+)+b')"}]}}}}`,
		"a message that is no string": `{type: integer,
			x-kubernetes-validations: [{rule: "self > 1", messageExpression: "self"}]}`,
		"an old value that cannot be told": `{type: array, items: {type: integer,
			x-kubernetes-validations: [{rule: "self == oldSelf"}]}}`,
		"no such path": `{type: object, properties: {a: {type: string}},
			x-kubernetes-validations: [{rule: "self.a == ''", fieldPath: ".b"}]}`,
		"no such reason": `{type: integer, x-kubernetes-validations: [{rule: "self > 1", reason: Because}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			definition := []byte(strings.NewReplacer("PROPERTY", property).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wrongs.rules.example.com}
spec:
  group: rules.example.com
  scope: Namespaced
  names: {plural: wrongs, kind: Wrong}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: PROPERTY}}}}
`))
			_, err := real.Resource(definitions).Create(t.Context(), decode(t, definition), metav1.CreateOptions{})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			file := filepath.Join(t.TempDir(), "crd.yaml")
			require.NoError(t, os.WriteFile(file, definition, 0o600))
			f := &failing{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				reconciletest.NewServer(f, reconciletest.Options{CRDs: []string{file}, Rules: Rules{}})
			}()
			<-done
			require.Contains(t, f.message, "rules in CEL: ")
			for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
				require.Contains(t, f.message, cause.Field+": "+cause.Message)
			}
		})
	}
}

// failing is a test that may fail: it keeps what it was told.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
