package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// hookWorld is a server whose webhooks are functions, which are called at https://hooks.example.com/NAME.
type hookWorld struct {
	*testing.T
	server *Server
	client kubernetes.Interface

	mu    sync.Mutex
	hooks map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
	asked []string // operation and name of the webhook
	last  *admissionv1.AdmissionRequest
}

func newHookWorld(t *testing.T) *hookWorld {
	w := &hookWorld{T: t, hooks: map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{}}
	resources, err := ReadCRDs(twoVersions(byWebhook))
	require.NoError(t, err)
	w.server = NewServer(t, Options{Resources: resources, Webhooks: map[string]http.Handler{"hooks.example.com": w,
		"doors.example.com": convertDoors(nil)}})
	config := w.server.Config()
	config.WarningHandler = rest.NoWarnings{}
	w.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return w
}

func (w *hookWorld) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	name := req.URL.Path[1:]
	w.mu.Lock()
	w.asked = append(w.asked, fmt.Sprintf("%s %s", name, review.Request.Operation))
	w.last = review.Request
	answer := w.hooks[name]
	w.mu.Unlock()
	response := &admissionv1.AdmissionResponse{Allowed: true}
	if answer != nil {
		response = answer(review.Request)
	}
	if response == nil {
		_, _ = out.Write([]byte("what?"))
		return
	}
	if response.UID == "" {
		response.UID = review.Request.UID
	}
	review.Request, review.Response = nil, response
	_ = json.NewEncoder(out).Encode(review)
}

// takeAsked returns which webhooks were called since the last time.
func (w *hookWorld) takeAsked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = nil
	return asked
}

// register makes a configuration with one webhook for each text, which is its inside in YAML beside what all have.
func (w *hookWorld) register(kind, name string, hooks ...string) error {
	var all []map[string]any
	for _, text := range hooks {
		hook := map[string]any{"admissionReviewVersions": []string{"v1"}, "sideEffects": "None"}
		require.NoError(w, yaml.Unmarshal([]byte(text), &hook))
		if hook["clientConfig"] == nil {
			hook["clientConfig"] = map[string]any{"url": "https://hooks.example.com/" + hook["name"].(string)}
		}
		all = append(all, hook)
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name}, "webhooks": all})
	require.NoError(w, err)
	if kind == "mutating" {
		var c admissionregistrationv1.MutatingWebhookConfiguration
		require.NoError(w, json.Unmarshal(data, &c))
		_, err = w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(w.Context(), &c,
			metav1.CreateOptions{})
		return err
	}
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(w, json.Unmarshal(data, &c))
	_, err = w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(w.Context(), &c,
		metav1.CreateOptions{})
	return err
}

func (w *hookWorld) create(name string, change ...func(*corev1.ConfigMap)) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range change {
		f(cm)
	}
	return w.client.CoreV1().ConfigMaps("default").Create(w.Context(), cm, metav1.CreateOptions{})
}

// patching is a webhook that puts a value under a key of the data of a ConfigMap, if it is not there.
func patching(key, value string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var cm corev1.ConfigMap
		_ = json.Unmarshal(r.Object.Raw, &cm)
		response := &admissionv1.AdmissionResponse{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch)}
		switch {
		case cm.Data[key] != "":
			response.PatchType = nil
		case cm.Data == nil:
			response.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/data","value":{%q:%q}}]`, key, value)
		default:
			response.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/data/%s","value":%q}]`, key, value)
		}
		return response
	}
}

const configMaps = `, rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], ` +
	`operations: [CREATE, UPDATE]}]}`

func inHookWorld(t *testing.T, fn func(w *hookWorld)) {
	synctest.Test(t, func(t *testing.T) { fn(newHookWorld(t)) })
}

// TestMutatingWebhooks are called in the order of their configurations, and once more if they ask for it and one after
// them has changed the object.
func TestMutatingWebhooks(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		require.NoError(w, w.register("mutating", "b", `{name: last.example.com`+configMaps))
		require.NoError(w, w.register("mutating", "a",
			`{name: first.example.com, reinvocationPolicy: IfNeeded`+configMaps,
			`{name: second.example.com`+configMaps))
		require.NoError(w, w.register("validating", "v", `{name: valid.example.com`+configMaps))
		w.hooks["last.example.com"] = patching("last", "1")
		w.hooks["second.example.com"] = patching("second", "2")
		made, err := w.create("a")
		require.NoError(w, err)
		require.Equal(w, map[string]string{"last": "1", "second": "2"}, made.Data)
		require.Equal(w, []string{"first.example.com CREATE", "second.example.com CREATE", "last.example.com CREATE",
			"first.example.com CREATE", "valid.example.com CREATE"}, w.takeAsked())
		var seen corev1.ConfigMap
		require.NoError(w, json.Unmarshal(w.last.Object.Raw, &seen))
		require.Equal(w, made.Data, seen.Data, "a validating webhook sees what is to be stored")

		made.Data["x"] = "y"
		_, err = w.client.CoreV1().ConfigMaps("default").Update(w.Context(), made, metav1.UpdateOptions{})
		require.NoError(w, err)
		require.Equal(w, []string{"first.example.com UPDATE", "second.example.com UPDATE", "last.example.com UPDATE",
			"valid.example.com UPDATE"}, w.takeAsked(), "nothing has changed")
		require.NoError(w, json.Unmarshal(w.last.OldObject.Raw, &seen))
		require.NotContains(w, seen.Data, "x")
	})
}

// TestWebhooksThatAreAsked by what the rules and selectors say.
func TestWebhooksThatAreAsked(t *testing.T) {
	rule := func(inside string) string { return "rules: [{" + inside + "}]" }
	all := `apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: `
	everything := rule(all + `["*/*"]`)
	selecting := func(which, label string) string {
		return everything + `, ` + which + `: {matchLabels: {` + label + `}}`
	}
	for name, test := range map[string]struct {
		hook   string
		create bool // of the ConfigMap a, with the label l=1
		delete bool
		status bool // of a Deployment
		space  bool // a Namespace
	}{
		"everything": {everything, true, true, true, true},
		"namespaced": {rule(all + `["*"], scope: Namespaced`), true, true, false, false},
		"cluster":    {rule(all + `["*"], scope: Cluster`), false, false, false, true},
		"status":     {rule(all + `["*/status"]`), false, false, true, false},
		"deletions": {rule(`apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [DELETE]`),
			false, true, false, false},
		"another version": {rule(`apiGroups: [""], apiVersions: [v2], resources: ["*"], operations: ["*"]`), false,
			false, false, false},
		"by its label":  {selecting("objectSelector", `l: "1"`), true, true, false, false},
		"another label": {selecting("objectSelector", `l: "2"`), false, false, false, false},
		"by the space": {selecting("namespaceSelector", `kubernetes.io/metadata.name: default`), true, true, true,
			false},
		"another space": {selecting("namespaceSelector", `kubernetes.io/metadata.name: new`), false, false, false,
			true},
	} {
		t.Run(name, func(t *testing.T) {
			inHookWorld(t, func(w *hookWorld) {
				require.NoError(w, w.register("validating", "v", `{name: v.example.com, `+test.hook+`}`))
				asked := func() bool { return len(w.takeAsked()) > 0 }
				_, err := w.create("a", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"l": "1"} })
				require.NoError(w, err)
				require.Equal(w, test.create, asked(), "create")
				err = w.client.CoreV1().ConfigMaps("default").Delete(w.Context(), "a", metav1.DeleteOptions{})
				require.NoError(w, err)
				require.Equal(w, test.delete, asked(), "delete")
				if test.delete {
					require.Empty(w, w.last.Object.Raw)
					require.NotEmpty(w, w.last.OldObject.Raw)
				}
				labels := map[string]string{"app": "a"}
				d, err := w.client.AppsV1().Deployments("default").Create(w.Context(), &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{
						Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
							ObjectMeta: metav1.ObjectMeta{Labels: labels},
							Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}},
				}, metav1.CreateOptions{})
				require.NoError(w, err)
				w.takeAsked()
				d.Status.ObservedGeneration = 1
				_, err = w.client.AppsV1().Deployments("default").UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
				require.NoError(w, err)
				require.Equal(w, test.status, asked(), "status")
				_, err = w.client.CoreV1().Namespaces().Create(w.Context(),
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
				require.NoError(w, err)
				require.Equal(w, test.space, asked(), "namespace")
			})
		})
	}
}

// TestWhatAWebhookIsTold is about the rest of a review.
func TestWhatAWebhookIsTold(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		require.NoError(w, w.register("validating", "v", `{name: v.example.com`+configMaps))
		clients, err := kubernetes.NewForConfig(w.server.LinkAs(ServiceAccount("default", "me")).Config())
		require.NoError(w, err)
		_, err = clients.CoreV1().ConfigMaps("default").Create(w.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}},
			metav1.CreateOptions{FieldManager: "m", DryRun: []string{"All"}})
		require.NoError(w, err)
		r := w.last
		require.NotEmpty(w, r.UID)
		require.Equal(w, metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, r.Kind)
		require.Equal(w, metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}, r.Resource)
		require.Equal(w, r.Kind, *r.RequestKind)
		require.Equal(w, r.Resource, *r.RequestResource)
		require.Regexp(w, `^a-.....$`, r.Name, "the server has made the name up")
		require.Equal(w, "default", r.Namespace)
		require.True(w, *r.DryRun)
		require.Equal(w, "system:serviceaccount:default:me", r.UserInfo.Username)
		require.Equal(w, []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
			r.UserInfo.Groups)
		require.JSONEq(w, `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"],"fieldManager":"m"}`,
			string(r.Options.Raw))
	})
}

// TestWebhooksOfVersions are told in the version that they ask for, and what they change is stored.
func TestWebhooksOfVersions(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		const rules = `, rules: [{apiGroups: [corpus.example.com], apiVersions: [v1], resources: [doors], ` +
			`operations: [CREATE]}]}`
		require.NoError(w, w.register("mutating", "m", `{name: m.example.com`+rules))
		require.NoError(w, w.register("validating", "exact", `{name: exact.example.com, matchPolicy: Exact`+rules))
		w.hooks["m.example.com"] = func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
				Patch: []byte(`[{"op":"replace","path":"/spec/width","value":90}]`)}
		}
		config := w.server.Config()
		config.WarningHandler = rest.NoWarnings{}
		client, err := dynamic.NewForConfig(config)
		require.NoError(w, err)
		gvr := definitions
		gvr.Group, gvr.Version, gvr.Resource = "corpus.example.com", "v1alpha1", "doors"
		made, err := client.Resource(gvr).Namespace("default").Create(w.Context(),
			door("v1alpha1", "a", map[string]any{"size": int64(1)}), metav1.CreateOptions{})
		require.NoError(w, err)
		require.EqualValues(w, 9, specOfDoor(made)["size"])
		require.Equal(w, []string{"m.example.com CREATE"}, w.takeAsked())
		require.Equal(w, "v1", w.last.Kind.Version)
		require.Equal(w, "v1", w.last.Resource.Version)
		require.Equal(w, "v1alpha1", w.last.RequestKind.Version)
		require.Equal(w, "v1alpha1", w.last.RequestResource.Version)
		require.Contains(w, string(w.last.Object.Raw), `"width":10`)
	})
}

// TestAnswersOfWebhooks has the codes and the words of the real server.
func TestAnswersOfWebhooks(t *testing.T) {
	type answer = admissionv1.AdmissionResponse
	says := func(a *answer) func(*admissionv1.AdmissionRequest) *answer {
		return func(*admissionv1.AdmissionRequest) *answer { return a }
	}
	status := func(code int32, reason metav1.StatusReason, message string) *metav1.Status {
		return &metav1.Status{Code: code, Reason: reason, Message: message}
	}
	slow := func(*admissionv1.AdmissionRequest) *answer { time.Sleep(time.Minute); return &answer{Allowed: true} }
	patch := func(text string) func(*admissionv1.AdmissionRequest) *answer {
		return says(&answer{Allowed: true, Patch: []byte(text), PatchType: new(admissionv1.PatchTypeJSONPatch)})
	}
	const failed = `Internal error occurred: failed calling webhook "h.example.com": `
	const invalid = failed + `received invalid webhook response: `
	const refused = `admission webhook "h.example.com" denied the request`
	for name, test := range map[string]struct {
		hook    func(*admissionv1.AdmissionRequest) *answer
		kind    string
		more    string
		code    int32
		message string // empty: it is stored; one that ends with a space or = is the begin of it
	}{
		"denied":         {says(&answer{}), "validating", "", 400, refused + ` without explanation`},
		"with a message": {says(&answer{Result: status(0, "", "no")}), "mutating", "", 400, refused + `: no`},
		"with a reason": {says(&answer{Result: status(403, "Forbidden", "")}), "validating", "", 403,
			refused + `: Forbidden`},
		"code of success": {says(&answer{Result: status(200, "", "no")}), "validating", "", 400, refused + `: no`},
		"denied though failures are ignored": {says(&answer{Result: status(422, "Invalid", "no")}), "validating",
			"failurePolicy: Ignore", 422, refused + `: no`},
		"a patch of one that validates": {patch("[]"), "validating", "", 500,
			invalid + `validating webhook may not return response.patch`},
		"a type of patch of one that validates": {
			says(&answer{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch)}), "validating", "", 500,
			invalid + `validating webhook may not return response.patchType`},
		"a type without a patch": {
			says(&answer{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch)}), "mutating", "", 500,
			invalid + `webhook returned response.patchType but not response.patch`},
		"a patch without a type": {says(&answer{Allowed: true, Patch: []byte("[]")}), "mutating", "", 500,
			invalid + `webhook returned response.patch but not response.patchType`},
		"another UID": {says(&answer{Allowed: true, UID: "x"}), "validating", "", 500,
			invalid + `expected response.uid=`},
		"another UID, ignored": {says(&answer{Allowed: true, UID: "x"}), "validating", "failurePolicy: Ignore", 0, ""},
		"no patch": {patch("x"), "mutating", "", 500,
			failed + "received undecodable patch in webhook response: "},
		"a patch that does not fit": {patch(`[{"op":"remove","path":"/nothing"}]`), "mutating", "failurePolicy: Ignore",
			500, `Internal error occurred: error in remove for path: '/nothing': Unable to remove nonexistent key: ` +
				`nothing: missing value`},
		"slow": {slow, "validating", "timeoutSeconds: 3", 500, failed + `failed to call webhook: ` +
			`Post "https://hooks.example.com/h.example.com?timeout=3s": context deadline exceeded`},
		"slow and ignored": {slow, "mutating", "failurePolicy: Ignore", 0, ""},
		"no review":        {says(nil), "validating", "", 500, failed + "failed to call webhook: "},
	} {
		t.Run(name, func(t *testing.T) {
			inHookWorld(t, func(w *hookWorld) {
				w.hooks["h.example.com"] = test.hook
				more := test.more
				if more != "" {
					more = ", " + more
				}
				require.NoError(w, w.register(test.kind, "c", `{name: h.example.com`+more+configMaps))
				begin := time.Now()
				_, err := w.create("a")
				if name == "slow" {
					require.Equal(w, 3*time.Second, time.Since(begin))
				}
				_, stored := Get[*corev1.ConfigMap](w.server, "configmaps", "default", "a")
				require.Equal(w, test.message == "", stored)
				if test.message == "" {
					require.NoError(w, err)
				} else {
					if strings.HasSuffix(test.message, " ") || strings.HasSuffix(test.message, "=") {
						require.ErrorContains(w, err, test.message)
					} else {
						require.EqualError(w, err, test.message)
					}
					require.Equal(w, test.code, err.(apierrors.APIStatus).Status().Code)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// TestWarningsOfWebhooks reach the client, whatever becomes of the write.
func TestWarningsOfWebhooks(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		require.NoError(w, w.register("mutating", "m", `{name: m.example.com`+configMaps))
		require.NoError(w, w.register("validating", "v", `{name: a.example.com`+configMaps,
			`{name: b.example.com`+configMaps))
		for name, allowed := range map[string]bool{"m.example.com": true, "a.example.com": true,
			"b.example.com": false} {
			w.hooks[name] = func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				return &admissionv1.AdmissionResponse{Allowed: allowed, Warnings: []string{"of " + name}}
			}
		}
		var said warnings
		config := w.server.Config()
		config.WarningHandler = &said
		client, err := kubernetes.NewForConfig(config)
		require.NoError(w, err)
		_, err = client.CoreV1().ConfigMaps("default").Create(w.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		require.Error(w, err)
		require.Equal(w, warnings{"of m.example.com", "of a.example.com", "of b.example.com"}, said)
	})
}

type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// TestConfigurationsOfWebhooks are completed and judged as on a real server, and what is not modelled is refused.
func TestConfigurationsOfWebhooks(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		require.NoError(w, w.register("mutating", "m",
			`{name: m.example.com, clientConfig: {service: {namespace: a, name: b}}`+configMaps))
		c, err := w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(w.Context(), "m",
			metav1.GetOptions{})
		require.NoError(w, err)
		require.EqualValues(w, 1, c.Generation)
		h := c.Webhooks[0]
		require.Equal(w, admissionregistrationv1.Fail, *h.FailurePolicy)
		require.Equal(w, admissionregistrationv1.Equivalent, *h.MatchPolicy)
		require.EqualValues(w, 10, *h.TimeoutSeconds)
		require.EqualValues(w, 443, *h.ClientConfig.Service.Port)
		require.Equal(w, admissionregistrationv1.AllScopes, *h.Rules[0].Scope)
		_, err = w.create("a")
		require.ErrorContains(w, err,
			"not modelled: the webhook m.example.com at b.a.svc:443, which nothing in this process serves")
		_, err = w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(w.Context(), "m",
			types.StrategicMergePatchType, []byte(`{"webhooks":[{"name":"m.example.com","failurePolicy":"Ignore"}]}`),
			metav1.PatchOptions{})
		require.NoError(w, err)
		_, err = w.create("a")
		require.ErrorContains(w, err, "not modelled", "it is no failure of the webhook")

		rules := func(inside string) string { return "rules: [{" + inside + "}]" }
		for _, c := range [][2]string{
			{`name: short`, "name"},
			{`sideEffects: Some`, "sideEffects: Unsupported value"},
			{`timeoutSeconds: 31`, "timeoutSeconds: Invalid value"},
			{`clientConfig: {url: "http://a"}`, "clientConfig.url: Invalid value"},
			{`clientConfig: {caBundle: "eA=="}`, "clientConfig: Required value"},
			{`admissionReviewVersions: [v1beta1]`, "not modelled: an AdmissionReview of v1beta1"},
			{`admissionReviewVersions: [v2]`, "admissionReviewVersions: Invalid value"},
			{`matchConditions: [{name: a, expression: "true"}]`, "not modelled: matchConditions"},
			{`rules: [{}]`, "rules[0].operations: Required value"},
			{rules(`operations: ["*"], apiGroups: ["", a, "*"], apiVersions: [v1], resources: [a]`),
				"apiGroups: Invalid value: [\"\",\"a\",\"*\"]: if '*' is present, must not specify other API groups"},
			{rules(`operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: ["*", a]`),
				"if '*' is present, must not specify other resources without subresources"},
			{rules(`operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [a/*, a/status]`),
				"resources[1]: Invalid value: \"a/status\": if 'a/*' is present, must not specify a/status"},
			{rules(`operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: ["*/status", a/status]`),
				"resources[1]: Invalid value: \"a/status\": if '*/status' is present, must not specify a/status"},
			{`clientConfig: {service: {namespace: "", name: ""}}`,
				"[webhooks[0].clientConfig.service.name: Required value, webhooks[0].clientConfig.service.namespace: "},
			{`clientConfig: {service: {namespace: a, name: ""}}`, "clientConfig.service.name: Required value"},
			{`clientConfig: {service: {namespace: a, name: b, path: c}}`, "clientConfig.service.path: Invalid value"},
		} {
			inside, want := c[0], c[1]
			if !strings.HasPrefix(inside, "name") {
				inside = "name: a.example.com, " + inside
			}
			require.ErrorContains(w, w.register("validating", "v", "{"+inside+"}"), want, inside)
		}
	})
}

// TestWritesThatWebhooksAreNotToldOf are refused where a webhook would be told on a real server.
func TestWritesThatWebhooksAreNotToldOf(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		require.NoError(w, w.register("validating", "v", `{name: a.example.com, rules: [{apiGroups: ["*"], `+
			`apiVersions: ["*"], resources: ["doors/scale", "pods/binding"], operations: ["*"]}]}`))
		client, err := dynamic.NewForConfig(w.server.Config())
		require.NoError(w, err)
		gvr := definitions
		gvr.Group, gvr.Resource = "corpus.example.com", "doors"
		_, err = client.Resource(gvr).Namespace("default").Create(w.Context(),
			door("v1", "a", map[string]any{"width": int64(10)}), metav1.CreateOptions{})
		require.NoError(w, err)
		_, err = client.Resource(gvr).Namespace("default").Patch(w.Context(), "a", types.MergePatchType,
			[]byte(`{"spec":{"replicas":20}}`), metav1.PatchOptions{}, "scale")
		require.ErrorContains(w, err, "not modelled: webhooks of the subresource scale, such as a.example.com")
		held, _ := Get[*unstructured.Unstructured](w.server, "doors.v1.corpus.example.com", "default", "a")
		require.EqualValues(w, 10, specOfDoor(held)["width"])

		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		_, err = w.client.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{})
		require.NoError(w, err)
		bind := func() error {
			return w.client.CoreV1().Pods("default").Bind(w.Context(), &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}},
				metav1.CreateOptions{})
		}
		require.ErrorContains(w, bind(), "not modelled: webhooks of the subresource binding, such as a.example.com")
		bound, _ := Get[*corev1.Pod](w.server, "pods", "default", "p")
		require.Empty(w, bound.Spec.NodeName)
		require.Empty(w, w.takeAsked())

		require.NoError(w, w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(w.Context(), "v",
			metav1.DeleteOptions{}))
		require.NoError(w, bind(), "no webhook is about it any more")
	})
}

// TestFaultsOfWebhooks has the words of the real server.
func TestFaultsOfWebhooks(t *testing.T) {
	const failed = `failed calling webhook "h.example.com": failed to call webhook: `
	const post = failed + `Post "https://hooks.example.com/h.example.com?timeout=10s": `
	for name, test := range map[string]struct {
		fault Fault
		want  string
	}{
		"down":  {ConnectionRefused, post + "dial tcp 10.0.0.10:443: connect: connection refused"},
		"reset": {Reset, post + "read tcp: connection reset by peer"},
		"slow":  {Delay(time.Minute, 0), post + "context deadline exceeded"},
		"ended": {CertificateEnded, post + "tls: failed to verify certificate: x509: certificate has expired or is " +
			"not yet valid: current time 2000-01-01T00:00:00Z is after 1999-12-31T23:00:00Z"},
		"wrong": {WrongAnswer, `failed calling webhook "h.example.com": received invalid webhook response: `},
		"HTTP":  {Refuse(apierrors.NewInternalError(errors.New("no"))), failed + "Internal error occurred: no"},
	} {
		t.Run(name, func(t *testing.T) {
			inHookWorld(t, func(w *hookWorld) {
				require.NoError(w, w.register("validating", "v", `{name: h.example.com`+configMaps))
				var calls []WebhookCall
				w.server.InjectWebhooks(func(c WebhookCall) Fault { calls = append(calls, c); return test.fault })
				_, err := w.create("a")
				require.ErrorContains(w, err, test.want)
				require.True(w, apierrors.IsInternalError(err))
				require.Equal(w, []WebhookCall{{"h.example.com", "https://hooks.example.com/h.example.com"}}, calls)
				w.server.InjectWebhooks(nil)
				_, err = w.create("a")
				require.NoError(w, err)
			})
		})
	}
}

// TestTheCollectorTriesAgainWhatAWebhookRefuses without a write that is the reason.
func TestTheCollectorTriesAgainWhatAWebhookRefuses(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		spaces := w.client.CoreV1().Namespaces()
		_, err := spaces.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			metav1.CreateOptions{})
		require.NoError(w, err)
		_, err = w.client.CoreV1().ConfigMaps("a").Create(w.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		require.NoError(w, err)
		require.NoError(w, w.register("validating", "v", `{name: v.example.com, rules: [{apiGroups: [""], `+
			`apiVersions: [v1], resources: [configmaps], operations: [DELETE]}]}`))
		w.server.InjectWebhooks(func(WebhookCall) Fault { return ConnectionRefused })
		require.NoError(w, spaces.Delete(w.Context(), "a", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		_, err = spaces.Get(w.Context(), "a", metav1.GetOptions{})
		require.NoError(w, err, "its ConfigMap cannot be deleted")
		require.Empty(w, w.takeAsked())

		w.server.InjectWebhooks(nil)
		time.Sleep(longestPause + time.Second)
		_, err = spaces.Get(w.Context(), "a", metav1.GetOptions{})
		require.True(w, apierrors.IsNotFound(err), err)
		require.Equal(w, []string{"v.example.com DELETE"}, w.takeAsked())
		time.Sleep(time.Minute)
		require.Empty(w, w.takeAsked(), "there is nothing left to do")
	})
}

// TestTheCollectorWaitsForWebhooks while other reasons for a pass come.
func TestTheCollectorWaitsForWebhooks(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		spaces, maps := w.client.CoreV1().Namespaces(), w.client.CoreV1().ConfigMaps("a")
		_, err := spaces.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			metav1.CreateOptions{})
		require.NoError(w, err)
		for _, name := range []string{"a", "b", "c"} {
			_, err = maps.Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			require.NoError(w, err)
		}
		require.NoError(w, w.register("validating", "v", `{name: v.example.com, rules: [{apiGroups: [""], `+
			`apiVersions: [v1], resources: [configmaps], operations: [DELETE]}]}`))
		w.server.InjectWebhooks(func(WebhookCall) Fault { return Delay(2*time.Second, 0) })
		require.NoError(w, spaces.Delete(w.Context(), "a", metav1.DeleteOptions{}))
		time.Sleep(10 * time.Second)
		_, err = spaces.Get(w.Context(), "a", metav1.GetOptions{})
		require.True(w, apierrors.IsNotFound(err), err)
	})
}

// TestWebhooksAreToldWhichControllerWrites, by the service accounts of a real cluster.
func TestWebhooksAreToldWhichControllerWrites(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		_, err := w.client.CoreV1().Namespaces().Create(w.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		require.NoError(w, err)
		maps := w.client.CoreV1().ConfigMaps("a")
		make := func(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for _, o := range owners {
				cm.OwnerReferences = append(cm.OwnerReferences,
					metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID})
			}
			made, err := maps.Create(w.Context(), cm, metav1.CreateOptions{})
			require.NoError(w, err)
			return made
		}
		owner, parent := make("owner"), make("parent")
		make("left", owner)
		make("taken", parent)
		claims := w.client.CoreV1().PersistentVolumeClaims("a")
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		_, err = claims.Create(w.Context(), claim, metav1.CreateOptions{})
		require.NoError(w, err)

		require.NoError(w, w.register("validating", "v", `{name: v.example.com, rules: [{apiGroups: [""], `+
			`apiVersions: [v1], resources: [configmaps, persistentvolumeclaims, namespaces], `+
			`operations: [UPDATE, DELETE]}]}`))
		var told []string
		w.hooks["v.example.com"] = func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			who := r.UserInfo.Username[strings.LastIndex(r.UserInfo.Username, ":")+1:]
			require.Contains(w, []string{"system:admin", ServiceAccount("kube-system", who)}, r.UserInfo.Username)
			told = append(told, fmt.Sprintf("%s %s %s by %s", r.Operation, r.Resource.Resource, r.Name, who))
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
		takeTold := func() (all []string) {
			time.Sleep(time.Minute)
			synctest.Wait()
			all, told = told, nil
			return all
		}
		orphan, background := metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground
		require.NoError(w, maps.Delete(w.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &orphan}))
		require.Equal(w, []string{"DELETE configmaps owner by admin",
			"UPDATE configmaps left by generic-garbage-collector",
			"UPDATE configmaps owner by generic-garbage-collector"}, takeTold())
		require.NoError(w, maps.Delete(w.Context(), "parent", metav1.DeleteOptions{PropagationPolicy: &background}))
		require.Equal(w, []string{"DELETE configmaps parent by admin",
			"DELETE configmaps taken by generic-garbage-collector"}, takeTold())
		require.NoError(w, claims.Delete(w.Context(), "claim", metav1.DeleteOptions{}))
		require.Equal(w, []string{"DELETE persistentvolumeclaims claim by admin",
			"UPDATE persistentvolumeclaims claim by pvc-protection-controller"}, takeTold())
		require.NoError(w, w.client.CoreV1().Namespaces().Delete(w.Context(), "a", metav1.DeleteOptions{}))
		require.Equal(w, []string{"DELETE namespaces a by admin", "DELETE configmaps  by namespace-controller"},
			takeTold(), "no name, as of any deletion of a collection")
		require.JSONEq(w, `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","propagationPolicy":"Background"}`,
			string(w.last.Options.Raw))
	})
}

// TestANamespaceIsLookedForBeforeWebhooksAreAsked by an apply that creates.
func TestANamespaceIsLookedForBeforeWebhooksAreAsked(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		require.NoError(w, w.register("mutating", "m", `{name: m.example.com`+configMaps))
		_, err := w.client.CoreV1().ConfigMaps("nowhere").Patch(w.Context(), "a", types.ApplyPatchType,
			[]byte(`{"apiVersion":"v1","kind":"ConfigMap"}`), metav1.PatchOptions{FieldManager: "me"})
		require.True(w, apierrors.IsNotFound(err), err)
		require.ErrorContains(w, err, `namespaces "nowhere" not found`)
		require.Empty(w, w.takeAsked())
	})
}

// TestADeletionOfACollection tells webhooks of each object, but no name, and brings each warning once.
func TestADeletionOfACollection(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		for _, name := range []string{"a", "b"} {
			_, err := w.create(name)
			require.NoError(w, err)
		}
		require.NoError(w, w.register("validating", "v", `{name: v.example.com, rules: [{apiGroups: [""], `+
			`apiVersions: [v1], resources: [configmaps], operations: [DELETE]}]}`))
		var told []string
		w.hooks["v.example.com"] = func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var cm corev1.ConfigMap
			_ = json.Unmarshal(r.OldObject.Raw, &cm)
			told = append(told, fmt.Sprintf("%q of %s", r.Name, cm.Name))
			return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"beware"}}
		}
		var said warnings
		config := w.server.Config()
		config.WarningHandler = &said
		client, err := kubernetes.NewForConfig(config)
		require.NoError(w, err)
		require.NoError(w, client.CoreV1().ConfigMaps("default").DeleteCollection(w.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{}))
		require.Equal(w, []string{`"" of a`, `"" of b`}, told)
		require.Equal(w, warnings{"beware"}, said)
	})
}

// TestReviewsAreNumberedInTheOrderOfTheWebhooks although all are asked at once.
func TestReviewsAreNumberedInTheOrderOfTheWebhooks(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		var hooks []string
		var mu sync.Mutex
		uids := map[string]types.UID{}
		for i := range 8 {
			name := fmt.Sprintf("v%d.example.com", i)
			hooks = append(hooks, `{name: `+name+configMaps)
			w.hooks[name] = func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				mu.Lock()
				defer mu.Unlock()
				uids[name] = r.UID
				return &admissionv1.AdmissionResponse{Allowed: true}
			}
		}
		require.NoError(w, w.register("validating", "v", hooks...))
		_, err := w.create("a")
		require.NoError(w, err)
		for i := range 8 {
			require.Equal(w, types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012x", i+1)),
				uids[fmt.Sprintf("v%d.example.com", i)])
		}
	})
}

const errorOfLateWrites = "Timeout: request did not complete within requested timeout - context deadline exceeded"

// TestWritesThatTakeTooLong are answered with 504 after 34 s, and are not stored, whether failures are ignored or not.
// The deletion of a collection may take a minute.
func TestWritesThatTakeTooLong(t *testing.T) {
	for _, policy := range []string{"Fail", "Ignore"} {
		for _, kind := range []string{"mutating", "validating"} {
			t.Run(policy+" "+kind, func(t *testing.T) {
				inHookWorld(t, func(w *hookWorld) {
					slow := func(name string) string {
						return `{name: ` + name + `, failurePolicy: ` + policy + `, timeoutSeconds: 30` + configMaps
					}
					require.NoError(w, w.register("mutating", "a", slow("a.example.com")))
					require.NoError(w, w.register(kind, "b", slow("b.example.com")))
					w.server.InjectWebhooks(func(WebhookCall) Fault { return Delay(20*time.Second, 0) })
					begin := time.Now()
					_, err := w.create("a")
					require.EqualError(w, err, errorOfLateWrites)
					require.True(w, apierrors.IsTimeout(err))
					require.Equal(w, 34*time.Second, time.Since(begin))
					time.Sleep(time.Minute)
					_, stored := Get[*corev1.ConfigMap](w.server, "configmaps", "default", "a")
					require.False(w, stored)
				})
			})
		}
	}
	inHookWorld(t, func(w *hookWorld) {
		require.NoError(w, w.register("mutating", "m", `{name: m.example.com`+configMaps))
		w.server.InjectWebhooks(func(WebhookCall) Fault { return Delay(8*time.Second, 0) })
		begin := time.Now()
		create := func(timeout string) error {
			return w.client.CoreV1().RESTClient().Post().Namespace("default").Resource("configmaps").
				Param("timeout", timeout).Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).
				Do(w.Context()).Error()
		}
		require.EqualError(w, create("5s"), errorOfLateWrites)
		require.Equal(w, 5*time.Second, time.Since(begin), "the client may ask for less")
		require.EqualError(w, create("x"), `invalid timeout specified in the request URL - time: invalid duration "x"`)
		require.NoError(w, create("1h"))
	})
	inHookWorld(t, func(w *hookWorld) {
		for i := range 4 {
			_, err := w.create(fmt.Sprint(i))
			require.NoError(w, err)
		}
		require.NoError(w, w.register("validating", "v", `{name: v.example.com, timeoutSeconds: 30, rules: [{`+
			`apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [DELETE]}]}`))
		w.server.InjectWebhooks(func(WebhookCall) Fault { return Delay(25*time.Second, 0) })
		begin := time.Now()
		err := w.client.CoreV1().ConfigMaps("default").DeleteCollection(w.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{})
		require.EqualError(w, err, errorOfLateWrites)
		require.Equal(w, time.Minute, time.Since(begin))
		require.Len(w, List[*corev1.ConfigMap](w.server, "configmaps", "default"), 2)
	})
}

// TestAWebhookIsToldHowMuchTimeIsLeft for its answer, in whole seconds.
func TestAWebhookIsToldHowMuchTimeIsLeft(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		slow := `, failurePolicy: Ignore, timeoutSeconds: 30` + configMaps
		require.NoError(w, w.register("mutating", "m", `{name: a.example.com`+slow, `{name: b.example.com`+slow))
		var told []string
		w.server.webhooks = map[string]http.Handler{"hooks.example.com": http.HandlerFunc(
			func(_ http.ResponseWriter, req *http.Request) {
				w.mu.Lock()
				told = append(told, req.URL.Query().Get("timeout"))
				w.mu.Unlock()
				time.Sleep(20*time.Second + time.Millisecond)
			})}
		_, err := w.create("a")
		require.EqualError(w, err, errorOfLateWrites)
		time.Sleep(time.Minute) // until the second handler has ended
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Equal(w, []string{"30s", "14s"}, told)
	})
}

// TestARaceThatIsNeverWon ends when the time of the write is over. A webhook that writes the same object makes one.
func TestARaceThatIsNeverWon(t *testing.T) {
	for _, kind := range []string{"mutating", "validating"} {
		t.Run(kind, func(t *testing.T) {
			inHookWorld(t, func(w *hookWorld) {
				crds, err := dynamic.NewForConfig(w.server.Config())
				require.NoError(w, err)
				gvr := definitions
				gvr.Group, gvr.Resource = "corpus.example.com", "doors"
				doors := crds.Resource(gvr).Namespace("default")
				made, err := doors.Create(w.Context(), door("v1", "a", map[string]any{"width": int64(10)}),
					metav1.CreateOptions{})
				require.NoError(w, err)
				require.NoError(w, w.register(kind, "m", `{name: m.example.com, rules: [{apiGroups: ["*"], `+
					`apiVersions: ["*"], resources: ["doors"], operations: [UPDATE, DELETE]}]}`))
				n, lost := 0, 3
				w.hooks["m.example.com"] = func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					if n++; n <= lost {
						_, err := doors.Patch(w.Context(), "a", types.MergePatchType,
							fmt.Appendf(nil, `{"status":{"width":%d}}`, n), metav1.PatchOptions{}, "status")
						require.NoError(w, err)
					}
					return &admissionv1.AdmissionResponse{Allowed: true}
				}
				patch := func() (*unstructured.Unstructured, error) {
					return doors.Patch(w.Context(), "a", types.MergePatchType, []byte(`{"spec":{"width":20}}`),
						metav1.PatchOptions{})
				}
				begin := time.Now()
				changed, err := patch()
				require.NoError(w, err)
				require.EqualValues(w, 20, specOfDoor(changed)["width"])
				require.Equal(w, 4, n)
				require.Zero(w, time.Since(begin), "a race that is won in the end takes no time")

				_, err = doors.Update(w.Context(), made, metav1.UpdateOptions{})
				require.True(w, apierrors.IsConflict(err), "an update of this version: %v", err)
				lost = 1_000_000
				_, err = patch()
				require.EqualError(w, err, errorOfLateWrites)
				require.Equal(w, 34*time.Second, time.Since(begin))
				require.EqualError(w, doors.Delete(w.Context(), "a", metav1.DeleteOptions{}), errorOfLateWrites)
			})
		})
	}
}

// TestAWebhookCannotMoveAnObject into another namespace.
func TestAWebhookCannotMoveAnObject(t *testing.T) {
	inHookWorld(t, func(w *hookWorld) {
		made, err := w.create("before")
		require.NoError(w, err)
		require.NoError(w, w.register("mutating", "m", `{name: m.example.com`+configMaps))
		w.hooks["m.example.com"] = func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: true, PatchType: new(admissionv1.PatchTypeJSONPatch),
				Patch: []byte(`[{"op":"replace","path":"/metadata/namespace","value":"other"}]`)}
		}
		const want = "the namespace of the provided object does not match the namespace sent on the request"
		_, err = w.create("a")
		require.ErrorContains(w, err, want)
		require.True(w, apierrors.IsBadRequest(err), err)
		_, err = w.client.CoreV1().ConfigMaps("default").Update(w.Context(), made, metav1.UpdateOptions{})
		require.ErrorContains(w, err, want)
		require.True(w, apierrors.IsBadRequest(err), err)
	})
}
