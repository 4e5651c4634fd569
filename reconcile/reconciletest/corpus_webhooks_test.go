package reconciletest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hookServer serves the webhooks of the corpus: the real server calls it on the loopback interface, and the one in
// memory calls it as a handler. The path of an admission webhook is /PLAYER/BEHAVIOUR.
type hookServer struct {
	*httptest.Server
	mu      sync.Mutex
	players int
	told    map[string][]any // the requests of reviews, by player
}

var hooks = sync.OnceValue(func() *hookServer {
	h := &hookServer{told: map[string][]any{}}
	h.Server = httptest.NewTLSServer(h)
	return h
})

// The server is there before any test: the time of a bubble stands still while the bubble waits for a socket.
func init() { hooks() }

func (h *hookServer) host() string { u, _ := url.Parse(h.URL); return u.Host }

func (h *hookServer) bundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: h.Certificate().Raw}))
}

// join makes the name of a player, and returns what cases name in braces.
func (h *hookServer) join() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.players++
	return map[string]string{"url": h.URL, "ca": h.bundle(), "player": fmt.Sprint("player", h.players)}
}

// conversion is the part of a definition that leads to the webhook.
func (h *hookServer) conversion() string {
	return fmt.Sprintf(`
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {url: %q, caBundle: %q}
`, h.URL+"/convert", h.bundle())
}

func (h *hookServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/convert" {
		convertDoors(breakConversion)(w, req)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	player, behaviour, _ := strings.Cut(strings.Trim(req.URL.Path, "/"), "/")
	data, _ := json.Marshal(review.Request)
	var told map[string]any
	_ = json.Unmarshal(data, &told)
	delete(told, "userInfo")
	if review.Request.Name != "kube-root-ca.crt" { // which a controller makes
		h.mu.Lock()
		h.told[player] = append(h.told[player], told)
		h.mu.Unlock()
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID}
	switch behaviour {
	case "http500":
		http.Error(w, "no", http.StatusInternalServerError)
		return
	case "garbage":
		_, _ = w.Write([]byte("what?"))
		return
	case "empty":
		_, _ = w.Write([]byte("{}"))
		return
	case "slow":
		time.Sleep(3 * time.Second)
	}
	behave(behaviour, response)
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// behave fills in the answer of a webhook.
func behave(behaviour string, r *admissionv1.AdmissionResponse) {
	r.Allowed = !strings.HasPrefix(behaviour, "deny")
	patch := map[string]string{
		"label":   `[{"op":"add","path":"/metadata/labels","value":{"from":"webhook"}}]`,
		"width":   `[{"op":"replace","path":"/spec/width","value":90}]`,
		"nonsens": `[{"op":"remove","path":"/nothing"}]`, "nopatch": "x", "nooperation": "[]",
	}[behaviour]
	if patch != "" {
		r.Patch, r.PatchType = []byte(patch), new(admissionv1.PatchTypeJSONPatch)
	}
	switch behaviour {
	case "deny422":
		r.Result = &metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "no",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "data.x"}}}}
	case "deny200":
		r.Result = &metav1.Status{Code: 200, Status: metav1.StatusSuccess}
	case "warn", "denywarn":
		r.Warnings = []string{"mind the gap"}
	case "untyped":
		r.Patch = []byte("[]")
	case "uid":
		r.UID = "x"
	}
}

// breakConversion makes of an object with an annotation what a server does not accept.
func breakConversion(all []map[string]any) []map[string]any {
	m, _ := all[0]["metadata"].(map[string]any)
	annotations, _ := m["annotations"].(map[string]any)
	switch annotations["fail"] {
	case "name":
		m["name"] = "another"
	case "none":
		return nil
	}
	return all
}

// hooked registers a webhook of the namespace, and waits until the server calls it. inside is what it has beside that.
func hooked(kind, behaviour, inside string) step {
	if inside != "" {
		inside = "," + inside
	}
	return func(p *player) {
		quiet := *p
		quiet.sent = nil
		name := kind + "-" + behaviour + "-" + p.namespace
		hook := `{"name":"` + name + `.example.com","admissionReviewVersions":["v1"],"sideEffects":"None",` +
			`"clientConfig":{"url":"{{hooks.url}}/{{hooks.player}}/` + behaviour + `","caBundle":"{{hooks.ca}}"},` +
			`"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"$NS"}}` + inside + `}`
		resp := quiet.do(p.t.Context(), "POST", kind, "application/json", "application/json",
			bodyOf(kind, name, `"webhooks":[`+hook+`]`))
		resp.Body.Close()
		require.Equal(p.t, http.StatusCreated, resp.StatusCode, "%s", hook)
		p.t.Cleanup(func() {
			quiet.do(context.WithoutCancel(p.t.Context()), "DELETE", kind+"/"+name, "application/json",
				"application/json", "").Body.Close()
		})
	}
}

// calledFor makes dry runs until a webhook was called, and forgets them: a real server notices a configuration late.
func calledFor(short, body string) step {
	return func(p *player) {
		quiet := *p
		quiet.sent = nil
		require.Eventually(p.t, func() bool {
			resp := quiet.do(p.t.Context(), "POST", short+"?dryRun=All", "application/json", "application/json",
				bodyOf(short, "probe", body))
			resp.Body.Close()
			hooks().mu.Lock()
			defer hooks().mu.Unlock()
			called := len(hooks().told[p.seen["hooks"]["player"]]) > 0
			delete(hooks().told, p.seen["hooks"]["player"])
			return called
		}, time.Minute, 50*time.Millisecond)
	}
}

func attempt(one any) string {
	review := one.(map[string]any)
	return fmt.Sprint(review["operation"], review["resource"], review["subResource"], review["name"])
}

func began(one any) string {
	old, _ := one.(map[string]any)["oldObject"].(map[string]any)
	metadata, _ := old["metadata"].(map[string]any)
	return fmt.Sprint(metadata["resourceVersion"])
}

// told writes down what webhooks were told since the last time, but for attempts of an update that began from an older
// state than the last one: the cache of a real server may be late, and it tries again.
func told(p *player) {
	hooks().mu.Lock()
	defer hooks().mu.Unlock()
	all := hooks().told[p.seen["hooks"]["player"]]
	last := map[string]string{} // the version that the last attempt began from, by operation and name
	for _, one := range all {
		last[attempt(one)] = began(one)
	}
	for _, one := range all {
		if began(one) == last[attempt(one)] {
			p.log = append(p.log, entry{"  told", one})
		}
	}
	delete(hooks().told, p.seen["hooks"]["player"])
}

const (
	ofConfigMaps = `"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],` +
		`"operations":["CREATE","UPDATE","DELETE"]}]`
	ofGates = `"rules":[{"apiGroups":["corpus.example.com"],"apiVersions":["v1"],"operations":["*"],` +
		`"resources":["gates","gates/status"]}]`
	// ofProbes is about what has a label.
	ofProbes = `"objectSelector":{"matchLabels":{"l":"1"}},` + ofConfigMaps
)

// webhooksCorpus is about admission webhooks.
var webhooksCorpus = []conversation{
	{"webhooks: one that validates", []step{
		hooked("vwc", "allow", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", `"data":{"x":"1"}`), told, merge("cm/a", `{"data":{"x":"2"}}`), told,
		put("cm/a?fieldManager=me&dryRun=All", `"data":{"x":"3"}`), told, post("cm", "",
			`"metadata":{"generateName":"g-"}`),
		told, merge("cm/a", `{"data":{"x":"2"}}`), told, apply("cm/b?fieldManager=me&force=true", `"data":{"x":"1"}`),
		told,
		put("cm/c", `"data":{"x":"1"}`), told, post("cm", "a", ``), told, post("cm", "A b", ``), told,
		put("cm/a", `"metadata":{"resourceVersion":"1"}`), told,
		del("cm/a", `{"propagationPolicy":"Background"}`), told, del("cm/none", ``), told,
		del("cm?labelSelector=none%3Dsuch", ``), told, post("secrets", "s", ``), told}},
	{"webhooks: one that mutates", []step{
		hooked("mwc", "label", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", `"data":{"x":"1"}`), told, post("cm", "", `"metadata":{"generateName":"g-"}`), told,
		merge("cm/a", `{"data":{"x":"2"}}`), told, apply("cm/b?fieldManager=me", `"data":{"x":"1"}`), told, get("cm/b"),
		post("cm", "A b", ``), told, put("cm/a", `"metadata":{"resourceVersion":"1"}`), told,
		del("cm/a", ``), told}},
	{"webhooks: denied", []step{hooked("vwc", "deny", ofConfigMaps), calledFor("cm", ``), post("cm", "a", ``),
		get("cm/a")}},
	{"webhooks: denied with a code", []step{hooked("mwc", "deny422", `"failurePolicy":"Ignore",`+ofConfigMaps),
		calledFor("cm", ``), post("cm", "a", ``), get("cm/a"), put("cm/a", ``)}},
	{"webhooks: denied with success", []step{hooked("vwc", "deny200", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", ``)}},
	{"webhooks: warnings", []step{hooked("vwc", "warn", ofConfigMaps), calledFor("cm", ``), post("cm", "a", ``),
		merge("cm/a", `{"data":{"x":"2"}}`)}},
	{"webhooks: warnings of a denial", []step{hooked("vwc", "denywarn", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", ``)}},
	{"webhooks: HTTP 500", []step{hooked("vwc", "http500", ofConfigMaps), calledFor("cm", ``), post("cm", "a", ``)}},
	{"webhooks: HTTP 500, ignored", []step{hooked("mwc", "http500", `"failurePolicy":"Ignore",`+ofConfigMaps),
		calledFor("cm", ``), post("cm", "a", ``)}},
	{"webhooks: garbage", []step{hooked("vwc", "garbage", ofConfigMaps), calledFor("cm", ``), post("cm", "a", ``)}},
	{"webhooks: an empty answer", []step{hooked("mwc", "empty", ofConfigMaps), calledFor("cm", ``), post("cm", "a",
		``)}},
	{"webhooks: slow", []step{hooked("vwc", "slow", `"timeoutSeconds":1,`+ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", ``)}},
	{"webhooks: slow, ignored", []step{hooked("mwc", "slow",
		`"timeoutSeconds":1,"failurePolicy":"Ignore",`+ofConfigMaps),
		calledFor("cm", ``), post("cm", "a", ``)}},
	{"webhooks: a patch that does not fit", []step{hooked("mwc", "nonsens", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", ``), post("cm", "b", ``)}},
	{"webhooks: no patch", []step{hooked("mwc", "nopatch", ofConfigMaps), calledFor("cm", ``), post("cm", "a", ``)}},
	{"webhooks: an empty patch", []step{hooked("mwc", "nooperation", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", ``)}},
	{"webhooks: a patch without a type", []step{hooked("mwc", "untyped", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", ``)}},
	{"webhooks: a patch of one that validates", []step{hooked("vwc", "nooperation", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", ``)}},
	{"webhooks: another UID", []step{hooked("vwc", "uid", ofConfigMaps), calledFor("cm", ``), post("cm", "a", ``)}},
	{"webhooks: a patch of a deletion", []step{post("cm", "a", ``), hooked("mwc", "label", ofConfigMaps),
		calledFor("cm", ``), del("cm/a", ``), get("cm/a")}},
	{"webhooks: object selector", []step{hooked("vwc", "deny", ofProbes),
		calledFor("cm", `"metadata":{"labels":{"l":"1"}}`), post("cm", "a", ``), post("cm", "b",
			`"metadata":{"labels":{"l":"1"}}`), merge("cm/a", `{"metadata":{"labels":{"l":"1"}}}`)}},
	// A real server tells a webhook twice of an update that follows another one at once: its cache is late.
	{"webhooks: versions", []step{hooked("mwc", "width", ofGates), calledFor("gates", `"spec":{"width":1}`),
		post("gates1", "a", `"spec":{"size":1}`), told, get("gates/a"), merge("gates1/a", `{"spec":{"size":2}}`), told,
		post("gates1", "b", `"spec":{"size":1}`), merge("gates/b/status", `{"status":{"open":true}}`), told,
		del("gates1/a", ``), get("gates1/a")}},
	{"webhooks: exact versions", []step{hooked("vwc", "deny", `"matchPolicy":"Exact",`+ofGates),
		calledFor("gates", `"spec":{"width":1}`), post("gates1", "a", `"spec":{"size":1}`), told,
		post("gates", "b", `"spec":{"width":1}`), told}},
	{"webhooks: finalizers", []step{
		hooked("vwc", "allow", ofConfigMaps), calledFor("cm", ``),
		post("cm", "a", `"metadata":{"finalizers":["example.com/f"]}`), told, del("cm/a", ``), told, del("cm/a", ``),
		merge("cm/a", `{"metadata":{"finalizers":null}}`), get("cm/a")}},
	{"webhooks: configurations", []step{
		post("vwc", "c-$NS",
			`"webhooks":[{"name":"a.example.com","admissionReviewVersions":["v1"],"sideEffects":"None",`+
				`"clientConfig":{"service":{"namespace":"none","name":"such"}}}]`),
		merge("vwc/c-$NS", `{"webhooks":[]}`), merge("vwc/c-$NS", `{"metadata":{"labels":{"l":"1"}}}`),
		del("vwc/c-$NS", ``),
		post("mwc", "d-$NS", `"webhooks":[{"name":"a","admissionReviewVersions":[],"timeoutSeconds":31,`+
			`"failurePolicy":"Never","matchPolicy":"Never","reinvocationPolicy":"Always","clientConfig":{}}]`),
		post("mwc", "d-$NS", `"webhooks":[{"name":"a.example.com","admissionReviewVersions":["v1","v1"],`+
			`"sideEffects":"Some","clientConfig":{"url":"http://a/b?c#d"},"rules":[{"operations":["*","CREATE"],`+
			`"apiGroups":["*","a"],"apiVersions":[""],"resources":[]}]},{"name":"a.example.com",`+
			`"admissionReviewVersions":["v9"],"sideEffects":"None",`+
			`"clientConfig":{"service":{"name":"","namespace":"","path":"x//y","port":0}}}]`),
		apply("mwc/e-$NS?fieldManager=me", `"webhooks":[{"name":"a.example.com","admissionReviewVersions":["v1"],`+
			`"sideEffects":"None","clientConfig":{"url":"https://a.example.com"}}]`),
		apply("mwc/e-$NS?fieldManager=you", `"webhooks":[{"name":"a.example.com","clientConfig":{"caBundle":"eA=="}}]`),
		del("mwc/e-$NS", ``)}},
}
