package informer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// State is what an informer can say about its cache in one word.
type State string

const (
	// Listing: the first list has not been completed yet, and nothing has gone wrong. An informer that does not run yet
	// says the same.
	Listing State = "Listing"
	// Live: the cache follows the server.
	Live State = "Live"
	// Stale: the cache was complete once and still answers, but the server cannot be reached, does not let the watch
	// resume, or has been silent for longer than Options.MaxStaleness; or the cache holds objects that may have been
	// deleted, because the list that would tell cannot be read; or a goroutine that feeds it no longer moves.
	Stale State = "Stale"
	// Denied: the server refuses, 401 or 403. The informer keeps asking, so a Role that arrives late is enough.
	Denied State = "Denied"
	// Missing: the server does not know the resource, 404. The informer keeps asking, so a CRD that arrives late is
	// enough.
	Missing State = "Missing"
	// Failed: the first list has not been completed for another reason, which LastError tells.
	Failed State = "Failed"
	// Stopped: Run has ended. The cache still answers, and follows nothing.
	Stopped State = "Stopped"
)

// Health is what an informer knows about its own cache. If the informer follows several namespaces (see
// [NewNamespaced]) each is in a state of its own, which [SharedIndexInformer.HealthIn] returns; the cache as a whole
// is in the worst of them, in the order Live, Listing, Stale, Missing, Denied, Failed.
type Health struct {
	State State
	// Since is when State was entered.
	Since time.Time
	// LastError is the latest failure of a list or of a watch. It stays when lists and watches succeed again. Of
	// several namespaces it is that of the one that is in State, or the latest if all are Live, and names the
	// namespace.
	LastError error
	// LastProgress is when the server last sent anything, a bookmark included. Zero: never. Of several namespaces it is
	// the earliest of theirs.
	LastProgress time.Time
	// Lists counts the lists that were begun, in all namespaces. When it grows, watches cannot be resumed or lists
	// fail. For one namespace it is the number, in that count, of the latest list that was begun.
	Lists int
	// Listed is the number, as Lists counts them, of the latest list that is complete in the store; of several
	// namespaces, the lowest of their numbers. Zero: no list of what is now in scope is complete yet.
	Listed int
	// Rewinds counts how often the cache has followed a cluster that went back to an older state, as after a restore
	// from a backup. Each namespace counts by itself.
	Rewinds int
	// Rejected counts the objects whose present state could not be taken into the store: see
	// [SharedIndexInformer.Invalid].
	Rejected int
	// Differences counts the objects that the cache was found to be wrong about: see Options.VerifyEvery.
	Differences int
	// Mutated counts how often an object of the cache was found to have been changed by user code: see
	// Options.DetectMutations.
	Mutated int
	// LastBadObject is the latest error about a single object: it could not be stored, or not be indexed, or was
	// changed by user code.
	LastBadObject error
	// Queued counts the changes that have been received and that the store has not taken yet, after those of one
	// object have been merged. It is zero most of the time, and grows while the store waits for inline handlers.
	Queued int
	// Resource is what is followed, if the client says it, as a [Resource] does. It is zero for other clients, and for
	// an informer of several namespaces.
	Resource schema.GroupVersionResource
}

// severity orders the states that a namespace may be in: the cache as a whole is in the worst.
var severity = []State{Live, Listing, Stale, Missing, Denied, Failed}

// health is what the list-watches of an informer have in common: numbers that are counted across them, and complaints
// about single objects.
type health struct {
	log klog.Logger // set before anything is reported; a logger is not ours, so it is never called with mu held

	// lists is the number of the latest list that was begun: each list of each list-watch takes the next one.
	lists, rewinds atomic.Int64
	// plain is true once a list-watch has found that the server does not stream lists.
	plain atomic.Bool

	mu sync.Mutex
	// Guarded by mu.
	differences, mutations int
	lastBad                error

	maxStaleness time.Duration

	// changes limits the lines about states, if there are many list-watches, and complaints those about objects.
	changes, complaints lifecycle.LogLimit
}

// listWatchHealth keeps the state of a list-watch and writes one log line for each change of it.
type listWatchHealth struct {
	*health
	namespace string
	log       klog.Logger // see health

	mu sync.Mutex
	// Guarded by mu. Only what is the list-watch's own is set.
	now      Health
	failedAt time.Time // when LastError was
	// Guarded by mu. What is wrong although lists and watches succeed: the list-watch is not Live
	// as long as one of them is not nil.
	wrongs [wrongs]error
}

// wrong is a trouble that the reflector itself does not have, or cannot tell of.
type wrong int

const (
	stuckReflector wrong = iota // it no longer moves
	stuckStore                  // it no longer takes what has come
	withheldSweep               // it may hold objects that are gone
	wrongs
)

func newListWatchHealth(h *health, namespace string) *listWatchHealth {
	return &listWatchHealth{health: h, namespace: namespace, now: Health{State: Listing, Since: time.Now()}}
}

func (h *listWatchHealth) get() Health {
	now, _ := h.getWithFailure()
	return now
}

// getWithFailure returns also when LastError was.
func (h *listWatchHealth) getWithFailure() (now Health, failedAt time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, failedAt = h.now, h.failedAt
	if now.State == Live && h.silentLocked() {
		now.State, now.Since, now.LastError = Stale, now.LastProgress.Add(h.maxStaleness), h.named(ErrStale)
	}
	return now, failedAt
}

// worst returns the Health of some list-watches together.
func worst[T any](listWatches []*listWatch[T]) (all Health) {
	if len(listWatches) == 1 {
		return listWatches[0].health.get()
	}
	var latest time.Time
	var lastError error
	for i, l := range listWatches {
		h, failedAt := l.health.getWithFailure()
		if failedAt.After(latest) {
			latest, lastError = failedAt, h.LastError
		}
		progress, listed := h.LastProgress, h.Listed
		if i > 0 {
			if all.LastProgress.Before(progress) {
				progress = all.LastProgress
			}
			listed = min(all.Listed, listed)
			worse := cmp.Or(cmp.Compare(slices.Index(severity, h.State), slices.Index(severity, all.State)),
				all.Since.Compare(h.Since))
			if worse <= 0 {
				h = all
			}
		}
		all = h
		all.LastProgress, all.Listed = progress, listed
	}
	if all.State == Live {
		all.LastError = lastError
	}
	return all
}

// named adds to an error the namespace that it is about, if there may be others.
func (h *listWatchHealth) named(err error) error {
	if h.namespace == "" || err == nil {
		return err
	}
	return fmt.Errorf("namespace %s: %w", h.namespace, err)
}

// silentLocked reports whether the server has sent nothing for longer than MaxStaleness.
func (h *listWatchHealth) silentLocked() bool {
	return h.maxStaleness > 0 && time.Since(h.now.LastProgress) > h.maxStaleness
}

// fresh says why the cache should not be acted on.
func (h *listWatchHealth) fresh() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	switch {
	case h.now.Listed == 0:
		err = errors.New("no complete list yet")
	case h.wrongs[withheldSweep] != nil:
		return h.wrongs[withheldSweep]
	case h.silentLocked():
		err = fmt.Errorf("%w: since %s", ErrStale, h.now.LastProgress.Format(time.RFC3339))
	default:
		return nil
	}
	if h.now.LastError != nil && h.now.State != Live {
		return fmt.Errorf("%w (%s): %w", err, h.now.State, h.now.LastError)
	}
	return h.named(err)
}

// enter changes the state, if it is another one, and logs that. err is the reason, nil if all is well.
func (h *listWatchHealth) enter(s State, err error) {
	h.mu.Lock()
	h.changeAndUnlock(s, h.named(err))
}

// changeAndUnlock is enter with mu held; it unlocks mu.
func (h *listWatchHealth) changeAndUnlock(s State, err error) {
	if h.now.State == Stopped {
		h.mu.Unlock()
		return // a goroutine that was stuck has come back after all
	}
	if known := h.knownWrongLocked(s); known != nil {
		if s, err = Stale, known; h.now.Listed == 0 {
			s = Failed
		}
	}
	now := time.Now()
	if err != nil {
		h.now.LastError, h.failedAt = err, now
	}
	from := h.now.State
	if from != s {
		h.now.State, h.now.Since = s, now
	}
	h.mu.Unlock()
	recovers := s == Live && from != Listing
	if from == s {
		return
	}
	about := withStack([]any{"state", s, "before", from}, err)
	if h.namespace != "" && (err != nil || recovers) {
		// What befalls one namespace often befalls them all.
		held, ok := h.changes.Allow(linesPerMinute)
		if !ok {
			return
		}
		about = append(about, "notLogged", held)
	}
	switch {
	case err != nil:
		h.log.Error(err, "The cache does not follow the server", about...)
	case recovers: // as an error, too: who reads only errors would take the loss for lasting
		h.log.Error(nil, "The cache follows the server again", about...)
	default:
		h.log.V(1).Info("Health changed", about...)
	}
}

// knownWrongLocked returns what keeps the list-watch from a state in which nothing is wrong.
func (h *listWatchHealth) knownWrongLocked(s State) error {
	switch s {
	case Listing:
		return cmp.Or(h.wrongs[stuckReflector], h.wrongs[stuckStore])
	case Live:
		return cmp.Or(h.wrongs[:]...)
	}
	return nil
}

// is reports whether something is known to be wrong.
func (h *listWatchHealth) is(what wrong) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrongs[what] != nil
}

// knows says that something is wrong, or, with nil, that it no longer is.
func (h *listWatchHealth) knows(what wrong, why error) {
	why = h.named(why)
	h.mu.Lock()
	before := h.wrongs[what]
	h.wrongs[what] = why
	state := h.now.State
	switch {
	case state == Live || state == Listing:
	case before != nil && h.now.LastError == before: // it was nothing else that kept the list-watch from being so
		if state = Live; h.now.Listed == 0 {
			state = Listing
		}
	default:
		h.mu.Unlock()
		return
	}
	h.changeAndUnlock(state, nil)
}

// failed files an error of a list or watch under its state.
func (h *listWatchHealth) failed(err error, synced bool) {
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

func (h *listWatchHealth) progressed() {
	h.mu.Lock()
	h.now.LastProgress = time.Now()
	h.mu.Unlock()
}

// listing numbers a list that is about to begin.
func (h *listWatchHealth) listing() (number uint64) {
	number = uint64(h.lists.Add(1))
	h.mu.Lock()
	h.now.Lists = int(number)
	h.mu.Unlock()
	return number
}

// listed says that the store holds the list of that number; zero: what it holds is no longer what is wanted.
func (h *listWatchHealth) listed(number uint64) {
	h.mu.Lock()
	h.now.Listed = int(number)
	h.mu.Unlock()
}

// complete reports whether the store holds a list of what is wanted.
func (h *listWatchHealth) complete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now.Listed > 0
}

func (h *listWatchHealth) rewound() {
	h.rewinds.Add(1)
	h.mu.Lock()
	h.now.Rewinds++
	h.mu.Unlock()
}

// count adds what is counted of objects.
func (h *health) count(now *Health) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now.Differences, now.Mutated, now.LastBadObject = h.differences, h.mutations, h.lastBad
}

func (h *health) differs(objects int) {
	h.mu.Lock()
	h.differences += objects
	h.mu.Unlock()
}

// badObject reports an object that is not where it should be: in the cache, or in an index.
func (h *health) badObject(err error) {
	h.mu.Lock()
	h.lastBad = err
	h.mu.Unlock()
	if held, ok := h.complaints.Allow(linesPerMinute); ok {
		h.log.Error(err, "An object cannot be handled", withStack([]any{"notLogged", held}, err)...)
	}
}

// acquitted reports an object that could not be taken before, and is in the cache now, or gone.
func (h *health) acquitted(key Key, gone bool) {
	message := "An object can be handled again"
	if gone {
		message = "An object that could not be handled is gone"
	}
	if held, ok := h.complaints.Allow(linesPerMinute); ok {
		h.log.Error(nil, message, "key", briefKey(key), "notLogged", held)
	}
}

// mutated reports an object that user code has changed in the cache.
func (h *health) mutated(err error) {
	h.mu.Lock()
	h.mutations++
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

// linesPerMinute is how many lines about the same kind of trouble the log gets.
const linesPerMinute = 5

// withStack adds to what a log line says of err where it came from, if it is a panic of user code.
func withStack(about []any, err error) []any {
	if stack := lifecycle.StackOf(err); stack != "" {
		about = append(about, "stack", stack)
	}
	return about
}
