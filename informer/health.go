package informer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// State is what an informer can say about its cache in one word.
type State string

const (
	// Listing: the first list has not been completed yet, and nothing has gone wrong. An informer that does not run yet says the same.
	Listing State = "Listing"
	// Live: the cache follows the server.
	Live State = "Live"
	// Stale: the cache was complete once and still answers, but the server cannot be reached, does not let it resume, or has been silent for longer
	// than Options.MaxStaleness.
	Stale State = "Stale"
	// Denied: the server refuses, 401 or 403. The informer keeps asking, so a Role that arrives late is enough.
	Denied State = "Denied"
	// Missing: the server does not know the resource, 404. The informer keeps asking, so a CRD that arrives late is enough.
	Missing State = "Missing"
	// Failed: the first list has not been completed for another reason, which LastError tells.
	Failed State = "Failed"
	// Stopped: Run has ended. The cache still answers, and follows nothing.
	Stopped State = "Stopped"
)

// Health is what an informer knows about its own cache.
type Health struct {
	State State
	// Since is when State was entered.
	Since time.Time
	// LastError is the latest failure of a list or of a watch. It stays when the trouble is over.
	LastError error
	// LastProgress is when the server last told something, a bookmark ("nothing new") included. Zero: never.
	LastProgress time.Time
	// Lists counts the lists that were begun. When it grows, watches cannot be resumed or lists do not succeed.
	Lists int
	// Listed is the number, as Lists counts them, of the latest list that is complete in the store. Zero: none.
	Listed int
	// Rewinds counts how often the cluster has gone back to an older state, as after a restore from a backup, and the cache with it.
	Rewinds int
	// Rejected counts the objects whose present state could not be taken into the store: see [SharedIndexInformer.Invalid].
	Rejected int
	// Differences counts the objects that the cache was found to be wrong about: see Options.VerifyEvery.
	Differences int
	// Mutated counts how often an object of the cache was found to have been changed by somebody: see Options.DetectMutations.
	Mutated int
	// Bytes is the size of the objects that the store holds, in the form in which they came. Zero if the client is not one of [REST].
	Bytes int64
	// LastBadObject is the latest complaint about a single object: it could not be taken into the store, or into an index, or was changed there.
	LastBadObject error
}

// health keeps the Health of an informer and writes one log line for each change of its state.
type health struct {
	log klog.Logger // set before anything is reported; a logger is not ours, so it is never called with mu held

	mu  sync.Mutex
	now Health // guarded by mu

	maxStaleness time.Duration

	complaints calm
}

func newHealth(maxStaleness time.Duration) *health {
	return &health{now: Health{State: Listing, Since: time.Now()}, maxStaleness: maxStaleness}
}

func (h *health) get() Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now
	if now.State == Live && h.silent() {
		now.State, now.Since, now.LastError = Stale, now.LastProgress.Add(h.maxStaleness), ErrStale
	}
	return now
}

// silent reports whether the server has told nothing for too long. The caller holds mu.
func (h *health) silent() bool {
	return h.maxStaleness > 0 && time.Since(h.now.LastProgress) > h.maxStaleness
}

// fresh says why the cache should not be acted on.
func (h *health) fresh(synced bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	switch {
	case !synced:
		err = errors.New("no complete list yet")
	case h.silent():
		err = fmt.Errorf("%w: since %s", ErrStale, h.now.LastProgress.Format(time.RFC3339))
	default:
		return nil
	}
	if h.now.LastError != nil && h.now.State != Live {
		err = fmt.Errorf("%w (%s): %w", err, h.now.State, h.now.LastError)
	}
	return err
}

func (h *health) enter(s State, err error) {
	h.mu.Lock()
	if h.now.State == Stopped {
		h.mu.Unlock()
		return // somebody who was stuck has come back after all
	}
	if err != nil {
		h.now.LastError = err
	}
	from := h.now.State
	if from != s {
		h.now.State, h.now.Since = s, time.Now()
	}
	h.mu.Unlock()
	switch {
	case from == s:
	case err != nil:
		h.log.Error(err, "The cache does not follow the server", "state", s, "before", from)
	default:
		h.log.V(1).Info("Health changed", "state", s, "before", from)
	}
}

// failed files an error of a list or watch under its state.
func (h *health) failed(err error, synced bool) {
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		h.enter(Denied, err)
	case apierrors.IsNotFound(err):
		h.enter(Missing, err)
	case synced:
		h.enter(Stale, err)
	default:
		h.enter(Failed, err)
	}
}

func (h *health) progressed() {
	h.mu.Lock()
	h.now.LastProgress = time.Now()
	h.mu.Unlock()
}

func (h *health) listing() {
	h.mu.Lock()
	h.now.Lists++
	h.mu.Unlock()
}

func (h *health) listed(number int) {
	h.mu.Lock()
	h.now.Listed = number
	h.mu.Unlock()
}

func (h *health) rewound() {
	h.mu.Lock()
	h.now.Rewinds++
	h.mu.Unlock()
}

func (h *health) differs(objects int) {
	h.mu.Lock()
	h.now.Differences += objects
	h.mu.Unlock()
}

// badObject reports an object that is not where it should be: in the cache, or in an index.
func (h *health) badObject(err error) {
	h.mu.Lock()
	h.now.LastBadObject = err
	h.mu.Unlock()
	if held, ok := h.complaints.line(); ok {
		h.log.Error(err, "An object cannot be handled", "notLogged", held, "stack", stackOf(err))
	}
}

// mutated reports an object that somebody has changed in the cache.
func (h *health) mutated(err error) {
	h.mu.Lock()
	h.now.Mutated++
	h.mu.Unlock()
	h.badObject(err)
}

func (h Health) String() string {
	s := fmt.Sprintf("%s since %s", h.State, h.Since.Format(time.RFC3339))
	if h.LastError != nil && h.State != Live && h.State != Stopped {
		s += ": " + h.LastError.Error()
	}
	return s
}
