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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// State is what an informer can say about its cache in one word.
type State string

const (
	// Listing: the first list has not been completed yet, and nothing has gone wrong; or that of the metadata by which
	// an object is followed has not, see [Referenced]. An informer that does not run yet says the same.
	Listing State = "Listing"
	// Live: the cache follows the server.
	Live State = "Live"
	// Stale: the cache was complete once and still answers, but the server cannot be reached, does not let the watch
	// resume, or has been silent for longer than Options.MaxStaleness; or somebody doubts the cache, and the list that
	// is to tell is not in it yet; or it holds objects that may have been deleted, because the list that would tell
	// cannot be read; or a goroutine that feeds it no longer moves.
	Stale State = "Stale"
	// Denied: the server refuses, 401 or 403. The informer keeps asking, so a Role that arrives late is enough.
	Denied State = "Denied"
	// Missing: the server does not know the resource, 404. The informer keeps asking, so a CRD that arrives late is
	// enough.
	Missing State = "Missing"
	// Failed: the first list has not been completed for another reason, or the resource can be listed and not be
	// watched. LastError tells why.
	Failed State = "Failed"
	// Stopped: Run has ended. The cache still answers, and follows nothing.
	Stopped State = "Stopped"
)

// Health is what an informer knows about its own cache. If the informer follows several namespaces (see
// [NewNamespaced]) each is in a state of its own, which [SharedIndexInformer.HealthIn] returns; the cache as a whole is
// in the worst of them, in the order Live, Listing, Stale, Missing, Denied, Failed; with no namespace it is Live once
// it runs. If it follows single objects (see [NewReferenced]), one of which says little about the others, the cache as
// a whole is in the best state of those that are known. If none is known it is Live, unless all have failed: then it is
// in the best state of all.
type Health struct {
	State State
	// Since is when State was entered.
	Since time.Time
	// LastError is the latest failure of a list or of a watch. It stays when lists and watches succeed again. Of
	// several namespaces it is that of the one that is in State, or the latest if all are Live, and names the
	// namespace.
	LastError error
	// LastProgress is when the latest of what the store has applied had come from the server: the end of a list, or an
	// event or bookmark of a watch. Zero: never. Of several namespaces, or objects that are known, it is the earliest
	// of theirs.
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
	// Slices counts the slices of Options.Shard of which the store has all objects.
	Slices int
	// Unknown counts the objects that are named and not known yet, of an informer that [NewReferenced] has made.
	Unknown int
	// ByMetadata counts the objects that are named and have no watch of their own, since the metadata of their whole
	// namespace is followed: see Options.MaxWatches.
	ByMetadata int
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
	// Bytes is about how much of the heap the store takes: objects, keys and indexes. It is an estimate by a sample of
	// 512 objects, within 15 % unless a few objects are far larger than the others. It is made when
	// [SharedIndexInformer.Health] is called, which takes some milliseconds, at most every five minutes unless the
	// number of objects has changed by an eighth; [SharedIndexInformer.HealthIn] leaves it zero. What the objects lead
	// to by fields that are not exported is not counted, nor what decoders remember, and what several caches share is
	// in the figure of each.
	Bytes int
	// StuckHandler names a handler that has not returned from a call for three minutes, in which the cache goes on
	// without it; of several, any. Nil: there is none. An inline handler that does not return makes the cache Stale.
	StuckHandler error
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
	// Guarded by mu. stuck says which handlers do not return.
	differences, mutations int
	lastBad                error
	stuck                  map[*pulse]error

	maxStaleness time.Duration

	// losses limits the lines about states, if there are many list-watches, and complaints those about objects.
	losses, complaints lifecycle.LogLimit
}

// listWatchHealth keeps the state of a list-watch and writes one log line for each change of it. What has arrived
// changes no state: the state is that of the store.
type listWatchHealth struct {
	*health
	part part
	// moved is called after each change of the state, and whenever there is a trouble, which may be another one than
	// before; nil: it is not. It is set before the list-watch runs.
	moved func()
	// guide is that of the metadata by which the one object is followed, or nil.
	guide atomic.Pointer[listWatchHealth]

	mu  sync.Mutex
	log klog.Logger // guarded by mu; see health
	// Guarded by mu. Only what is the list-watch's own is set. State follows from the fields below: see judgeLocked.
	now      Health
	failedAt time.Time // when LastError was
	stopped  bool
	told     bool // a loss has been logged, and its end has not
	// Guarded by mu. trouble is why the list-watch does not follow the server. If as is not empty, it is the state that
	// this means. trouble ends when the store has the list of the number follows, after which the reflector has had no
	// trouble; zero stands for no list. doubt, of a complete cache, ends when the store has the list of the number
	// settles.
	trouble, doubt   error
	as               State
	follows, settles int
	// Guarded by mu. lines are the changes of the state that are still to be logged; logging says that a goroutine is
	// at it.
	lines   []func()
	logging bool
	// Guarded by mu. What is wrong although lists and watches succeed: the list-watch is not Live as long as one of
	// them is not nil.
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

func newListWatchHealth(h *health, p part) *listWatchHealth {
	return &listWatchHealth{health: h, part: p, now: Health{State: Listing, Since: time.Now()}}
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
	if guide := h.guide.Load(); guide != nil && now.State == Live {
		by, at := guide.getWithFailure()
		if by.Since.After(now.Since) {
			now.Since = by.Since
		}
		switch by.State {
		case Live, Stopped:
		case Listing: // nothing tells of changes yet
			now.State = Listing
		default:
			now.State, now.LastError, failedAt = Stale, by.LastError, at
		}
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

// named adds to an error the part that it is about, if there may be others.
func (h *listWatchHealth) named(err error) error {
	if h.part == whole || err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", h.part, err)
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
	switch wrong := cmp.Or(cmp.Or(h.wrongs[:]...), h.named(h.guide.Load().wrong())); {
	case h.stopped:
		return ErrStopped
	case h.now.Listed == 0:
		err = errors.New("no complete list yet")
	case wrong != nil:
		return wrong
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

// judgeLocked returns the state, and what is the reason for it, nil if all is well.
func (h *listWatchHealth) judgeLocked() (State, error) {
	if h.stopped {
		return Stopped, nil
	}
	complete, why := Stale, cmp.Or(h.doubt, h.trouble, cmp.Or(h.wrongs[:]...))
	if h.doubt != nil && h.trouble != nil {
		why = fmt.Errorf("%w; %w", h.doubt, h.trouble)
	}
	switch {
	case h.trouble != nil && h.as != "":
		return h.as, h.trouble
	case h.now.Listed == 0:
		complete, why = Failed, cmp.Or(h.trouble, h.wrongs[stuckReflector], h.wrongs[stuckStore])
	}
	switch {
	case why != nil:
		return complete, why
	case h.now.Listed == 0:
		return Listing, nil
	}
	return Live, nil
}

// change changes what the state follows from, and logs another state.
func (h *listWatchHealth) change(do func()) {
	h.mu.Lock()
	do()
	if h.follows != 0 && h.now.Listed >= h.follows {
		h.trouble = nil
	}
	if h.now.Listed >= h.settles {
		h.doubt = nil
	}
	now, from := time.Now(), h.now.State
	s, err := h.judgeLocked()
	if err != nil {
		h.now.LastError, h.failedAt = err, now
	}
	if from != s {
		h.now.State, h.now.Since = s, now
	}
	if from != s {
		if say := h.sayLocked(from, s, err); say != nil {
			h.lines = append(h.lines, say)
		}
	}
	h.mu.Unlock()
	if h.moved != nil && (from != s || err != nil) {
		h.moved()
	}
	h.logLines()
}

// logLines logs the changes that are still to be logged. One goroutine at a time does that, so that their lines stand
// in the order of the changes, and the last one says what is the case.
func (h *listWatchHealth) logLines() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.logging {
		return
	}
	h.logging = true
	defer func() { h.logging = false }()
	for len(h.lines) > 0 {
		say := h.lines[0]
		h.lines = h.lines[1:]
		func() {
			h.mu.Unlock()
			defer h.mu.Lock() // also if the logger panics
			say()
		}()
	}
}

// sayLocked returns what logs another state. The end of each loss that is logged is logged, as an error too: who reads
// only errors would take the loss for lasting.
func (h *listWatchHealth) sayLocked(before, now State, err error) func() {
	log, about := h.log, withStack([]any{"state", now, "before", before}, err)
	switch {
	case err != nil:
		if h.part != whole { // what befalls one part often befalls them all
			dropped, ok := h.losses.Allow(linesPerMinute)
			if !ok {
				return nil
			}
			about = append(about, "notLogged", dropped)
		}
		h.told = true
		return func() { log.Error(err, "The cache does not follow the server", about...) }
	case now == Live && h.told:
		h.told = false
		return func() { log.Error(nil, "The cache follows the server again", about...) }
	}
	return func() { log.V(1).Info("Health changed", about...) }
}

func (h *listWatchHealth) logTo(log klog.Logger) {
	h.mu.Lock()
	h.log = log
	h.mu.Unlock()
}

// begins says that the reflector begins anew.
func (h *listWatchHealth) begins() { h.change(func() { h.trouble, h.follows = nil, 0 }) }

// failed says that a list or watch has failed. as is the state that this means; empty: Stale, or Failed if no list is
// complete.
func (h *listWatchHealth) failed(err error, as State) {
	h.change(func() { h.trouble, h.as, h.follows = h.named(err), as, 0 })
}

// failedBeside says that a list beside the watch has failed. The watch goes on, so the state is the same.
func (h *listWatchHealth) failedBeside(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.LastError, h.failedAt = h.named(err), time.Now()
}

// doubted says that somebody doubts a complete cache, until the store has the list of that number.
func (h *listWatchHealth) doubted(doubt error, list int) {
	h.change(func() { h.doubt, h.settles = h.named(doubt), list })
}

// following says that the reflector follows the server since the list of that number.
func (h *listWatchHealth) following(list uint64) { h.change(func() { h.follows = int(list) }) }

// stop says that Run has ended. A goroutine that was stuck and comes back changes nothing any more.
func (h *listWatchHealth) stop() { h.change(func() { h.stopped = true }) }

// wrong returns what is known to be wrong. Nothing is known of a list-watch that is nil.
func (h *listWatchHealth) wrong() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.wrongs[:]...)
}

// is reports whether something is known to be wrong.
func (h *listWatchHealth) is(what wrong) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrongs[what] != nil
}

// knows says that something is wrong, or, with nil, that it no longer is.
func (h *listWatchHealth) knows(what wrong, why error) {
	h.change(func() { h.wrongs[what] = h.named(why) })
}

// progressed says that the store has applied what came at that time. Zero: it came with nothing.
func (h *listWatchHealth) progressed(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at.After(h.now.LastProgress) {
		h.now.LastProgress = at
	}
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
func (h *listWatchHealth) listed(number uint64) { h.change(func() { h.now.Listed = int(number) }) }

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
	for _, now.StuckHandler = range h.stuck {
		break
	}
}

// handlerStuck reports a handler that does not return, or, with nil, that it has. Nothing is reported of one that will
// not be called again.
func (h *health) handlerStuck(p *pulse, ended <-chan struct{}, err error) {
	h.mu.Lock()
	if closed(ended) {
		err = nil
	}
	if h.stuck == nil {
		h.stuck = make(map[*pulse]error)
	}
	before := h.stuck[p]
	delete(h.stuck, p)
	if err != nil {
		h.stuck[p] = err
	}
	h.mu.Unlock()
	switch {
	case err != nil:
		h.log.Error(err, "A handler does not return")
	case before != nil:
		h.log.Error(nil, "A handler has returned after all", "before", before)
	}
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
	if dropped, ok := h.complaints.Allow(linesPerMinute); ok {
		h.log.Error(err, "An object cannot be handled", withStack([]any{"notLogged", dropped}, err)...)
	}
}

// goodObject reports an object that could not be taken before, and is in the cache now, or gone.
func (h *health) goodObject(key Key, gone bool) {
	message := "An object can be handled again"
	if gone {
		message = "An object that could not be handled is gone"
	}
	if dropped, ok := h.complaints.Allow(linesPerMinute); ok {
		h.log.Error(nil, message, "key", briefKey(key), "notLogged", dropped)
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
