package keys

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Turn is what a worker has for its runs, one after the other. It is apart from [Run] so that a Run is small: each call
// of Reconcile has one of its own, and one of 320 bytes was an eighth of all that a manager allocates.
type Turn struct {
	Log klog.Logger // of the worker; never changed

	// Of the run that goes on. The worker's goroutine writes them between runs. Others may read them with the Run's mu
	// held, if the Run has not ended.
	Began  time.Time
	causes Causes
	entry  *entry // of its key; its content is guarded by the Table's mu

	stuckIn atomic.Pointer[string] // where in the user's code the run is stuck; nil if it is not
}

// SetStuck says where in the user's code the run is stuck, and reports whether it is the first to say so of this run.
// It is called while the run goes on.
func (w *Turn) SetStuck(where string) (first bool) { return w.stuckIn.CompareAndSwap(nil, &where) }

// NoLongerStuck ends what SetStuck has begun, and reports whether it has been called.
func (w *Turn) NoLongerStuck() bool { return w.stuckIn.Load() != nil && w.stuckIn.Swap(nil) != nil }

// Causes returns a copy of the causes of the latest run, for the log: a log sink may format it during the next run.
func (w *Turn) Causes() *Causes {
	why := w.causes
	return &why
}

// Run is one call of Reconcile.
type Run struct {
	Key  Key   // never changed
	Turn *Turn // the same; it is that of another run when this one has ended

	// mu may be taken with the Table's held. Only WhileItGoesOn calls a function with mu held.
	mu sync.Mutex
	// Guarded by mu. ended is true when the call has returned. details is nil until it is needed. When ended is true,
	// neither it nor what it points to changes any longer, except for the values in details.writes.
	details *details
	ended   bool
}

// details are what most runs do not have. The Run's mu guards them until the Run has ended.
type details struct {
	// What the run has written; true for those that created their object. Events may tell that when the Run has ended,
	// too, so the values are read and changed with the Table's mu held; the Run adds keys with its own.
	writes map[WriteID]bool
	// Its requests to write: the first of them in their order, and how many came after these. A record does not change
	// once it is here.
	requests     []status.Write
	moreRequests int
	pace         pace // of all of its requests
}

// pace is how a run has spent its time: with requests under way, or without. A client-side limit of requests makes a
// run wait before its requests, where nothing but its pace shows it.
type pace struct {
	requests, underWay int
	// The latest request: when it came, and, once it is answered, the status, or -1 if there is none. address is read
	// only by those who ask.
	method    string
	address   *url.URL
	since     time.Time
	code      int
	idleSince time.Time     // while none is under way
	idle      time.Duration // in which none was under way, up to the latest request
}

// GoesOn reports whether the call has not returned, and when it began.
func (r *Run) GoesOn() (began time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return time.Time{}, false
	}
	return r.Turn.Began, true
}

// WhileItGoesOn calls fn unless the call has returned: it does not before fn has. fn must not ask for the run.
func (r *Run) WhileItGoesOn(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		fn()
	}
}

// Returned ends the run: the call has returned.
func (r *Run) Returned() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
}

// Log is the worker's logger with the key. It is made for each line: most runs have none.
func (r *Run) Log() klog.Logger { return r.Turn.Log.WithValues("key", r.Key) }

// String is what fmt prints. Without it fmt would read fields that change.
func (r *Run) String() string { return fmt.Sprintf("reconcile %s", r.Key) }

// Causes returns what has named the key for this run, while it goes on.
func (r *Run) Causes() (list []status.Cause, more int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, 0 // the turn has those of another run
	}
	return r.Turn.causes.list(), r.Turn.causes.more
}

// needDetailsLocked returns the details, and makes them if there are none.
func (r *Run) needDetailsLocked() *details {
	if r.details == nil {
		r.details = &details{}
	}
	return r.details
}

// Wrote keeps a write, to recognise its events by.
func (r *Run) Wrote(uid types.UID, resourceVersion string, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid == "" || r.ended {
		return
	}
	d := r.needDetailsLocked()
	if d.writes == nil {
		d.writes = make(map[WriteID]bool)
	}
	if resourceVersion != "" {
		d.writes[WriteID{uid, resourceVersion}] = false
	}
	if deleted {
		d.writes[WriteID{uid, ""}] = false
	}
}

// Record keeps a request to write.
func (r *Run) Record(w status.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	if d := r.needDetailsLocked(); len(d.requests) < maxWritesOfRun {
		d.requests = append(d.requests, w)
	} else {
		d.moreRequests++
	}
}

// RequestBegins notes that a request of the run has come to the transport.
func (r *Run) RequestBegins(req *http.Request) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	p := &r.needDetailsLocked().pace
	if p.requests == 0 {
		p.idleSince = r.Turn.Began
	}
	if p.underWay == 0 {
		p.idle += now.Sub(p.idleSince)
	}
	p.requests++
	p.underWay++
	p.method, p.address, p.since, p.code = req.Method, req.URL, now, 0
}

// RequestEnds notes that a request has been answered, or has failed: then there is no answer.
func (r *Run) RequestEnds(resp *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	p := &r.details.pace
	p.code = -1
	if resp != nil {
		p.code = resp.StatusCode
	}
	if p.underWay--; p.underWay == 0 {
		p.idleSince = time.Now()
	}
}

// hasWritten reports whether the run is known to have written this version, or to have deleted the object.
func (r *Run) hasWritten(v WriteID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.details == nil {
		return false
	}
	_, own := r.details.writes[v]
	return own
}

// markCreated records that a write of the run created its object. The Table's mu is held; the Run may have ended.
func (r *Run) markCreated(v WriteID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.details.writes[v] = true // hasWritten has found it
}

// seen returns the details of a run that has ended, or nil. It takes no lock: the goroutine that calls it has ended the
// run. To read the values of writes needs the Table's mu.
func (r *Run) seen() *details { return r.details }

// written returns what a run that has ended has written, and the first of its requests to write. d may be nil.
func (d *details) written() (map[WriteID]bool, []status.Write) {
	if d == nil {
		return nil, nil
	}
	return d.writes, d.requests[:min(len(d.requests), maxCauses)]
}

// describe adds to a record what is known of the run's requests. d may be nil. The run has ended, or its mu is held.
func (d *details) describe(r *status.Run) {
	if d == nil {
		return
	}
	r.Writes, r.MoreWrites = slices.Clone(d.requests), d.moreRequests
	r.Requests, r.BeforeRequests = d.pace.requests, d.pace.idle
}

// Requests returns what a run that has ended, and took this long, has done before its requests.
func (r *Run) Requests(took time.Duration) status.Run {
	seen := status.Run{Took: took}
	r.seen().describe(&seen)
	return seen
}

// describeLocked returns what is known of a run that goes on, or nil if it has ended.
func (r *Run) describeLocked(t *Table) *status.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	w := r.Turn
	d := &status.Run{Started: w.Began, Took: time.Since(w.Began), Causes: w.causes.list(), MoreCauses: w.causes.more}
	r.details.describe(d)
	if r.details != nil {
		d.Request = r.details.pace.latest(t.resourceOf)
	}
	if where := w.stuckIn.Load(); where != nil {
		d.Where = *where
	}
	return d
}

// latest describes the latest request, or returns nil if there was none.
func (p *pace) latest(resourceOf func(*url.URL) string) *status.Request {
	if p.requests == 0 {
		return nil
	}
	return &status.Request{Method: cmp.Or(p.method, http.MethodGet), Resource: resourceOf(p.address),
		Since: p.since, Answered: p.underWay == 0, Code: max(p.code, 0)}
}
