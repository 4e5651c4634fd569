package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	drawn     *inventions
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
		unserved: make(map[schema.GroupVersionResource]bool), made: make(map[string]bool), drawn: newInventions()}
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
	defer r.failing(req)()
	resp, err := serve()
	if err == nil && req.Verb == "watch" {
		resp.Body = &watchBody{resp.Body, r, req}
	}
	return resp, err
}

// failing returns a function that is to be deferred, and records that the caller panics.
func (r *recorder) failing(req reconciletest.Request) (ended func()) {
	return func() {
		if panicked := recover(); panicked != nil {
			r.failed(req)
			panic(panicked)
		}
	}
}

// failed records that the fork has failed to answer a request, whatever it is for.
func (r *recorder) failed(req reconciletest.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := req.Resource
	if req.Path != "" {
		resource.Resource = req.Path
	}
	r.inexact[inexact{resource, "the fork has failed to answer"}]++
}

// watchBody is the answer to a watch, which the server makes as it is read.
type watchBody struct {
	io.ReadCloser
	recorder *recorder
	req      reconciletest.Request
}

func (b *watchBody) Read(p []byte) (int, error) {
	defer b.recorder.failing(b.req)()
	return b.ReadCloser.Read(p)
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
	r.drawn.wrote(w)
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

// asked notes what the program asks for.
func (r *recorder) asked(w reconciletest.BaseWrite) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drawn.asked(w)
}

// drew notes a value that a healthy world has made up.
func (r *recorder) drew(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drawn.add(value, stands)
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
