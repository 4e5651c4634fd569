package reconciletest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// snapshot is what the server holds, without what may differ between two runs that end alike: each object as its lines
// of "path = value", under what it is called.
type snapshot map[string][]string

// touchedBy is the annotation of the third party.
const touchedBy = "reconciletest.thermostat-go.github.com/touched"

var (
	uidText = regexp.MustCompile(`[0-9a-f]{8}` + uidMiddle + `[0-9a-f]{12}`)
	// worldIP is an address that the world gives to pods and load balancers, in the order in which they start.
	worldIP = regexp.MustCompile(`\b198\.1[89]\.\d{1,3}\.\d{1,3}\b`)
	// drawnText may be what the server has drawn for a Service: an address, or a port of the nodes.
	drawnText = regexp.MustCompile(`\b(10\.\d{1,3}\.\d{1,3}\.\d{1,3}|3[0-2]\d{3})\b`)
	// nameText is a name of an object, or a word.
	nameText = regexp.MustCompile(`[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?`)
	// generatedText is how a name ends that a server has generated.
	generatedText = regexp.MustCompile(fmt.Sprintf("[%s]{%d}$", generatedAlphabet, generatedLength))
	timeText      = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
)

// uidMiddle and worldNet are in each text that uidText and worldIP match: to look for them is much faster.
const (
	uidMiddle = "-0000-4000-8000-"
	worldNet  = "198.1"
)

// kept is an object of a server, which taking a snapshot changes.
type kept struct {
	resource schema.GroupResource
	object   *unstructured.Unstructured
}

// snapshotOf takes one of a run.
func snapshotOf(r *run) snapshot {
	return takeSnapshot(r.server, r.gates.held(), r.scenario.mask)
}

// mask removes from an object what is not compared.
func (s *Scenario) mask(o *unstructured.Unstructured) {
	if s.Mask != nil {
		s.Mask(o)
	}
	if s.World != nil && len(o.Object) > 0 {
		s.World.mask(o)
	}
}

// takeSnapshot takes one, with what is held outside. Leases and Events are left out.
func takeSnapshot(s *Server, outside map[string]map[string]any, mask func(*unstructured.Unstructured)) snapshot {
	return snapshotFrom(s, holds(s), outside, mask)
}

// holds returns copies of the objects of a server, but for Leases and Events.
func holds(s *Server) (all []kept) {
	for _, r := range kindsOf(s) {
		switch r.GroupResource().String() {
		case "leases.coordination.k8s.io", "events", "events.events.k8s.io":
			continue
		}
		for _, o := range s.store.list(r.GroupResource(), s.Version()) {
			if s.first[o.GetUID()] {
				o = withoutSchemas(o.(*unstructured.Unstructured))
			}
			all = append(all, kept{r.GroupResource(), treeOf(o)})
		}
	}
	return all
}

// standIns are what a snapshot says for what may differ between two runs that end alike.
type standIns struct {
	names     map[string]string // of UIDs, and of who has an address, or a port of the nodes
	drawn     bool              // there are addresses or ports of Services among them
	revisions map[types.NamespacedName]string
	made      *strings.Replacer // of names that are generated, and of hashes
}

func standInsFor(s *Server, all []kept, mask func(*unstructured.Unstructured)) standIns {
	hashes := hashNames(all, mask)
	made, hashed := maps.Clone(hashes), replacer(hashes)
	w := standIns{names: map[string]string{}, revisions: revisionNames(all)}
	for _, h := range all {
		u := h.object
		name := hashed.Replace(alikeName(s, h.resource.String(), u))
		if name != u.GetName() {
			made[u.GetName()] = name
		}
		if isRevision(u) {
			name = cmp.Or(w.revisions[types.NamespacedName{Namespace: u.GetNamespace(), Name: name}], name)
		}
		if ip, ok, _ := unstructured.NestedString(u.Object, "status", "podIP"); ok {
			w.names[ip] = fmt.Sprintf("<ip of %s %s/%s>", h.resource.Resource, u.GetNamespace(), name)
		}
		for value, what := range drawnBy(s, h) {
			w.drawn = true
			w.names[value] = fmt.Sprintf("<%s of %s %s/%s>", what, h.resource.Resource, u.GetNamespace(), name)
		}
		w.names[string(u.GetUID())] = fmt.Sprintf("<uid of %s %s/%s>", h.resource.Resource, u.GetNamespace(), name)
	}
	w.made = replacer(made)
	return w
}

// text replaces what may differ in a text.
func (w standIns) text(v string) string {
	if strings.Contains(v, uidMiddle) {
		v = uidText.ReplaceAllStringFunc(v, func(uid string) string { return cmp.Or(w.names[uid], "<uid of nothing>") })
	}
	if w.drawn {
		v = drawnText.ReplaceAllStringFunc(v, func(drawn string) string { return cmp.Or(w.names[drawn], drawn) })
	}
	if strings.Contains(v, worldNet) {
		v = worldIP.ReplaceAllStringFunc(v, func(ip string) string { return cmp.Or(w.names[ip], "<ip of nothing>") })
	}
	if v = w.made.Replace(v); !strings.Contains(v, ":") {
		return v
	}
	return timeText.ReplaceAllString(v, "<time>")
}

// drawnBy returns what the server, or the world, has drawn for a Service, and what it is.
func drawnBy(server *Server, h kept) map[string]string {
	all := map[string]string{}
	var s corev1.Service
	if h.resource != corev1.Resource("services") ||
		runtime.DefaultUnstructuredConverter.FromUnstructured(h.object.Object, &s) != nil {
		return all
	}
	address, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err == nil && server.services.hasDrawn(drawn{address: address}) {
		all[s.Spec.ClusterIP] = "address"
	}
	if port := s.Spec.HealthCheckNodePort; server.services.hasDrawn(drawn{port: port}) {
		all[fmt.Sprint(port)] = "port for health checks"
	}
	for i, p := range s.Spec.Ports {
		if server.services.hasDrawn(drawn{port: p.NodePort}) {
			all[fmt.Sprint(p.NodePort)] = fmt.Sprintf("port %d on nodes", i)
		}
	}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if worldIP.MatchString(ingress.IP) {
			all[ingress.IP] = "load balancer"
		}
	}
	return all
}

// textIn is text, for a namespace, in which revisions may be named.
func (w standIns) textIn(namespace string) func(v string) string {
	if len(w.revisions) == 0 {
		return w.text
	}
	return func(v string) string {
		return w.text(nameText.ReplaceAllStringFunc(v, func(name string) string {
			return cmp.Or(w.revisions[types.NamespacedName{Namespace: namespace, Name: name}], name)
		}))
	}
}

// key is what a snapshot calls an object. Several may be called alike.
func (w standIns) key(h kept) string {
	if isRevision(h.object) {
		return w.textIn(h.object.GetNamespace())(h.String())
	}
	return w.text(h.String())
}

// snapshotFrom takes a snapshot of the objects that a server holds.
func snapshotFrom(s *Server, all []kept, outside map[string]map[string]any,
	mask func(*unstructured.Unstructured)) snapshot {
	snap := snapshot{}
	for _, e := range entriesOf(s, all, outside, mask) {
		snap[e.key] = e.lines
	}
	return snap
}

// keyed is an object in a snapshot: what it is called there, and by its own name.
type keyed struct {
	key, own string
	lines    []string
}

// entriesOf returns the entries of a snapshot of the objects that a server holds.
func entriesOf(s *Server, all []kept, outside map[string]map[string]any,
	mask func(*unstructured.Unstructured)) (entries []keyed) {
	w, namesakes := standInsFor(s, all, mask), s.store.namesakes()
	for _, h := range all {
		u := h.object
		namespace, generation, uid := u.GetNamespace(), u.GetGeneration(), u.GetUID()
		e := keyed{key: w.key(h), own: h.String()}
		named := ownName(u, namesakes, mask)
		mask(u)
		if len(u.Object) == 0 {
			continue
		}
		stripMetadata(u, namesakes[uid])
		if e.lines = flattened(u.Object, generation, w.textIn(namespace)); named != "" {
			e.lines = append(e.lines, ".metadata.name = "+named)
			slices.Sort(e.lines)
		}
		entries = append(entries, e)
	}
	for _, name := range slices.Sorted(maps.Keys(outside)) {
		entries = append(entries, keyed{w.text(name), name, flattened(outside[name], 0, w.textIn(""))})
	}
	numberAlike(entries)
	return entries
}

// String names an object as a finding does.
func (h kept) String() string {
	return fmt.Sprintf("%s %s/%s", h.resource, h.object.GetNamespace(), h.object.GetName())
}

// alikeName returns what stands for the name of an object in a snapshot. Two names that the server has generated from
// one prefix are alike, also if a program gives one that it has seen to an object of its kind that it makes anew, and
// so are those that a program has drawn itself. A name that a user or a program has chosen stands for itself, also if
// the object says what it begins with, as the pods of a StatefulSet do.
func alikeName(s *Server, resource string, u *unstructured.Unstructured) string {
	name := u.GetName()
	prefix := prefixOf(s, resource, u.GetNamespace(), name)
	if begins := u.GetGenerateName(); prefix == "" && begins != "" && isGenerated(name, begins) {
		prefix = begins // by another server, or by the program itself
	}
	if prefix != "" {
		name = prefix + "*"
	}
	if isApplied(u) {
		return name
	}
	return withoutDrawn(s.drawn, resource, name)
}

// isGenerated reports whether a name may be generated, by the server or by a program, from how it begins. A number
// after that is chosen.
func isGenerated(name, begins string) bool {
	if rest, ok := strings.CutPrefix(name, begins); ok {
		return !isNumber(rest)
	}
	// A server cuts off what is too long.
	return generatedText.MatchString(name) && strings.HasPrefix(begins, name[:len(name)-generatedLength])
}

// revisionNames returns what stands for the names of ControllerRevisions that end in their numbers: the rank among
// those whose names begin alike, since the number itself counts what there has been. A name without a namespace is for
// what has none; of two in several namespaces it is the last one.
func revisionNames(all []kept) map[types.NamespacedName]string {
	numbers := map[types.NamespacedName][]int64{} // by namespace and by how the names begin
	for _, h := range all {
		if begins, number, ok := numbered(h.object); ok {
			numbers[begins] = append(numbers[begins], number)
		}
	}
	names := map[types.NamespacedName]string{}
	for _, h := range all {
		begins, number, ok := numbered(h.object)
		if !ok {
			continue
		}
		alike := numbers[begins]
		slices.Sort(alike)
		name := fmt.Sprintf("%s-<revision %d of %d>", begins.Name, slices.Index(alike, number)+1, len(alike))
		names[types.NamespacedName{Namespace: h.object.GetNamespace(), Name: h.object.GetName()}] = name
		names[types.NamespacedName{Name: h.object.GetName()}] = name
	}
	return names
}

// numbered returns how the name of a ControllerRevision begins, and the number that it ends in.
func numbered(u *unstructured.Unstructured) (begins types.NamespacedName, number int64, ok bool) {
	if !isRevision(u) {
		return begins, 0, false
	}
	number, _, _ = unstructured.NestedInt64(u.Object, "revision")
	name, ok := strings.CutSuffix(u.GetName(), fmt.Sprintf("-%d", number))
	return types.NamespacedName{Namespace: u.GetNamespace(), Name: name}, number, ok
}

func isRevision(u *unstructured.Unstructured) bool {
	kind := u.GroupVersionKind()
	return kind.Group == appsv1.GroupName && kind.Kind == "ControllerRevision"
}

// replacer replaces names. A name may begin with another one, which then comes later.
func replacer(by map[string]string) *strings.Replacer {
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(len(b)-len(a), cmp.Compare(a, b))
	}) {
		all = append(all, name, by[name])
	}
	return strings.NewReplacer(all...)
}

// flattened returns the lines of a tree, sorted.
func flattened(tree map[string]any, generation int64, text func(string) string) (lines []string) {
	flatten("", tree, generation, text, &lines)
	slices.Sort(lines)
	return lines
}

// numberAlike gives entries that are called alike their keys, in the order of their contents: several objects may have
// one generated name, and several entries of an API may be named by them, or by objects that are gone. The first one
// has no number if it is no generated name.
func numberAlike(entries []keyed) {
	groups := map[string][]*keyed{}
	for i := range entries {
		base := strings.TrimRight(entries[i].key, "*")
		groups[base] = append(groups[base], &entries[i])
	}
	for base, group := range groups {
		plain := slices.ContainsFunc(group, func(e *keyed) bool { return e.key == base })
		slices.SortStableFunc(group, func(a, b *keyed) int { return slices.Compare(a.lines, b.lines) })
		for i, e := range group {
			if e.key = base; i > 0 || !plain {
				e.key = fmt.Sprintf("%s(%d)", base, i+1)
			}
		}
	}
}

// stripMetadata removes what the server makes, what only counts, and the name, which the key has. The generation
// stays, for flatten. namesake: another object has had the name, and a collision with what it has left may be counted.
func stripMetadata(u *unstructured.Unstructured, namesake bool) {
	if isRevision(u) {
		delete(u.Object, "revision") // which counts the revisions that there have been
	}
	if status, ok := u.Object["status"].(map[string]any); len(status) > 0 && ok && namesake {
		status["collisionCount"] = mayDiffer // which controllers of others call so, too
	}
	if name := u.GetName(); name != "" { // which a revision may have, too
		for _, path := range [][]string{{"spec", "hostname"}, {"metadata", "labels", appsv1.StatefulSetPodNameLabel}} {
			if own, _, _ := unstructured.NestedString(u.Object, path...); own == name {
				_ = unstructured.SetNestedField(u.Object, "<its name>", path...) // there is such a path
			}
		}
	}
	metadata, _ := u.Object["metadata"].(map[string]any)
	for _, field := range []string{"name", "uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	delete(metadata, "generateName")
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		delete(annotations, appsv1.DeprecatedTemplateGeneration) // which counts changes, as the generation does
		// Whether it is there says what the controller has seen, and not what there is.
		delete(annotations, corev1.EndpointsLastChangeTriggerTime)
		if delete(annotations, touchedBy); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
}

// flatten appends the lines of a tree.
func flatten(path string, v any, generation int64, text func(string) string, lines *[]string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			flatten(path+"."+text(key), value, generation, text, lines)
		}
		if len(v) == 0 && path != ".metadata" { // every object has that
			*lines = append(*lines, path+" = {}")
		}
	case []any:
		names := typesOf(v)
		for i, value := range v {
			flatten(fmt.Sprintf("%s[%s]", path, names[i]), value, generation, text, lines)
		}
		if len(v) == 0 {
			*lines = append(*lines, path+" = []")
		}
	case string:
		*lines = append(*lines, path+" = "+text(v))
	default:
		switch number := fmt.Sprint(v); {
		case path == ".metadata.generation":
		case strings.HasSuffix(path, ".observedGeneration") && number == fmt.Sprint(generation):
			*lines = append(*lines, path+" = <current>")
		case strings.HasSuffix(path, ".observedGeneration"):
			*lines = append(*lines, path+" = <not current>")
		default:
			data, err := json.Marshal(v)
			if err != nil {
				data = []byte(number)
			}
			*lines = append(*lines, path+" = "+text(string(data)))
		}
	}
}

// typesOf returns what the elements of a list are called: by their numbers, or by their types if each has one of its
// own, as conditions have, whose order says nothing.
func typesOf(list []any) []string {
	names, seen := make([]string, len(list)), map[string]bool{}
	for i, element := range list {
		fields, _ := element.(map[string]any)
		name, _ := fields["type"].(string)
		names[i], seen[name] = name, true
	}
	if len(seen) < len(list) || seen[""] {
		for i := range list {
			names[i] = fmt.Sprint(i)
		}
	}
	return names
}

// difference is one object, or one field of it, in which two ends are not alike: A, the end of the run in which nothing
// goes wrong, and B, that of another one. The path is empty if only one of the two has the object. A value is empty if
// that end has none.
type difference struct {
	object, path, a, b string
	foreign            bool // the programs have made no object of this resource, as far as is known
}

// String says it without a word of which is right.
func (d difference) String() string {
	switch {
	case d.path == "" && d.b == "":
		return d.object + ": only in A"
	case d.path == "":
		return d.object + ": only in B"
	case d.a == "":
		return fmt.Sprintf("%s %s: A has nothing, B has %s", d.object, d.path, d.b)
	case d.b == "":
		return fmt.Sprintf("%s %s: A has %s, B has nothing", d.object, d.path, d.a)
	}
	return fmt.Sprintf("%s %s: A has %s, B has %s", d.object, d.path, d.a, d.b)
}

// kind is what differences are grouped by: the resource and the field, without names and numbers.
func (d difference) kind() string {
	resource, _, _ := strings.Cut(d.object, " ")
	if d.path == "" {
		return resource
	}
	return resource + " " + withoutNumbers(d.path)
}

// described reports whether the field may only describe what the program has done: in the status, an annotation, or a
// label that one of the ends does not have, or that counts, or that is on an object of others. On one of its own a
// label with another word says what there is.
func (d difference) described() bool {
	label := strings.HasPrefix(d.path, ".metadata.labels.")
	return strings.HasPrefix(d.path, ".status") || strings.Contains(d.path, ".annotations.") ||
		label && (d.a == "" || d.b == "" || isNumber(d.a) && isNumber(d.b) || d.foreign)
}

// onlyEmpty reports whether a field is empty in one end and missing in the other.
func (d difference) onlyEmpty() bool {
	return d.path != "" && (d.a == "" || d.b == "") &&
		slices.Contains([]string{"{}", "[]", "false", "0", `""`, "null"}, d.a+d.b)
}

var numberText = regexp.MustCompile(`\d+`)

func withoutNumbers(text string) string { return numberText.ReplaceAllString(text, "#") }

// differences says where the end B, of which the snapshot is, is not like the end A.
func (s snapshot) differences(a snapshot) []difference {
	var all []difference
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if a[key] == nil {
			all = append(all, difference{object: key, b: "it"})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if s[key] == nil {
			all = append(all, difference{object: key, a: "it"})
			continue
		}
		if slices.Equal(a[key], s[key]) {
			continue
		}
		inA := valuesOf(a[key])
		inB := aligned(inA, valuesOf(s[key]), unordered)
		paths := maps.Clone(inA)
		maps.Copy(paths, inB)
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			if inA[path] != inB[path] && inA[path] != mayDiffer && inB[path] != mayDiffer &&
				!triedMore(path, inA[path], inB[path]) {
				all = append(all, difference{object: key, path: path, a: inA[path], b: inB[path]})
			}
		}
	}
	return all
}

// triesText matches the path of a field in a status that is called as one that counts the tries which have failed. What
// is allowed at most says what there is.
var (
	triesText = regexp.MustCompile(`(?i)^\.status\.[^\[]*(retry|retries|attempts?|failures?|errors?)(count|number)?$`)
	mostText  = regexp.MustCompile(`(?i)\.(max|min|allowed)[^.]*$`)
)

// triedMore reports whether a count of tries is higher in B than in A: as much higher as more went wrong. A lower one
// has lost some, or counts something else.
func triedMore(path, a, b string) bool {
	if !triesText.MatchString(path) || mostText.MatchString(path) {
		return false
	}
	inA, errA := strconv.ParseInt(cmp.Or(a, "0"), 10, 64)
	inB, errB := strconv.ParseInt(cmp.Or(b, "0"), 10, 64)
	return errA == nil && errB == nil && inA < inB
}

// valuesOf returns the values of lines by their paths.
func valuesOf(lines []string) map[string]string {
	all := make(map[string]string, len(lines))
	for _, line := range lines {
		path, value, _ := strings.Cut(line, " = ")
		all[path] = cmp.Or(value, `""`)
	}
	return all
}
