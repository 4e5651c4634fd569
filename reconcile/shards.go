package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// With shards every process leads, each some slices of the keys. The workers of all processes run, and this file has
// what is different about them:
//
//	a worker has a key      it enters the key's slice, or lets the key go: worker.enter, worker.letGo
//	a slice comes           the caches come as far as its last owner has left word, or list anew: share.settle;
//	                        then its keys are queued: share.name
//	a slice goes            what its keys have written is left for the next owner: share.word
//	somebody asks           shardOf
//
// A key of another process is let go, and not kept for the time when its slice comes: then the caches name it again. So
// a process does not remember the keys of all others.

// sharder is an [Elector] with which all processes lead at once, such as *sharding.Shards.
type sharder interface {
	Elector
	// Enter begins a run of a key. Its error says that this process does not lead the key's slice.
	Enter(ctx context.Context, key Key) (working context.Context, leave func(), err error)
	// Inherit calls settle for the slices that come, with what their last owners have left, and opened when Enter lets
	// their keys in, until ctx ends. all says that every last owner has left something.
	Inherit(ctx context.Context, settle func(ctx context.Context, words []string, all bool), opened func(slices []int))
	// LeaveWords sets what is called when the work of slices has ended that are about to be given away.
	LeaveWords(leave func(slices []int) string)
	// Leave says that this process is about to end: it gets no slices any more. It goes on with those that it has while
	// others prepare for them, and returns when it has none, or time is up, or ctx has ended: then it gives away each
	// as soon as no run of a key of it goes on.
	Leave(ctx context.Context)
	// Slice and Leader are about the slice of a key, and Owns reports whether Enter would let it in.
	Slice(key Key) int
	// CutsByKey reports whether two keys of one namespace may be in different slices.
	CutsByKey() bool
	Leader(key Key) (slice int, identity string, since time.Time)
	Owns(key Key) bool
	String() string
	Identity() string
	// Health says which slices nobody leads.
	Health() error
}

// share is what a Manager does about the slices that come to this process.
type share struct{ *Manager }

// shareless returns an error if an informer keeps the objects of this process's slices only, and it has none.
func (opts ManagerOptions) shareless(inf Informer) error {
	_, shards := opts.Elector.(sharder)
	if !shards && scopeOf(inf).Sharded() {
		return fmt.Errorf("informer %s has Options.Shard, and ManagerOptions.Elector is not the shards: its cache "+
			"would stay empty", inf.Name())
	}
	return nil
}

// misplaced returns an error if an object of a source may be in the slice of its own key, and the key that it names in
// another one: the process that runs the key would never see the object.
func (opts ManagerOptions) misplaced(c *Controller, s *source) error {
	shards, ok := opts.Elector.(sharder)
	if !ok || !s.others || !scopeOf(s.from).ByKey() || !shards.CutsByKey() {
		return nil
	}
	return fmt.Errorf("controller %q: %s: the informer keeps objects by their own keys (sharding.Keys), and %s has "+
		"slices that are cut by key: an object may be in another slice than the key that it names. Use sharding.Owned "+
		"or sharding.Of", c.name, s.name, shards)
}

// scopeOf returns the scope of an informer; one that has none sees all.
func scopeOf(inf Informer) (scope informer.Scope) {
	if scoped, ok := inf.(interface{ Scope() informer.Scope }); ok {
		scope = scoped.Scope()
	}
	return scope
}

// follow lets the work of slices begin that come, until ctx ends.
func (m share) follow(ctx context.Context, group *lifecycle.Group) {
	if m.shards != nil {
		group.Go("slices", func() { m.shards.Inherit(ctx, m.settle, m.name) })
	}
}

// intake returns the ctx with which workers take keys. With shards it does not end with the Manager's, but after leave.
func (m share) intake(ctx context.Context) context.Context {
	if m.shards == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// leave returns when no key is to be taken any more: the Manager was told to end, and others are prepared for its
// slices, or half of DrainTimeout has passed. One in which something has failed, or fails meanwhile, does not wait for
// them: its caches may have ended.
func (m share) leave(ctx, tenure context.Context) {
	if m.shards == nil || ctx.Err() == nil {
		return
	}
	preparing, cancel := context.WithTimeout(tenure, m.opts.DrainTimeout/2)
	defer cancel()
	if m.failures.stopOn(cancel) != nil { // ctx, which they have ended so far, has ended
		cancel()
	}
	m.shards.Leave(preparing)
}

// settle returns when the caches show what earlier owners of slices have written. If one has left no word they list
// anew, since it may have just written.
func (m share) settle(ctx context.Context, words []string, all bool) {
	var left []debts.Legacy
	for _, word := range words {
		var of []debts.Legacy
		if err := json.Unmarshal([]byte(word), &of); err != nil {
			klog.FromContext(ctx).Error(err, "The word of a slice's last owner cannot be read; all caches list anew")
			all = false
		}
		left = append(left, of...)
	}
	if !all {
		left = append(left, m.ledgers.Unsteady(false)...)
	}
	if len(left) > 0 {
		rest, _ := m.inherit(ctx, debts.Merge(left))
		m.unseen.add(rest)
	}
}

// word returns what the next owners of slices, whose work has ended here, have to have seen.
func (m share) word(going []int) string {
	writers := make(map[Key]bool)
	for _, key := range m.ledgers.Writers() {
		if slices.Contains(going, m.shards.Slice(key)) {
			writers[key] = true
		}
	}
	return encodeHandover(debts.Merge(append(m.unseen.all(), m.ledgers.LeftBy(writers)...)))
}

// unseenWords are what words have told of, and no cache here is to show, or has shown: for the next owners.
type unseenWords struct {
	mu sync.Mutex
	// Guarded by mu.
	left []debts.Legacy
	at   time.Time // when something was added last
}

func (u *unseenWords) add(left []debts.Legacy) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(left) > 0 {
		u.left, u.at = debts.Merge(append(u.left, left...)), time.Now()
	}
}

// all returns them, unless they are so old that any cache has come past them.
func (u *unseenWords) all() []debts.Legacy {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.at) > debts.LeftFor {
		u.left = nil
	}
	return slices.Clone(u.left)
}

// slicesCause is the cause of a key that is named because its slice has come.
const slicesCause = "a slice that has come"

// name queues the keys of slices that have come: those that each source would name if its informer had just
// started, and those that were let go and that no source would name.
func (m share) name(come []int) {
	mine := make(map[int]bool, len(come))
	for _, slice := range come {
		mine[slice] = true
	}
	for _, c := range m.opts.Controllers {
		name := func(key Key, stays bool) {
			if mine[m.shards.Slice(key)] {
				c.keys.Named(key, slicesCause, Key{}, "", keys.Sighting{Stays: stays})
				c.add(key, true)
			}
		}
		for _, s := range c.sources {
			s.each(func(key Key) { name(key, !s.reads) })
		}
		for s := range c.comers.sources() {
			s.each(func(key Key) { name(key, !s.reads) })
		}
		for _, key := range c.gone.All() {
			name(key, false)
		}
	}
}

// enter begins the work of the key that the worker has taken, which ends with leave: ctx is that of its run. Another
// process may lead the key.
func (w *worker) enter(key Key) (leave func(), err error) {
	w.ctx = w.runCtx
	if w.shards == nil {
		return func() {}, nil
	}
	ctx, leave, err := w.shards.Enter(w.runCtx, key)
	if err == nil {
		w.ctx = ctx
	}
	return leave, err
}

// letGo forgets a key that another process leads. If its slice has come in the meantime, it is named again: the look
// comes last, and [share.name] after the slice is open, so one of the two finds the key. What the caches would not name
// then is remembered.
func (w *worker) letGo(key Key) {
	exists := func(s *source) bool { _, ok := s.cache.Version(key); return ok }
	if !keys.Unname(w.keys, key) && !anySubject(w.sources, exists) {
		w.gone.Add(key, debts.LeftFor, func(key Key) bool {
			return anySubject(w.sources, func(s *source) bool { return s.invalidObject(key) != nil })
		})
	}
	if w.shards.Owns(key) {
		w.enqueueFor(key, slicesCause)
	}
}

// anySubject reports whether something holds for one of the sources of For.
func anySubject(sources []source, holds func(*source) bool) bool {
	for i := range sources {
		if s := &sources[i]; s.subject && holds(s) {
			return true
		}
	}
	return false
}

// shardOf returns what is known of the slice of a key, or nil without shards.
func shardOf(shards sharder, key Key) *status.Shard {
	if shards == nil {
		return nil
	}
	s := &status.Shard{Here: shards.Owns(key)}
	s.Slice, s.Leader, s.Since = shards.Leader(key)
	return s
}
