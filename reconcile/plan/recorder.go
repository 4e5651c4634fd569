package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const (
	// between is how long a program makes no request before what it writes next is another wave.
	between = time.Second
	// campaign is how long an elector waits for a Lease that it has found nowhere, and a little more.
	campaign = 20 * time.Second
	// runaway is how many changes of one object end a plan: the fork holds each version.
	runaway = 1000
	// loopAfter is how many writes to one object are a hot loop.
	loopAfter = 10
)

// recorder holds what a program has done on a fork.
type recorder struct {
	judged bool // the fork knows what the program's account may do
	// told, if set, is told of changes, and returns a channel that is closed when what follows from one has been found.
	told func(verb string, w reconciletest.BaseWrite) <-chan struct{}

	mu sync.Mutex
	// Guarded by mu.
	requests  int       // of the program, reads included
	serving   int       // requests that are being served, and searches for what depends on a deleted object
	active    time.Time // when the last one ended
	newAt     time.Time // when the last change was made, or the last request of its kind was the first
	kinds     map[reconciletest.Request]bool
	wave      int  // 0: nothing has been written
	waited    bool // the program has waited for something since its last write
	changes   []*recorded
	current   map[place]*recorded // the change of an object in the wave that is under way
	writes    map[place]*rewrites
	refused   map[refusal]int
	inexact   map[inexact]int
	missing   map[Right]bool
	unserved  map[schema.GroupVersionResource]bool
	endless   bool                               // an object has been changed so often that the plan ends
	campaigns map[types.NamespacedName]time.Time // Leases that the program has made and may wait for, until then
	events    int                                // Events that the program has recorded
	made      map[string]bool                    // names of objects that the program has made
}

// place is what a change is of: an object, or its status.
type place struct {
	resource schema.GroupResource
	types.NamespacedName
	uid    types.UID
	status bool
}

// recorded is all that was written to an object in a wave: one creation and updates, or updates, or a deletion.
type recorded struct {
	wave     int
	resource schema.GroupVersionResource
	verb     string
	status   bool
	by       string
	old, now reconciletest.Object // of the first write and of the last one
	writes   int
	orphans  bool // it was deleted in a way that leaves its dependents
	apart    bool // its status is written apart from the rest
}

// rewrites are the writes to one object.
type rewrites struct {
	resource    schema.GroupVersionResource
	n, changes  int
	first, last time.Time
	was, is     reconciletest.Object // of the last write that changed something
}

// refusal is an answer of the fork that refuses a request, without what tells two of a kind apart.
type refusal struct {
	verb, subresource, name string
	resource                schema.GroupVersionResource
	namespace               string
	code                    int32
	reason, message         string
}

type inexact struct {
	resource schema.GroupVersionResource
	why      string
}

func newRecorder() *recorder {
	now := time.Now()
	return &recorder{active: now, newAt: now, kinds: make(map[reconciletest.Request]bool),
		current: make(map[place]*recorded),
		writes:  make(map[place]*rewrites), refused: make(map[refusal]int), inexact: make(map[inexact]int),
		campaigns: make(map[types.NamespacedName]time.Time), missing: make(map[Right]bool),
		unserved: make(map[schema.GroupVersionResource]bool), made: make(map[string]bool)}
}

var (
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	reviewsGroup = "authorization.k8s.io"
)

// aside reports whether a resource is what a program writes about itself, and no change of the cluster: its Lease, its
// Events, and questions for its rights.
func aside(r schema.GroupResource) bool {
	return r == leases || isEvents(r) || r.Group == reviewsGroup
}

func isEvents(r schema.GroupResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// observe is the fault of the program's link: it changes nothing, and sees each request with its answer.
func (r *recorder) observe(req reconciletest.Request) reconciletest.Fault {
	return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
		long := req.Verb == "watch" || aside(req.Resource.GroupResource())
		r.isNew(req)
		resp, err := r.served(req, !long, serve)
		if err != nil {
			return resp, err
		}
		if req.Resource.Group == reviewsGroup && !r.judged {
			r.Approximate(req, "the fork allows everything: the rights of the program are not compared")
		}
		if req.Resource.Group == rbacv1.GroupName && req.Writes() && r.judged {
			r.Approximate(req, "whether the account may grant these rights is not judged")
		}
		if resp.StatusCode >= 400 {
			return resp, r.refuse(req, resp)
		}
		if req.Writes() && req.Name != "" && !aside(req.Resource.GroupResource()) {
			r.repeated(req)
		}
		return resp, nil
	}
}

// served serves a request that counts, or not. The client learns of a panic that its connection was lost, and net/http
// hides it, so it is recorded.
func (r *recorder) served(req reconciletest.Request, counts bool, serve func() (*http.Response, error)) (
	*http.Response, error) {
	r.begin(counts)
	defer r.end(counts)
	done := false
	defer func() {
		if !done {
			r.Approximate(req, "the fork has failed to answer")
		}
	}()
	resp, err := serve()
	done = true
	return resp, err
}

// isNew notes a request: a program that reads what it has not read before has not settled, and one that reads the same
// again and again may have.
func (r *recorder) isNew(req reconciletest.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if !r.kinds[req] {
		r.kinds[req] = true
		r.newAt = time.Now()
	}
}

func (r *recorder) begin(counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !counts {
		return
	}
	if r.serving == 0 && time.Since(r.active) >= between {
		r.waited = true
	}
	r.serving++
}

func (r *recorder) end(counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if counts {
		r.serving--
		r.active = time.Now()
	}
}

// followed ends what a change has led to. What comes of that begins only now, such as a pass of the garbage collector.
func (r *recorder) followed() {
	r.end(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newAt = time.Now()
}

// repeated counts a write, whether it changed anything or not.
func (r *recorder) repeated(req reconciletest.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writesLocked(req)
	w.n++
	w.last = time.Now()
}

func (r *recorder) writesLocked(req reconciletest.Request) *rewrites {
	at := place{resource: req.Resource.GroupResource(), NamespacedName: types.NamespacedName{Namespace: req.Namespace,
		Name: req.Name}, status: req.Subresource == "status"}
	w := r.writes[at]
	if w == nil {
		w = &rewrites{resource: req.Resource, first: time.Now()}
		r.writes[at] = w
	}
	return w
}

// Wrote records a write.
func (r *recorder) Wrote(w reconciletest.BaseWrite) (looked <-chan struct{}) {
	if aside(w.Resource.GroupResource()) {
		r.wroteAside(w)
		return nil
	}
	verb := verbOf(w)
	if r.told != nil {
		looked = r.told(verb, w)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newAt = time.Now()
	if w.By == worldManager {
		return looked
	}
	if r.wave == 0 || r.waited && len(r.current) > 0 {
		r.wave++
		clear(r.current)
	}
	r.waited = false
	object := cmp.Or[reconciletest.Object](w.New, w.Old)
	r.made[w.Name] = r.made[w.Name] || w.Old == nil
	at := place{w.Resource.GroupResource(), keyOf(object), object.GetUID(), w.Subresource == "status"}
	if repeats := r.writesLocked(w.Request); w.Old != nil {
		repeats.changes++
		r.endless = r.endless || repeats.changes >= runaway
		repeats.was, repeats.is = w.Old, w.New
	}
	one := r.current[at]
	if one != nil && (verb == "update" && one.verb != "delete" || verb == "remove" && one.verb == "delete") {
		one.now = w.New
		one.writes++
		return looked
	}
	orphans := w.New != nil && slices.Contains(w.New.GetFinalizers(), metav1.FinalizerOrphanDependents)
	one = &recorded{r.wave, w.Resource, verb, at.status, w.By, w.Old, w.New, 1, verb == "delete" && orphans,
		w.StatusApart}
	r.changes = append(r.changes, one)
	r.current[at] = one
	return looked
}

// wroteAside notes what is no change. An elector that has found no Lease may make one that nobody holds, and wait for
// as long as somebody could have held it: then the program has not settled.
func (r *recorder) wroteAside(w reconciletest.BaseWrite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isEvents(w.Resource.GroupResource()) {
		r.events++
	}
	lease, ok := w.New.(*coordinationv1.Lease)
	if !ok {
		return
	}
	switch held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""; {
	case w.Old == nil && !held:
		lasts := campaign
		if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
			lasts = max(lasts, min(time.Duration(*seconds)*time.Second, time.Minute))
		}
		r.campaigns[keyOf(lease)] = time.Now().Add(lasts)
	case held && !r.campaigns[keyOf(lease)].IsZero():
		delete(r.campaigns, keyOf(lease))
		r.newAt = time.Now()
	}
}

// verbOf says what a write is to the object. An object that only waits for its finalizers counts as deleted.
func verbOf(w reconciletest.BaseWrite) string {
	switch {
	case w.Old == nil:
		return "create"
	case w.New == nil && w.Old.GetDeletionTimestamp() == nil,
		w.New != nil && w.New.GetDeletionTimestamp() != nil && w.Old.GetDeletionTimestamp() == nil:
		return "delete"
	case w.New == nil:
		return "remove"
	}
	return "update"
}

// Approximate records that the cluster may have answered otherwise.
func (r *recorder) Approximate(req reconciletest.Request, why string) {
	if aside(req.Resource.GroupResource()) && req.Resource.Group != reviewsGroup {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inexact[inexact{req.Resource, why}]++
}

// forbidden records a right that is missing in the cluster.
func (r *recorder) forbidden(verb string, resource schema.GroupVersionResource, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing[Right{verb, resource.Group, resource.Resource, namespace}] = true
}

// suffices records that a right in one namespace was enough.
func (r *recorder) suffices(verb string, resource schema.GroupVersionResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, Right{verb, resource.Group, resource.Resource, ""})
}

// lacks records that the program needs a resource that the cluster does not have.
func (r *recorder) lacks(resource schema.GroupVersionResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unserved[resource] = true
}

// refuse records an answer that refuses a request, unless programs live with such answers: an object that is not there,
// or is there already, and a conflict.
func (r *recorder) refuse(req reconciletest.Request, resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return err
	}
	if code := resp.StatusCode; code == http.StatusNotFound || code == http.StatusConflict || code == http.StatusGone ||
		req.Path != "" {
		return nil
	}
	status := statusOf(body)
	one := refusal{req.Verb, req.Subresource, req.Name, req.Resource, req.Namespace, int32(resp.StatusCode),
		string(status.Reason), status.Message}
	if strings.EqualFold(req.Resource.Resource, "secrets") {
		one.message = "" // it may have a value
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[one]++
	return nil
}

// statusOf reads a Status in JSON or protobuf.
func statusOf(body []byte) *metav1.Status {
	status := &metav1.Status{}
	if json.Unmarshal(body, status) == nil {
		return status
	}
	if o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if is, ok := o.(*metav1.Status); ok {
			return is
		}
	}
	return status
}

// settled returns for how long the program has done nothing new, and the number of its requests.
func (r *recorder) settled() (quiet time.Duration, requests int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lease, until := range r.campaigns {
		if time.Now().After(until) { // it is a Lease of another kind
			delete(r.campaigns, lease)
			r.newAt = until
		}
	}
	if r.serving > 0 || len(r.campaigns) > 0 {
		return 0, r.requests
	}
	return time.Since(r.newAt), r.requests
}

// isEndless reports whether the program has changed an object so often that it will not settle.
func (r *recorder) isEndless() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endless
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// report says what has been recorded.
func (r *recorder) report() (*Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report, inexactHere := &Report{Events: r.events}, maps.Clone(r.inexact)
	orphaned := map[place]reconciletest.Object{} // without UIDs
	for _, one := range r.changes {
		object := cmp.Or[reconciletest.Object](one.now, one.old)
		at := place{resource: one.resource.GroupResource(), NamespacedName: keyOf(object)}
		c, err := one.change(orphaned[at])
		if err != nil {
			return nil, err
		}
		switch {
		case one.orphans:
			orphaned[at] = one.old
		case one.verb != "update" && one.verb != "remove": // its pods have an owner again, or go with it
			delete(orphaned, at)
		}
		report.Changes = append(report.Changes, c)
		if custom, err := one.changesCustomPods(); err != nil {
			return nil, err
		} else if custom {
			const why = "its pod template is another one, and what becomes of its pods is not known"
			inexactHere[inexact{one.resource, why}]++
		}
	}
	for one, n := range r.refused {
		report.Refused = append(report.Refused, Refusal{Verb: one.verb, Subresource: one.subresource,
			Object: Object{one.resource.GroupVersion().String(), one.resource.Resource, one.namespace, one.name},
			Code:   one.code, Reason: one.reason, Message: one.message, Times: n})
	}
	slices.SortFunc(report.Refused, func(a, b Refusal) int {
		return cmp.Or(a.Object.compare(b.Object), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Message, b.Message))
	})
	for one, n := range inexactHere {
		report.Approximate = append(report.Approximate,
			Approximation{one.resource.Resource, one.resource.Group, one.why, n})
	}
	slices.SortFunc(report.Approximate, func(a, b Approximation) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Why, b.Why))
	})
	for at, w := range r.writes {
		if max(w.n, w.changes) < loopAfter {
			continue
		}
		loop, err := w.loop(at)
		if err != nil {
			return nil, err
		}
		report.HotLoops = append(report.HotLoops, loop)
	}
	slices.SortFunc(report.HotLoops, func(a, b HotLoop) int { return a.Object.compare(b.Object) })
	report.Missing = slices.SortedFunc(maps.Keys(r.missing), Right.compare)
	for resource := range r.unserved {
		report.Unserved = append(report.Unserved, resource.Resource+"."+resource.Version+"."+resource.Group)
	}
	slices.Sort(report.Unserved)
	return report, nil
}

// change says what a recorded change is. orphaned is an object of its name that was deleted before and has left its
// dependents; nil: there is none.
func (one *recorded) change(orphaned reconciletest.Object) (Change, error) {
	last := cmp.Or[reconciletest.Object](one.now, one.old)
	c := Change{Wave: one.wave, Verb: one.verb, Object: objectOf(one.resource, last), By: one.by, Writes: one.writes}
	if one.status {
		c.Subresource = "status"
	}
	var err error
	if one.verb == "create" || one.verb == "update" {
		if c.Fields, err = changed(one.old, one.now); err != nil {
			return c, err
		}
	}
	if one.verb == "update" && one.apart { // in between others may have written the other part
		c.Fields = slices.DeleteFunc(c.Fields, func(f Field) bool { return isStatus(f.Path) != one.status })
	}
	if one.verb == "delete" || one.verb == "remove" {
		c.LosesData = losesData(one.resource.GroupResource())
		if one.now != nil {
			c.Waits = one.now.GetFinalizers()
		}
	}
	c.LosesData = c.LosesData || scalesDataAway(one)
	before := one.old
	if one.verb == "create" && adopts(one.now, orphaned) {
		before = orphaned
	}
	c.Restarts, err = restarts(one, before)
	return c, err
}

// changesCustomPods reports whether the change is one of a pod template in a custom resource.
func (one *recorded) changesCustomPods() (bool, error) {
	if _, custom := one.old.(*unstructured.Unstructured); !custom || one.verb != "update" || one.status {
		return false, nil
	}
	was, err1 := treeOf(one.old)
	is, err2 := treeOf(one.now)
	return changesPods(was["spec"], is["spec"]), errors.Join(err1, err2) // the object itself is no template
}

func isStatus(path string) bool { return path == "status" || strings.HasPrefix(path, "status.") }

func objectOf(r schema.GroupVersionResource, o reconciletest.Object) Object {
	kind := cmp.Or(o.GetObjectKind().GroupVersionKind().Kind, r.Resource)
	return Object{r.GroupVersion().String(), kind, o.GetNamespace(), o.GetName()}
}

// loop says what a hot loop is.
func (w *rewrites) loop(at place) (HotLoop, error) {
	loop := HotLoop{Object: Object{w.resource.GroupVersion().String(), at.resource.Resource, at.Namespace, at.Name},
		Writes: max(w.n, w.changes), Changes: w.changes, Seconds: w.last.Sub(w.first).Seconds()}
	fields, err := changed(w.was, w.is)
	for _, f := range fields {
		loop.Fields = append(loop.Fields, f.Path)
	}
	return loop, err
}
