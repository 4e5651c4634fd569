package reconciletest

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
)

// generatedKind is a kind of which requests are made up: a name of the corpus and the resource, and the inside of an
// object to which they add fields.
type generatedKind struct{ short, resource, base string }

// generatedKinds are the built-in kinds that live in a namespace. Their requests come from the list of modelled fields,
// so that a field that is added there
// is asked about, too.
var generatedKinds = []generatedKind{
	{"cm", "configmaps", ``},
	{"secrets", "secrets", ``},
	{"sa", "serviceaccounts", ``},
	{"leases", "leases", ``},
	{"svc", "services", `"spec":{"ports":[{"port":80}],"selector":{"app":"a"}}`},
	{"events", "events", `"involvedObject":{"kind":"ConfigMap","namespace":"$NS","name":"a"}`},
	{
		"pods",
		"pods",
		strings.Replace(pod(""), `{`, `{"automountServiceAccountToken":false,`, 1),
	},
	{"rs", "replicasets", workload(0)},
	{"deploy", "deployments", deployment(``)},
	{"sts", "statefulsets", `"spec":{"serviceName":"s",` + specOf(0)[1:]},
	{
		"jobs",
		"jobs",
		job(``),
	},
	{"cj", "cronjobs", cronJob(`"schedule":"* * * * *"`)},
	{"hpa", "horizontalpodautoscalers", autoscaler(``)},
	{"pvc", "persistentvolumeclaims", claim(``)},
	{"pdb", "poddisruptionbudgets", `"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"a"}}}`},
	{"quotas", "resourcequotas", `"spec":{"hard":{"pods":"3","requests.cpu":"2"}}`},
	{"limits", "limitranges", `"spec":{"limits":[{"type":"Container","default":{"cpu":"1"}}]}`},
	{"netpol", "networkpolicies", `"spec":{"podSelector":{"matchLabels":{"app":"a"}}}`},
	{"bindings", "rolebindings", `"roleRef":{"kind":"ClusterRole","name":"view"},` +
		`"subjects":[{"kind":"User","name":"u"}]`},
}

var (
	requestsOfAKind = flag.Int("generated.requests", 120, "how many requests are made up of each kind")
	generatedSeed   = flag.Uint64("generated.seed", 1, "what the requests are made up from")
)

// generate sends made-up requests to both servers and compares the answers. A request that the server in memory refuses
// does not go to the real one, so that
// both hold the same afterwards.
func generate(t *testing.T, real *rest.Config, namespace string, kind generatedKind, a *agreement) {
	server := NewServer(t, Options{Namespaces: []string{"default", "in-memory"}, CollectAfter: time.Hour})
	memory, cluster := player{quiet: true}, player{quiet: true}
	memory.connect(t, server.Config(), "in-memory")
	cluster.connect(t, real, namespace)
	seed := fnv.New64()
	fmt.Fprint(seed, kind.resource)
	g := newGenerator(server, kind, rand.New(rand.NewPCG(seed.Sum64(), *generatedSeed)))
	if kind.resource == "configmaps" || kind.resource == "serviceaccounts" { // of which controllers have made some
		cluster.do(t.Context(), "DELETE", kind.short, "application/json", "application/json", "").Body.Close()
	}
	var verbs []string
	for range *requestsOfAKind {
		r := g.request(&memory)
		resp := memory.do(t.Context(), r.method, r.short, r.media, "application/json", r.body)
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		if resp.StatusCode == http.StatusNotImplemented {
			a.count(kind.resource, r.verb, refused)
			continue
		}
		verbs = append(verbs, r.verb)
		memory.write(r, resp, data)
		resp = cluster.do(t.Context(), r.method, r.short, r.media, "application/json", r.body)
		data, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		cluster.write(r, resp, data)
	}
	want, got := cluster.transcript(), memory.transcript()
	differ := 0
	for i, verb := range verbs {
		if want[i] == got[i] {
			a.count(kind.resource, verb, agreed)
			continue
		}
		a.count(kind.resource, verb, differed)
		if differ++; differ <= 2 { // what comes later may differ because of it
			for _, before := range got[max(0, i-5):i] {
				line, _, _ := strings.Cut(before, "\n")
				t.Log("before that:", line)
			}
			assert.Equal(
				t,
				want[i],
				got[i],
				"request %d: expected is what the real server does, actual what the server in memory does",
				i,
			)
		}
	}
	require.Zero(t, differ)
}

// write adds an answer to the log of a player. That of a watch is a line for each event.
func (p *player) write(r generatedRequest, resp *http.Response, data []byte) {
	what := fmt.Sprintf("%s %s %s %s: %d", r.method, r.short, r.media, r.body, resp.StatusCode)
	for _, warning := range resp.Header.Values("Warning") {
		what += "\n  " + warning
	}
	if r.verb != "watch" {
		o := decodeJSON(p.t, data)
		p.remember(o)
		p.log = append(p.log, entry{what, o})
		return
	}
	var all []any
	for line := range strings.Lines(string(data)) {
		event := decodeJSON(p.t, []byte(line))
		p.remember(event["object"].(map[string]any))
		event["object"] = p.prune(event["object"])
		all = append(all, event)
	}
	p.log = append(p.log, entry{what, map[string]any{"events": all}})
}

// generatedRequest is a request that was made up. The body may refer to what was seen, as those of the corpus.
type generatedRequest struct{ verb, method, short, media, body string }

type generator struct {
	*rand.Rand
	server *Server
	kind   generatedKind
	r      *Resource
	paths  []string // that are modelled, in order
}

func newGenerator(s *Server, kind generatedKind, random *rand.Rand) *generator {
	g := &generator{Rand: random, server: s, kind: kind}
	for gvr, r := range s.resources.all() {
		if gvr.Resource == kind.resource {
			g.r = r
		}
	}
	g.paths = append(
		slices.Sorted(maps.Keys(modelledFields[kind.resource])),
		"metadata.labels",
		"metadata.annotations",
		"metadata.finalizers",
	)
	return g
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// request makes a request up. p is one of the players, for the names that it has seen.
func (g *generator) request(p *player) generatedRequest {
	name := pick(g, "a", "b", "c")
	at := g.kind.short + "/" + name
	seen := func(what string) bool { return p.seen[name][what] != "" }
	query := pick(g, "", "", "", "?dryRun=All", "?fieldManager=me")
	version := ""
	if seen("rv") {
		version = pick(g, "", "{{"+name+".rv}}", "{{"+name+".rv}}", "{{"+name+".rv1}}")
	}
	object := func(fields int) string { return g.object(name, version, fields) }
	// While there is no object it is made, most of the time.
	if g.server.lookup(g.r, keyOf(g.named(name))) == nil && g.IntN(5) > 0 {
		version = ""
		return generatedRequest{
			"create",
			"POST",
			g.kind.short + pick(g, "", "", "?fieldManager=me"),
			"application/json",
			object(g.IntN(4)),
		}
	}
	status := ""
	if g.r.Status && g.IntN(3) == 0 {
		status = "/status"
	}
	patch := func(fields map[string]any) string { return encoded(fields) }
	sub := strings.TrimPrefix(status+" ", "/")
	sub = strings.TrimSpace(sub)
	verb := func(v string) string {
		if sub != "" {
			return v + " status"
		}
		return v
	}
	switch g.IntN(20) {
	case 0, 1:
		return generatedRequest{"create", "POST", g.kind.short + query, "application/json", object(g.IntN(4))}
	case 2:
		return generatedRequest{verb("get"), "GET", at + status, "", ""}
	case 3:
		return generatedRequest{
			"list",
			"GET",
			g.kind.short + pick(
				g,
				"",
				"?labelSelector=app%3Da",
				"?fieldSelector=metadata.name%3Da",
				"?fieldSelector=status.phase%3DPending",
				"?fieldSelector=spec.x%3Dy",
			),
			"",
			"",
		}
	case 4, 5, 6:
		if g.kind.resource == "pods" &&
			status == "" { // admission, which is not modelled, gives pods more than these bodies have
			return generatedRequest{"get", "GET", at, "", ""}
		}
		return generatedRequest{verb("update"), "PUT", at + status + query, "application/json", object(g.IntN(4))}
	case 7, 8, 9, 10:
		return generatedRequest{
			verb("merge patch"),
			"PATCH",
			at + status + query,
			"application/merge-patch+json",
			patch(g.fields(1 + g.IntN(2))),
		}
	case 11, 12:
		return generatedRequest{
			verb("strategic patch"),
			"PATCH",
			at + status + query,
			"application/strategic-merge-patch+json",
			patch(g.fields(1 + g.IntN(2))),
		}
	case 13:
		path, value := g.field()
		pointer := "/" + strings.ReplaceAll(strings.ReplaceAll(path, "[]", ".0"), ".", "/")
		return generatedRequest{
			verb("JSON patch"),
			"PATCH",
			at + status + query,
			"application/json-patch+json",
			encoded(
				[]any{
					map[string]any{"op": pick(g, "add", "replace", "test", "remove"), "path": pointer, "value": value},
				},
			),
		}
	case 14, 15, 16:
		version = ""
		return generatedRequest{
			verb("apply"),
			"PATCH",
			at + status + "?fieldManager=" + pick(g, "one", "two") + pick(g, "", "&force=true", "&dryRun=All"),
			"application/apply-patch+yaml",
			object(g.IntN(3)),
		}
	case 17:
		if g.r.scalable() {
			return generatedRequest{
				"scale",
				"PATCH",
				at + "/scale",
				"application/merge-patch+json",
				fmt.Sprintf(`{"spec":{"replicas":%d}}`, g.IntN(4)-1),
			}
		}
		return generatedRequest{"get", "GET", at + "/scale", "", ""}
	case 18:
		return generatedRequest{
			"delete",
			"DELETE",
			at + pick(g, "", "", "?dryRun=All", "?propagationPolicy=Background", "?propagationPolicy=Orphan"),
			"application/json",
			"",
		}
	default:
		if g.IntN(8) > 0 || !seen("rv1") {
			return generatedRequest{
				"delete collection",
				"DELETE",
				g.kind.short + "?labelSelector=app%3Db",
				"application/json",
				"",
			}
		}
		return generatedRequest{
			"watch",
			"GET",
			g.kind.short + "?watch=true&timeoutSeconds=1&resourceVersion={{" + name + ".rv1}}",
			"",
			"",
		}
	}
}

func encoded(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func (g *generator) named(name string) object {
	o := g.r.make()
	o.SetName(name)
	o.SetNamespace("in-memory")
	return o
}

// object makes an object up: the base and some fields.
func (g *generator) object(name, version string, fields int) string {
	var o map[string]any
	if err := json.Unmarshal([]byte(bodyOf(g.kind.short, name, g.kind.base)), &o); err != nil {
		panic(err)
	}
	for range fields {
		path, value := g.field()
		g.set(o, strings.Split(path, "."), value)
	}
	if version != "" {
		o["metadata"].(map[string]any)["resourceVersion"] = version
	}
	return encoded(o)
}

// fields makes a part of an object up.
func (g *generator) fields(n int) map[string]any {
	o := map[string]any{}
	for range n {
		path, value := g.field()
		g.set(o, strings.Split(path, "."), value)
	}
	return o
}

// set puts a value at a path, in which elements of lists are the first ones, or new ones.
func (g *generator) set(o map[string]any, path []string, value any) {
	name, isList := strings.CutSuffix(path[0], "[]")
	if !isList {
		if len(path) == 1 {
			o[name] = value
			return
		}
		next, ok := o[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			o[name] = next
		}
		g.set(next, path[1:], value)
		return
	}
	list, _ := o[name].([]any)
	if len(path) == 1 {
		o[name] = append(list, value)
		return
	}
	if len(list) == 0 || g.IntN(6) == 0 {
		list = append(list, map[string]any{})
	}
	next, ok := list[0].(map[string]any)
	if !ok {
		next = map[string]any{}
		list[0] = next
	}
	switch name {
	case "volumes", "volumeMounts", "env": // which are merged by it
		if len(next) == 0 {
			next["name"] = pick(g, "a", "b")
		}
	case "containers":
		if len(next) == 0 {
			next["name"], next["image"] = "c", "i:1"
		}
	}
	o[name] = list
	g.set(next, path[1:], value)
}

// field chooses a field that is modelled, and makes a value up: mostly one that the server in memory does not refuse.
func (g *generator) field() (path string, value any) {
	path = pick(g, g.paths...)
	typ := typeAt(reflect.TypeOf(g.r.make()).Elem(), strings.Split(path, "."))
	if typ == nil {
		panic("there is no field " + path)
	}
	leaf := path[strings.LastIndex(path, ".")+1:]
	check, ok := modelledFields[g.kind.resource][path]
	for range 30 {
		value = g.value(typ, leaf)
		// What comes through JSON is what the check sees on the server.
		var decoded any = value
		if n, isInt := value.(int); isInt {
			decoded = int64(n)
		}
		if !ok || check(decoded) || g.IntN(60) == 0 {
			break
		}
	}
	return path, value
}

// typeAt returns the Go type of a field.
func typeAt(t reflect.Type, path []string) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) == 0 {
		return t
	}
	name, isList := strings.CutSuffix(path[0], "[]")
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			if found := typeAt(f.Type, path); found != nil {
				return found
			}
			continue
		}
		if tag != name {
			continue
		}
		next := f.Type
		if isList {
			next = next.Elem()
		}
		if next.Kind() == reflect.Map && len(path) > 1 {
			return next.Elem()
		}
		return typeAt(next, path[1:])
	}
	return nil
}

// pools are the values of text fields by their names; words are those of all others.
var (
	pools = map[string][]string{
		"name": {
			"a",
			"b",
			"c",
			"",
			"A_b",
		},
		"schedule": {"*/5 * * * *", "@daily", "x", "61 * * * *", "0 0 1 jan sun", ""},
		"timeZone": {"UTC", "Europe/Berlin", "Mars/Phobos", ""},
		"mountPath": {
			"/a",
			"/b",
			"",
		},
		"accessModes": {"ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod", "Odd"},
		"kind":        {"Deployment", "ConfigMap", "a/b", ""},
		"apiVersion":  {"apps/v1", "v1", "a/b/c", ""},
		"image": {
			"i:1",
			"i",
			"i:latest",
			"example.com:5000/a/b:2",
			"I i",
			"",
		},
		"namespace": {"$NS", "elsewhere", ""},
		"fieldPath": {"metadata.name", "status.phase", ""},
		"status":    {"True", "False", "Unknown"},
		"type": {
			"Resource",
			"Pods",
			"Utilization",
			"AverageValue",
			"Complete",
			"Failed",
			"FailureTarget",
			"SuccessCriteriaMet",
			"Suspended",
			"Available",
			"Opaque",
			"mine",
			"Recreate",
			"RollingUpdate",
			"Percent",
			"RuntimeDefault",
			"Normal",
		},
		"key": {
			"k",
			"k k",
			"",
		},
		"storageClassName":   {"", "fast", "A b"},
		"serviceName":        {"s", "t"},
		"serviceAccountName": {"sa"},
		"serviceAccount":     {"sa"},
	}
	words = []string{
		"a",
		"b",
		"",
		"Always",
		"OnFailure",
		"Never",
		"IfNotPresent",
		"Recreate",
		"RollingUpdate",
		"Default",
		"ClusterFirst",
		"TCP",
		"UDP",
		"File",
		"FallbackToLogsOnError",
		"NonIndexed",
		"Indexed",
		"Failed",
		"TerminatingOrFailed",
		"Allow",
		"Forbid",
		"Replace",
		"Max",
		"Min",
		"Disabled",
		"Pods",
		"Percent",
		"Filesystem",
		"Block",
		"Pending",
		"Running",
		"Succeeded",
		"Bound",
		"Lost",
		"Memory",
		"RuntimeDefault",
		"OnRootMismatch",
		"HTTP",
		"HTTPS",
		"v1",
		"OrderedReady",
		"Parallel",
		"Retain",
		"IfHealthyBudget",
		"AlwaysAllow",
		"/dev/termination-log",
		"Opaque",
		"cpu",
	}
	// servicePools are those of Services. What they choose a real server does not draw, and nobody else chooses it.
	servicePools = map[string][]any{
		"type":                     {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"},
		"sessionAffinity":          {"None", "ClientIP"},
		"internalTrafficPolicy":    {"Cluster", "Local"},
		"externalTrafficPolicy":    {"Cluster", "Local"},
		"trafficDistribution":      {"PreferClose", "PreferSameZone", "PreferSameNode"},
		"clusterIP":                {"", "None", "10.96.0.200", "10.96.0.201"},
		"clusterIPs[]":             {"None", "10.96.0.200", "10.96.0.201"},
		"ipFamilies[]":             {"IPv4"},
		"ipFamilyPolicy":           {"SingleStack"},
		"nodePort":                 {0, 30070, 30071, 30072, 29999},
		"healthCheckNodePort":      {0, 30073, 30074},
		"timeoutSeconds":           {1, 10800, 86400, 86401, 0},
		"externalIPs":              {"192.0.2.1", "198.51.100.7", "127.0.0.1", "x"},
		"externalName":             {"a.example.com", "b", "", "A b"},
		"loadBalancerIP":           {"192.0.2.1", ""},
		"loadBalancerClass":        {"example.com/a", "example.com/b", "a b"},
		"loadBalancerSourceRanges": {"10.0.0.0/8", " 192.0.2.0/24", "10.0.0.1/8", "x"},
		"ip":                       {"192.0.2.1", "192.0.2.2", "", "x"},
		"ipMode":                   {"VIP", "Proxy"},
		"hostname":                 {"a.example.com", "", "192.0.2.1", "A b"},
	}
	quantities = []string{"1", "500m", "1Gi", "2Gi", "0", "-1", "0.0001"}
	numbers    = []int{0, 1, 2, 3, 5, 10, 600, -1, 70000}
)

// value makes a value of a type up.
func (g *generator) value(t reflect.Type, leaf string) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if pool, ok := servicePools[leaf]; ok && g.kind.resource == "services" && t.Kind() != reflect.Slice {
		return pick(g, pool...)
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return pick(g, quantities...)
	case reflect.TypeFor[intstr.IntOrString]():
		return pick[any](g, "25%", "0%", "150%", "x", "http", 0, 1, 80, -1)
	case reflect.TypeFor[metav1.Time]():
		return pick(g, "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z")
	case reflect.TypeFor[metav1.MicroTime]():
		return "2020-01-01T00:00:00.000000Z"
	case reflect.TypeFor[metav1.LabelSelector]():
		return pick(
			g,
			map[string]any{"matchLabels": map[string]any{"app": "a"}},
			map[string]any{"matchLabels": map[string]any{"app": "b"}},
			map[string]any{},
			map[string]any{
				"matchExpressions": []any{
					map[string]any{"key": "app", "operator": pick(g, "In", "Exists", "Odd"), "values": []any{"a"}},
				},
			},
		)
	}
	switch t.Kind() {
	case reflect.Bool:
		return g.IntN(2) == 0
	case reflect.Int32, reflect.Int64:
		return pick(g, numbers...)
	case reflect.String:
		if pool, ok := pools[leaf]; ok {
			return pick(g, pool...)
		}
		return pick(g, words...)
	case reflect.Map:
		if t.Elem().Kind() == reflect.Slice { // the bytes of a Secret
			return map[string]any{pick(g, "x", "y", "x y"): "MQ=="}
		}
		if t.Elem() == reflect.TypeFor[metav1.Time]() {
			return map[string]any{"pod": "2020-01-01T00:00:00Z"}
		}
		if t.Elem() == reflect.TypeFor[resource.Quantity]() {
			return map[string]any{"cpu": pick(g, quantities...)}
		}
		return map[string]any{pick(g, "app", "app", "x", "x y"): pick(g, "a", "b")}
	case reflect.Slice:
		list := []any{}
		for range g.IntN(3) {
			v := g.value(t.Elem(), leaf)
			if leaf == "finalizers[]" || leaf == "finalizers" {
				v = pick(g, "example.com/f", "example.com/g")
			}
			if !slices.ContainsFunc(list, func(other any) bool { return reflect.DeepEqual(other, v) }) {
				list = append(list, v)
			}
		}
		return list
	case reflect.Struct:
		o := map[string]any{}
		g.fill(o, t)
		return o
	}
	panic(fmt.Sprintf("no values of %s are known", t))
}

// fill sets some fields of a structure.
func (g *generator) fill(o map[string]any, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			g.fill(o, f.Type)
		case g.IntN(2) == 0:
			o[name] = g.value(f.Type, name)
		}
	}
}

// outcome is what became of a request that was made up.
type outcome int

const (
	agreed outcome = iota
	refused
	differed
)

// agreement counts outcomes by kind and verb. Safe for concurrent use.
type agreement struct {
	mu     sync.Mutex
	counts map[string]map[string]*[3]int // guarded by mu
}

func newAgreement() *agreement { return &agreement{counts: map[string]map[string]*[3]int{}} }

func (a *agreement) count(kind, verb string, o outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts[kind] == nil {
		a.counts[kind] = map[string]*[3]int{}
	}
	if a.counts[kind][verb] == nil {
		a.counts[kind][verb] = &[3]int{}
	}
	a.counts[kind][verb][o]++
}

// String is a table of kinds and verbs: agreed, or agreed+refused, or agreed+refused!differed.
func (a *agreement) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	verbs := map[string]bool{}
	var total [3]int
	for _, counts := range a.counts {
		for verb := range counts {
			verbs[verb] = true
		}
	}
	header := slices.Sorted(maps.Keys(verbs))
	var b strings.Builder
	fmt.Fprintf(&b, "| kind | %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)+1))
	for _, kind := range slices.Sorted(maps.Keys(a.counts)) {
		fmt.Fprintf(&b, "| %s |", kind)
		for _, verb := range header {
			cell := "-"
			if n := a.counts[kind][verb]; n != nil {
				cell = fmt.Sprint(n[agreed])
				if n[refused] > 0 {
					cell += fmt.Sprintf("+%d", n[refused])
				}
				if n[differed] > 0 {
					cell += fmt.Sprintf("!%d", n[differed])
				}
				for i := range n {
					total[i] += n[i]
				}
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "%d agreed, %d refused, %d differed\n", total[agreed], total[refused], total[differed])
	return b.String()
}
