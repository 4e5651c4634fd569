package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/election"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

var (
	// ErrNotOwned is wrapped by the error of [Shards.Enter] for a key whose slice this replica does not own, or does
	// not own any more, and by that of a request that the fence refused or cut off.
	ErrNotOwned = errors.New("sharding: this replica does not own the slice")
	// ErrLost is wrapped by what Run returns when the tenure was lost, with the reason: no renewal was acknowledged in
	// time, or somebody has deleted or edited a Lease. Call Run again to take part again.
	ErrLost = errors.New("sharding: the tenure was lost")
	// ErrStuck is wrapped by what Run returns when work has not ended in time. Its slices are not released, but the
	// replica's Lease will expire: the process should exit before it does.
	ErrStuck = lifecycle.ErrStuck
	// ErrRunning is returned by Run while an earlier Run has not returned.
	ErrRunning = errors.New("sharding: Run was called while it was running")
)

// Shards is one replica of a group that shares the slices. It is made by [New]; its zero value is not useful. Run takes
// part, for one tenure per call and in one call at a time, and Inherit is called in one call at a time; every other
// method may be called at any time, from any goroutine.
type Shards struct {
	// Never changed after New.
	opts   Options // with its defaults
	client *client
	by     string // the fingerprint of Options.By

	requests atomic.Uint64
	running  atomic.Bool
	caches   caches // its mu may not be taken with this one's held

	mu sync.Mutex
	// Guarded by mu. r is the rules of the present tenure, nil while there is none; works has its slices, until their
	// work has ended. r.holds has each slice of works that this replica may work on.
	r       *replica
	works   map[int]*work
	tenure  context.Context // of r: ends when that is over
	end     context.CancelCauseFunc
	changed chan struct{}             // closed, and made anew, when anything here has changed
	leave   func(slices []int) string // nil: no words are left
	stuck   bool                      // work of an earlier tenure goes on; never reset
	last    *replica                  // of the tenure before, whose work has ended; nil: there was none
	seen    world
	lease   *coordinationv1.Lease // the table's, as it was seen: what is written keeps its metadata
	led     []led                 // of each slice; nil before the first Run
	loads   loads
	failing error // why this replica has no Lease; nil: it has one, or has not asked for it
	refusal error // why there can be no table; nil: there can
	member  bool  // some tenure has come as far as the table
	stats   Stats
}

// work is the work of one slice in one tenure.
type work struct {
	slice   int
	epoch   int64
	ctx     context.Context // ends when the work has to
	cancel  context.CancelCauseFunc
	kept    context.Context // a child of ctx that ends as soon as the slice is to be given away
	release context.CancelCauseFunc
	open    bool        // Inherit has settled what earlier owners have left: Enter lets work begin
	running int         // calls of Enter that have not left
	drain   *time.Timer // ends ctx; nil until the slice is to be given away
	// stopping is since when the work has to end; zero: it may go on.
	stopping time.Time
}

// New checks the options and makes a replica. It sends no request.
func New(opts Options) (*Shards, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Shards{opts: opts, by: fingerprint(opts.By, opts.ByKeyIn), works: map[int]*work{},
		changed: make(chan struct{})}
	s.tenure, s.end = context.WithCancelCause(context.Background())
	s.client, err = newClient(opts, func() { s.requests.Add(1) })
	return s, err
}

// Slice returns the slice of a key.
func (s *Shards) Slice(key types.NamespacedName) int {
	return sliceOf(s.opts.By(key), s.count())
}

// CutsByKey reports whether two keys of one namespace may be in different slices, as far as a look at some keys shows:
// by [ByKey], or by Options.ByKeyIn for some namespaces. Then [Keys] is for the objects of the keys only, and for those
// that have the key's name.
func (s *Shards) CutsByKey() bool {
	owner, child := types.NamespacedName{Namespace: "default", Name: "web"},
		types.NamespacedName{Namespace: "default", Name: "web-0"}
	cuts := len(s.opts.ByKeyIn) > 0
	_ = lifecycle.Try(func() { cuts = cuts || s.opts.By(owner) != s.opts.By(child) }) // as in fingerprint
	return cuts
}

// count is the number of slices: that of the table, once it was seen.
func (s *Shards) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked()
}

func (s *Shards) countLocked() int {
	if s.seen.table != nil {
		return len(s.seen.table.Owners)
	}
	return s.opts.Slices
}

// Owns reports whether the work of a key may begin at this moment. The tenure may end before the caller acts upon the
// answer: use [Shards.Enter] for work, and [Shards.Fence] for writes.
func (s *Shards) Owns(key types.NamespacedName) bool {
	text := s.opts.By(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownsLocked(sliceOf(text, s.countLocked())) != nil
}

// ownsLocked returns the work of a slice, if it may begin.
func (s *Shards) ownsLocked(slice int) *work {
	if w := s.works[slice]; w != nil && w.open && s.r.owns(slice, s.now()) {
		return w
	}
	return nil
}

// Enter begins work on a key, such as one call of Reconcile. Its error wraps [ErrNotOwned] if this replica does not own
// the key's slice, or [Shards.Inherit] has not opened it yet. The slice is not given away before leave was called,
// which the work does when it has ended. Its context ends when the slice is lost, or others have asked for it and
// DrainTimeout has passed: then it has to return within StopGrace.
func (s *Shards) Enter(ctx context.Context, key types.NamespacedName) (working context.Context, leave func(),
	err error) {
	text := s.opts.By(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	slice := sliceOf(text, s.countLocked())
	w := s.ownsLocked(slice)
	if w == nil {
		return nil, nil, fmt.Errorf("%w %d, of %s", ErrNotOwned, slice, key)
	}
	w.running++
	began := time.Now()
	working, cancel := context.WithCancelCause(context.WithValue(ctx, workKey{s}, w))
	unhook := context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) })
	return working, sync.OnceFunc(func() {
		unhook()
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.loads.ran(slice, time.Since(began))
		if w.running--; w.running == 0 && !w.stopping.IsZero() {
			s.settleLocked()
		}
	}), nil
}

// A workKey is the key of a work in the context that Enter returns.
type workKey struct{ *Shards }

// Epoch returns the epoch of the slice for the work that has this context, such as a call of Reconcile: false for any
// other context. It is higher than that of every earlier owner of the slice, as long as nobody deletes or edits the
// table: a store that keeps the highest one can refuse the writes of earlier owners.
func (s *Shards) Epoch(ctx context.Context) (epoch int64, ok bool) {
	if w, ok := ctx.Value(workKey{s}).(*work); ok {
		return w.epoch, true
	}
	return 0, false
}

// settleLocked makes works what the rules say, after every change of theirs.
func (s *Shards) settleLocked() {
	for slice, w := range s.works {
		h := s.r.holds[slice]
		if h != nil && h.phase == working && s.r.over == nil {
			continue
		}
		if w.stopping.IsZero() {
			w.stopping = time.Now()
		}
		switch {
		case s.r.over != nil:
			w.cancel(fmt.Errorf("%w any more: %w", ErrNotOwned, s.r.over))
		case w.drain == nil:
			why := fmt.Errorf("%w any more: another replica waits for it", ErrNotOwned)
			if s.r.leaving {
				why = fmt.Errorf("%w any more: this replica leaves", ErrNotOwned)
			}
			w.release(why)
			w.drain = time.AfterFunc(s.opts.DrainTimeout, func() { w.cancel(why) })
		}
		if w.running == 0 {
			if w.drain != nil {
				w.drain.Stop()
			}
			w.cancel(nil)
			s.r.workEnded(slice)
			delete(s.works, slice)
			s.stats.Lost++
		}
	}
	if s.r != nil {
		s.member = s.member || s.r.number != 0
		for slice, h := range s.r.holds {
			if h.phase == working && s.works[slice] == nil && s.r.over == nil {
				w := &work{slice: slice, epoch: h.epoch}
				w.ctx, w.cancel = context.WithCancelCause(s.tenure)
				w.kept, w.release = context.WithCancelCause(w.ctx)
				s.works[slice] = w
				s.stats.Gained++
			}
		}
		if s.r.over != nil {
			s.end(fmt.Errorf("%w any more: %w", ErrNotOwned, s.r.over))
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Shards) now() election.Instant {
	now := time.Now()
	return election.Instant{Mono: now, Wall: now.Round(0)}
}

// pace is about so many RetryPeriods.
func (s *Shards) pace(n float64) time.Duration {
	return time.Duration(float64(s.opts.RetryPeriod) * n * (1 + 0.2*s.opts.random()))
}

// String returns namespace/name of the table.
func (s *Shards) String() string { return s.opts.Namespace + "/" + s.opts.Name }

// Leader returns the slice of a key and who leads it, by its identity, as far as this replica has seen: empty if nobody
// does. since is when it has seen that first.
func (s *Shards) Leader(key types.NamespacedName) (slice int, identity string, since time.Time) {
	slice = s.Slice(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.seen.table; t != nil && slice < len(s.led) && slice < len(t.Owners) {
		for _, m := range t.Members {
			if m.Number == t.Owners[slice] {
				return slice, m.Seat, s.led[slice].since
			}
		}
	}
	return slice, "", time.Time{}
}

// Identity returns the readable name of this replica.
func (s *Shards) Identity() string { return s.opts.Identity }
