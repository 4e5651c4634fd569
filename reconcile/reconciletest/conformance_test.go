package reconciletest

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestConformance sends the requests of the corpus to the server in memory and to a real one, and compares the
// transcripts: codes, reasons, causes, objects with their generations, managers and the order of their versions, and
// what watches bring. The first part is about what the garbage collector does, among others; for the others there are
// no controllers on the real server, since there are none in memory.
func TestConformance(t *testing.T) {
	// A node would act on the pods, and the controllers of workloads on their status.
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true,
		Controllers: []string{"*", "-replicaset-controller", "-deployment-controller", "-statefulset-controller"}})
	defineCustomResources(t, cluster.Config())
	written, agreement := newAgreement(), newAgreement()
	// compare has a conversation with both servers, and once more, in another namespace, if they differ: the etcd of a
	// busy machine may be silent, and a second may end between two writes on one server alone, which the times of
	// managers show.
	compare := func(t *testing.T, c conversation, namespace func() string, p player, collectAfter time.Duration) {
		both := func() (want, got string, requests []sent) {
			want = play(t, cluster.Config(), namespace(), p, c.steps)
			memory := NewServer(t, Options{Resources: customResources(), Namespaces: []string{"default", "in-memory"},
				Uninstalled: []string{"testdata/latches.yaml"}, CollectAfter: collectAfter,
				Webhooks: map[string]http.Handler{hooks().host(): hooks()}})
			of := p
			of.sent = &requests
			return want, play(t, memory.Config(), "in-memory", of, c.steps), requests
		}
		want, got, requests := both()
		if want != got {
			want, got, requests = both()
		}
		require.Equal(t, want, got, "expected is what the real server does, actual what the server in memory does")
		for _, r := range requests {
			written.count(r.kind, r.verb, agreed)
		}
	}
	t.Run("controllers", func(t *testing.T) {
		for _, c := range slices.Concat(corpus, scaleCorpus, strictCorpus, crdCorpus, versionsCorpus,
			definitionsCorpus, webhooksCorpus) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				compare(t, c, func() string { return cluster.Namespace(t) }, player{}, 0)
			})
		}
	})
	t.Run("access", func(t *testing.T) { compareAccess(t, cluster) })
	namespaces := make(map[string]string) // a pod needs a service account, which a controller makes
	ofKinds := slices.Concat(kindsCorpus, servicesCorpus)
	twice := make(map[string]chan string)
	for _, c := range ofKinds {
		twice[c.name] = make(chan string, 2)
		twice[c.name] <- cluster.Namespace(t)
		twice[c.name] <- cluster.Namespace(t)
	}
	for _, kind := range generatedKinds {
		namespaces[kind.resource] = cluster.Namespace(t)
	}
	require.NoError(t, cluster.Kill(t.Context(), testcluster.ControllerManager))
	t.Run("kinds", func(t *testing.T) {
		for _, c := range ofKinds {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				compare(t, c, func() string { return <-twice[c.name] }, player{quiet: true}, time.Hour)
			})
		}
	})
	t.Run("generated", func(t *testing.T) {
		for _, kind := range generatedKinds {
			t.Run(kind.resource, func(t *testing.T) {
				t.Parallel()
				generate(t, cluster.Config(), namespaces[kind.resource], kind, agreement)
			})
		}
	})
	t.Logf("requests of the corpus that both servers answered alike:\n%s", written)
	t.Logf("generated requests that both servers answered alike, and those that the server in memory refused:\n%s",
		agreement)
}

// shorthand is what the corpus calls a resource.
var shorthand = map[string]struct{ path, apiVersion, kind string }{
	"cm":      {"/api/v1/namespaces/NS/configmaps", "v1", "ConfigMap"},
	"secrets": {"/api/v1/namespaces/NS/secrets", "v1", "Secret"},
	"pods":    {"/api/v1/namespaces/NS/pods", "v1", "Pod"},
	"svc":     {"/api/v1/namespaces/NS/services", "v1", "Service"},
	"sa":      {"/api/v1/namespaces/NS/serviceaccounts", "v1", "ServiceAccount"},
	"events":  {"/api/v1/namespaces/NS/events", "v1", "Event"},
	"rs":      {"/apis/apps/v1/namespaces/NS/replicasets", "apps/v1", "ReplicaSet"},
	"deploy":  {"/apis/apps/v1/namespaces/NS/deployments", "apps/v1", "Deployment"},
	"sts":     {"/apis/apps/v1/namespaces/NS/statefulsets", "apps/v1", "StatefulSet"},
	"jobs":    {"/apis/batch/v1/namespaces/NS/jobs", "batch/v1", "Job"},
	"cj":      {"/apis/batch/v1/namespaces/NS/cronjobs", "batch/v1", "CronJob"},
	"hpa": {"/apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers", "autoscaling/v2",
		"HorizontalPodAutoscaler"},
	"pdb":    {"/apis/policy/v1/namespaces/NS/poddisruptionbudgets", "policy/v1", "PodDisruptionBudget"},
	"pvc":    {"/api/v1/namespaces/NS/persistentvolumeclaims", "v1", "PersistentVolumeClaim"},
	"quotas": {"/api/v1/namespaces/NS/resourcequotas", "v1", "ResourceQuota"},
	"limits": {"/api/v1/namespaces/NS/limitranges", "v1", "LimitRange"},
	"netpol": {"/apis/networking.k8s.io/v1/namespaces/NS/networkpolicies", "networking.k8s.io/v1",
		"NetworkPolicy"},
	"bindings": {"/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings", "rbac.authorization.k8s.io/v1",
		"RoleBinding"},
	"leases":   {"/apis/coordination.k8s.io/v1/namespaces/NS/leases", "coordination.k8s.io/v1", "Lease"},
	"gadgets":  {"/apis/corpus.example.com/v1/namespaces/NS/gadgets", "corpus.example.com/v1", "Gadget"},
	"backups":  {"/apis/corpus.example.com/v1/namespaces/NS/backups", "corpus.example.com/v1", "Backup"},
	"scaled":   {"/apis/corpus.example.com/v1/namespaces/NS/scaleds", "corpus.example.com/v1", "Scaled"},
	"plain":    {"/apis/corpus.example.com/v1/namespaces/NS/plains", "corpus.example.com/v1", "Plain"},
	"latches":  {"/apis/corpus.example.com/v1/namespaces/NS/latches", "corpus.example.com/v1", "Latch"},
	"doors":    {"/apis/corpus.example.com/v1/namespaces/NS/doors", "corpus.example.com/v1", "Door"},
	"doors1":   {"/apis/corpus.example.com/v1alpha1/namespaces/NS/doors", "corpus.example.com/v1alpha1", "Door"},
	"gates":    {"/apis/corpus.example.com/v1/namespaces/NS/gates", "corpus.example.com/v1", "Gate"},
	"gates1":   {"/apis/corpus.example.com/v1alpha1/namespaces/NS/gates", "corpus.example.com/v1alpha1", "Gate"},
	"hatches":  {"/apis/corpus.example.com/v1/namespaces/NS/hatches", "corpus.example.com/v1", "Hatch"},
	"hatches1": {"/apis/corpus.example.com/v1alpha1/namespaces/NS/hatches", "corpus.example.com/v1alpha1", "Hatch"},
	"panes":    {"/apis/corpus.example.com/v1/namespaces/NS/panes", "corpus.example.com/v1", "Pane"},
	"panes1":   {"/apis/corpus.example.com/v1alpha1/namespaces/NS/panes", "corpus.example.com/v1alpha1", "Pane"},
	"crds": {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "apiextensions.k8s.io/v1",
		"CustomResourceDefinition"},
	"mwc": {"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "admissionregistration.k8s.io/v1",
		"MutatingWebhookConfiguration"},
	"vwc": {"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "admissionregistration.k8s.io/v1",
		"ValidatingWebhookConfiguration"},
	"ns":    {"/api/v1/namespaces", "v1", "Namespace"},
	"nodes": {"/api/v1/nodes", "v1", "Node"},
}

// player sends requests and writes down what comes back.
type player struct {
	t         *testing.T
	client    *http.Client
	host      string
	namespace string
	seen      map[string]map[string]string // by name of an object: rv, uid, and rv1, the first
	token     string                       // of the last list
	versions  []int64                      // of all objects that were seen
	watches   map[string]*bufio.Reader
	log       []entry
	quiet     bool // there are no controllers, so that what they do is compared, too
	sent      *[]sent
}

// sent is a request that was sent, as the table of agreement names it.
type sent struct{ kind, verb string }

// sentOf names a request.
func sentOf(method, short, contentType string) sent {
	name, rest, _ := strings.Cut(strings.TrimPrefix(short, "/"), "/")
	name, query, _ := strings.Cut(name, "?")
	kind := name
	if r, ok := shorthand[name]; ok {
		kind = r.path[strings.LastIndex(r.path, "/")+1:]
	} else if i := strings.LastIndex(short, "/"); i >= 0 {
		kind, _, _ = strings.Cut(short[i+1:], "?")
		rest = ""
	}
	object, ofObject, _ := strings.Cut(rest, "?")
	_, subresource, _ := strings.Cut(object, "/")
	verb := map[string]string{"POST": "create", "PUT": "update", "GET": "get", "DELETE": "delete"}[method]
	switch {
	case contentType == "application/apply-patch+yaml":
		verb = "apply"
	case method == "PATCH":
		verb = strings.TrimSuffix(strings.TrimPrefix(contentType, "application/"), "-patch+json") + " patch"
		verb = strings.ReplaceAll(strings.ReplaceAll(verb, "strategic-merge", "strategic"), "json ", "JSON ")
	case method == "GET" && strings.Contains(query+ofObject, "watch=true"):
		verb = "watch"
	case method == "GET" && object == "":
		verb = "list"
	case method == "DELETE" && object == "":
		verb = "delete collection"
	}
	switch subresource {
	case "":
	case "scale":
		verb = "scale"
	default:
		verb += " " + subresource
	}
	return sent{kind, verb}
}

// entry is a line of the transcript: what was asked, and what came back.
type entry struct {
	what   string
	answer any
}

func play(t *testing.T, config *rest.Config, namespace string, p player, steps []step) string {
	p.connect(t, config, namespace)
	for _, s := range steps {
		s(&p)
	}
	return strings.Join(p.transcript(), "")
}

func (p *player) connect(t *testing.T, config *rest.Config, namespace string) {
	config.UserAgent = "corpus/1"
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	p.t, p.client, p.host, p.namespace = t, client, config.Host, namespace
	p.seen, p.watches = map[string]map[string]string{"hooks": hooks().join()}, map[string]*bufio.Reader{}
}

// path makes the URL of pods/a/status?x=y.
func (p *player) path(short string) string {
	name, rest, _ := strings.Cut(short, "/")
	name, query, _ := strings.Cut(name, "?")
	if query != "" {
		query = "?" + query
	}
	if rest != "" {
		rest = "/" + rest
	}
	path := name // what is no shorthand is a path
	if r, ok := shorthand[name]; ok {
		path = r.path
	} else {
		path = "/" + name
	}
	return p.host + strings.ReplaceAll(path+rest+query, "NS", p.namespace)
}

var reference = regexp.MustCompile(`\{\{([^}]*)\}\}`)

// fill replaces {{a.rv}}, {{a.rv1}}, {{a.uid}} and {{continue}} by what was seen.
func (p *player) fill(s string) string {
	s = strings.ReplaceAll(s, "$NS", p.namespace)
	return reference.ReplaceAllStringFunc(s, func(m string) string {
		m = strings.Trim(m, "{}")
		if m == "continue" {
			return p.token
		}
		name, what, _ := strings.Cut(m, ".")
		v := p.seen[name][what]
		require.NotEmpty(p.t, v, "nothing seen of %s", m)
		return v
	})
}

func (p *player) do(ctx context.Context, method, short, contentType, accept, body string) *http.Response {
	if p.sent != nil {
		*p.sent = append(*p.sent, sentOf(method, short, contentType))
	}
	req, err := http.NewRequestWithContext(ctx, method, p.fill(p.path(short)), strings.NewReader(p.fill(body)))
	require.NoError(p.t, err)
	if body == "" {
		req.Body = nil
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "corpus/1")
	resp, err := p.client.Do(req)
	require.NoError(p.t, err)
	return resp
}

// remember keeps the version and UID of an object, and the token of a list.
func (p *player) remember(o map[string]any) {
	m, _ := o["metadata"].(map[string]any)
	if c, ok := m["continue"].(string); ok {
		p.token = c
	}
	if rv, err := strconv.ParseInt(fmt.Sprint(m["resourceVersion"]), 10, 64); err == nil && m["uid"] != nil {
		p.versions = append(p.versions, rv)
	}
	name, _ := m["name"].(string)
	if _, isList := o["items"]; isList {
		name = "list"
	}
	if name == "" {
		return
	}
	if p.seen[name] == nil {
		p.seen[name] = map[string]string{}
	}
	if rv, ok := m["resourceVersion"].(string); ok {
		p.seen[name]["rv"] = rv
		if p.seen[name]["rv1"] == "" {
			p.seen[name]["rv1"] = rv
		}
	}
	if uid, ok := m["uid"].(string); ok {
		p.seen[name]["uid"] = uid
	}
}

func decodeJSON(t *testing.T, data []byte) map[string]any {
	var o map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(t, d.Decode(&o), "%s", data)
	return o
}

// step is a request, or something else that a case does.
type step func(*player)

func request(method, short, contentType, body string) step {
	return func(p *player) {
		resp := p.do(p.t.Context(), method, short, contentType, "application/json", body)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		require.NoError(p.t, err)
		o := decodeJSON(p.t, data)
		p.remember(o)
		what := fmt.Sprintf("%s %s: %d", method, short, resp.StatusCode)
		for _, warning := range resp.Header.Values("Warning") {
			what += "\n  " + warning
		}
		p.log = append(p.log, entry{what, o})
	}
}

func get(short string) step          { return request("GET", short, "application/json", "") }
func del(short, options string) step { return request("DELETE", short, "application/json", options) }
func jsonPatch(short, body string) step {
	return request("PATCH", short, "application/json-patch+json", body)
}
func merge(short, body string) step {
	return request("PATCH", short, "application/merge-patch+json", body)
}
func strategic(short, body string) step {
	return request("PATCH", short, "application/strategic-merge-patch+json", body)
}

// raw sends a request with headers of its own; only the code and the type of the answer are compared.
func raw(method, short, contentType, accept, body string) step {
	return func(p *player) {
		resp := p.do(p.t.Context(), method, short, contentType, accept, body)
		defer resp.Body.Close()
		p.log = append(p.log, entry{fmt.Sprintf("%s %s: %d %s", method, short, resp.StatusCode,
			resp.Header.Get("Content-Type")), nil})
	}
}

// bodyOf makes JSON of an object of a resource; fields is the inside of an object, in JSON.
func bodyOf(resource, name, fields string) string {
	r := shorthand[resource]
	var o map[string]any
	if err := json.Unmarshal([]byte("{"+fields+"}"), &o); err != nil {
		panic(err.Error() + ": " + fields)
	}
	m, _ := o["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	if name != "" {
		m["name"] = name
	}
	o["metadata"], o["apiVersion"], o["kind"] = m, r.apiVersion, r.kind
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func resourceOf(short string) string {
	name, _, _ := strings.Cut(short, "/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

func post(short, name, fields string) step {
	return request("POST", short, "application/json", bodyOf(resourceOf(short), name, fields))
}

// put replaces the object that the path names.
func put(short, fields string) step {
	parts := strings.Split(strings.Split(short, "?")[0], "/")
	return request("PUT", short, "application/json",
		bodyOf(parts[0], strings.Replace(parts[1], "NS", "$NS", 1), fields))
}

func apply(short, fields string) step {
	parts := strings.Split(strings.Split(short, "?")[0], "/")
	return request("PATCH", short, "application/apply-patch+yaml",
		bodyOf(parts[0], strings.Replace(parts[1], "NS", "$NS", 1), fields))
}

// until repeats a GET until it has that code, which needs others to act; then it is written down.
func until(code int, short string) step {
	return func(p *player) {
		polls := *p
		polls.sent = nil // how many it takes says nothing
		require.Eventually(p.t, func() bool {
			resp := polls.do(p.t.Context(), "GET", short, "application/json", "application/json", "")
			resp.Body.Close()
			return resp.StatusCode == code
		}, time.Minute, 20*time.Millisecond, "GET %s is %d", short, code)
		get(short)(p)
	}
}

// watching begins a watch, under a name.
func watching(name, short string) step {
	return func(p *player) {
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
		p.t.Cleanup(cancel)
		separator := "?"
		if strings.Contains(short, "?") {
			separator = "&"
		}
		resp := p.do(ctx, "GET", short+separator+"watch=true", "application/json", "application/json", "")
		p.t.Cleanup(func() { resp.Body.Close() })
		p.log = append(p.log, entry{fmt.Sprintf("WATCH %s: %d", short, resp.StatusCode), nil})
		p.watches[name] = bufio.NewReader(resp.Body)
	}
}

// events writes down the next n events of a watch; bookmarks that come by the clock are left out.
func events(name string, n int) step {
	return func(p *player) {
		for i := 0; i < n; {
			line, err := p.watches[name].ReadBytes('\n')
			require.NoError(p.t, err, "event %d of watch %s", i+1, name)
			e := decodeJSON(p.t, line)
			o := e["object"].(map[string]any)
			if m, _ := o["metadata"].(map[string]any); e["type"] == "BOOKMARK" && m["annotations"] == nil {
				continue
			}
			p.remember(o)
			p.log = append(p.log, entry{fmt.Sprintf("  %s of %s", e["type"], name), o})
			i++
		}
	}
}

// ends expects that a watch is over.
func ends(name string) step {
	return func(p *player) {
		_, err := p.watches[name].ReadBytes('\n')
		require.ErrorIs(p.t, err, io.EOF)
		p.log = append(p.log, entry{name + " has ended", nil})
	}
}

// transcript prints the log so that two of the same are equal: versions by their order, UIDs by their first appearance,
// times as such.
func (p *player) transcript() (lines []string) {
	n := &normalizer{player: p, uids: map[string]string{}, drawn: map[string]string{}}
	n.versions = slices.Compact(slices.Sorted(slices.Values(p.versions)))
	for _, e := range p.log {
		line := e.what + "\n"
		if e.answer != nil {
			data, err := json.MarshalIndent(walk(p.prune(e.answer), n.normalize), "", "  ")
			require.NoError(p.t, err)
			line += string(data) + "\n"
		}
		lines = append(lines, line)
	}
	return lines
}

// walk returns a copy of a tree in which each leaf is what fn makes of it.
func walk(v any, fn func(key string, v any) any) any { return walkAt("", v, fn) }

func walkAt(key string, v any, fn func(key string, v any) any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) { // in order, since fn numbers what it finds
			m[fmt.Sprint(fn("", k))] = walkAt(k, v[k], fn)
		}
		return m
	case []any:
		s := make([]any, len(v))
		for i, e := range v {
			s[i] = walkAt(key, e, fn)
		}
		return s
	default:
		return fn(key, v)
	}
}

type normalizer struct {
	*player
	uids     map[string]string
	drawn    map[string]string // addresses and ports of nodes, by what they are
	versions []int64           // of all objects, in order
}

var (
	generated = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT`)
	number    = regexp.MustCompile(`\d{3,}`)
	uuid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

func (n *normalizer) normalize(key string, v any) any {
	if number, ok := v.(json.Number); ok && (key == "nodePort" || key == "healthCheckNodePort") {
		if port, err := number.Int64(); err == nil && port >= drawnPort && port <= lastPort {
			return n.instead("port", string(number))
		}
	}
	s, ok := v.(string)
	if !ok {
		return v
	}
	switch {
	case key == "resourceVersion":
		// A list may have any version since the last write: others write, too.
		if rv, err := strconv.ParseInt(s, 10, 64); err == nil {
			return fmt.Sprintf("version %d", sort.Search(len(n.versions),
				func(i int) bool { return n.versions[i] > rv }))
		}
	case key == "continue":
		return "token"
	case timestamp.MatchString(s):
		return "time"
	}
	s = strings.ReplaceAll(s, n.namespace, "NS")
	s = uuid.ReplaceAllStringFunc(s, func(uid string) string {
		if n.uids[uid] == "" {
			n.uids[uid] = fmt.Sprintf("uid %d", len(n.uids)+1)
		}
		return n.uids[uid]
	})
	switch key {
	case "clusterIP", "clusterIPs": // another one on each server
		if strings.HasPrefix(s, "10.96.") && !strings.HasPrefix(s, "10.96.0.") {
			s = n.instead("address", s)
		}
	case "message":
		s = number.ReplaceAllString(s, "NUMBER")
	case "name":
		s = generated.ReplaceAllString(s, "-GENERATED")
	}
	return s
}

// instead returns what stands for something that each server draws for itself.
func (n *normalizer) instead(what, drawn string) string {
	if n.drawn[drawn] == "" {
		n.drawn[drawn] = fmt.Sprintf("%s %d", what, len(n.drawn)+1)
	}
	return n.drawn[drawn]
}

// prune takes out of an answer what is not modelled and not promised: texts for people, and what admission plugins put
// into pods.
func (p *player) prune(answer any) any {
	o, ok := answer.(map[string]any)
	if !ok {
		return answer
	}
	o = maps.Clone(o)
	if items, ok := o["items"].([]any); ok {
		var pruned []any
		for _, i := range items {
			item := maps.Clone(i.(map[string]any))
			item["kind"] = strings.TrimSuffix(o["kind"].(string), "List")
			pruned = append(pruned, p.prune(item))
		}
		o["items"] = pruned
		return o
	}
	if o["kind"] == "Status" {
		delete(o, "message")
		if d, ok := o["details"].(map[string]any); ok {
			d = maps.Clone(d)
			var causes []any
			list, _ := d["causes"].([]any)
			for _, c := range list {
				c := maps.Clone(c.(map[string]any))
				delete(c, "message")
				if !slices.ContainsFunc(causes, func(other any) bool { return reflect.DeepEqual(other, any(c)) }) {
					causes = append(causes, c) // some checks are made twice
				}
			}
			if causes != nil {
				// the order is a map's
				slices.SortStableFunc(causes, func(a,
					b any) int {
					return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
				})
				d["causes"] = causes
			}
			o["details"] = d
		}
		return o
	}
	if o["kind"] == "Deployment" && !p.quiet { // whose controller is at work
		delete(o, "status")
		m := maps.Clone(o["metadata"].(map[string]any))
		m["managedFields"] = slices.DeleteFunc(slices.Clone(m["managedFields"].([]any)),
			func(e any) bool { return e.(map[string]any)["subresource"] == "status" })
		o["metadata"] = m
	}
	if m, ok := o["metadata"].(map[string]any); ok {
		// they are in the order of seconds, and both servers do not begin a second with the same request
		if entries, ok := m["managedFields"].([]any); ok {
			m, entries = maps.Clone(m), slices.Clone(entries)
			slices.SortStableFunc(entries, func(a, b any) int { return strings.Compare(timeless(a), timeless(b)) })
			m["managedFields"], o["metadata"] = entries, m
		}
	}
	if spec, ok := o["spec"].(map[string]any); ok && o["kind"] == "Pod" {
		spec = maps.Clone(spec)
		for _, k := range []string{"serviceAccount", "serviceAccountName", "tolerations", "volumes", "priority",
			"preemptionPolicy"} {
			delete(spec, k)
		}
		var containers []any
		list, _ := spec["containers"].([]any)
		for _, c := range list {
			c := maps.Clone(c.(map[string]any))
			delete(c, "volumeMounts")
			containers = append(containers, c)
		}
		spec["containers"] = containers
		o["spec"] = spec
	}
	return o
}

// timeless prints an entry of managed fields without its time.
func timeless(entry any) string {
	e := maps.Clone(entry.(map[string]any))
	delete(e, "time")
	return fmt.Sprint(e)
}

// customResources are those of the corpus, for the server in memory; defineCustomResources makes the same on a real
// one.
func customResources() []Resource {
	gv := "corpus.example.com"
	gadgets := Resource{Kind: "Gadget", Status: true}
	gadgets.Group, gadgets.Version, gadgets.GroupVersionResource.Resource = gv, "v1", "gadgets"
	plain := Resource{Kind: "Plain"}
	plain.Group, plain.Version, plain.GroupVersionResource.Resource = gv, "v1", "plains"
	scaled := Resource{Kind: "Scaled", Status: true,
		Scale: &ScalePaths{".spec.count", ".status.count", ".status.selector"}}
	scaled.Group, scaled.Version, scaled.GroupVersionResource.Resource = gv, "v1", "scaleds"
	backups, err := ReadCRDs(backupsManifest)
	if err != nil {
		panic(err)
	}
	manifest := string(twoVersions(""))
	for _, names := range [][]string{{"doors", "gates", "door", "gate", "Door", "Gate"},
		{"doors", "hatches", "door", "hatch", "Door", "Hatch"}, {"doors", "panes", "door", "pane", "Door", "Pane"}} {
		manifest += "\n---\n" + strings.NewReplacer(names...).Replace(string(twoVersions(hooks().conversion())))
	}
	twice, err := ReadCRDs([]byte(manifest))
	if err != nil {
		panic(err)
	}
	return slices.Concat([]Resource{gadgets, plain, scaled}, backups, twice)
}

//go:embed testdata/backups.yaml
var backupsManifest []byte

func defineCustomResources(t *testing.T, config *rest.Config) {
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	for _, r := range customResources() {
		status := ""
		if r.Status {
			status = `"subresources":{"status":{}},`
		}
		if r.Scale != nil {
			status = fmt.Sprintf(`"subresources":{"status":{},"scale":{"specReplicasPath":%q,`+
				`"statusReplicasPath":%q,"labelSelectorPath":%q}},`,
				r.Scale.SpecReplicas, r.Scale.StatusReplicas, r.Scale.Selector)
		}
		definition := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
			"metadata":{"name":"%[1]s.corpus.example.com"},
			"spec":{"group":"corpus.example.com","scope":"Namespaced","names":{"plural":"%[1]s","kind":%[2]q},
			"versions":[{"name":"v1","served":true,"storage":true,%[3]s"schema":{"openAPIV3Schema":{"type":"object",
				"x-kubernetes-preserve-unknown-fields":true}}}]}}`,
			r.GroupVersionResource.Resource, r.Kind, status)
		if r.of != nil {
			manifest, err := json.Marshal(r.of.document)
			require.NoError(t, err)
			definition = string(manifest)
		}
		resp, err := client.Post(config.Host+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			"application/json", strings.NewReader(definition))
		require.NoError(t, err)
		resp.Body.Close()
		require.Contains(t, []int{http.StatusCreated, http.StatusConflict}, resp.StatusCode)
		require.Eventually(t, func() bool {
			resp, err := client.Get(config.Host + "/apis/corpus.example.com/v1/" + r.GroupVersionResource.Resource)
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}, time.Minute, 50*time.Millisecond)
	}
}
