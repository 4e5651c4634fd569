package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Dynamic is a family of informers that come and go while a Manager runs: one for each kind that a spec names, or for
// each namespace of a tenant. Each has a name, which may be of any type that can be compared, such as a namespace, a
// GroupVersionResource, or a struct of both. An informer is made and run when an object first names it, and ended when
// no object names it any more: then its goroutines end, and its memory is free. Make a family with [NewDynamic], and
// say with [Needs] what names its informers.
//
// The family as a whole is an [Informer], which the Manager runs and shows. Its Health is Live as long as one of the
// informers is, and Health.Unknown counts those that are not complete. A kind that is missing or refused affects the
// keys that name it, and neither other keys nor /readyz: see [Needs].
type Dynamic[N comparable, T any] struct {
	// Never changed after NewManager.
	name    string
	of      func(N) (*informer.SharedIndexInformer[T], error)
	users   []*user[N, T]
	manager *Manager

	started atomic.Bool     // by Run, once
	begun   chan struct{}   // closed by Run
	group   lifecycle.Group // of the informers, and of the goroutine that makes and ends them
	wake    chan struct{}   // holds a value if there are names to look at

	mu sync.Mutex
	// Guarded by mu. changed are the names that are to be looked at. run is the context of the informers, and stop ends
	// it; both are nil before Run. failed is the first error of an informer, and over says that none starts any more.
	// past counts what those have done that were given up.
	changed map[N]struct{}
	members map[N]*member[T]
	run     context.Context
	stop    context.CancelFunc
	failed  error
	over    bool
	since   time.Time
	past    informer.Health
	leaving map[*member[T]]bool // given up, and not in past yet
}

// member is one informer of a family.
type member[T any] struct {
	taken   atomic.Bool   // a goroutine opens it
	over    chan struct{} // closed when that has ended
	opened  atomic.Bool   // it runs: what follows is set, and does not change
	err     error         // why it does not; it is to be read when over is closed
	inf     *informer.SharedIndexInformer[T]
	comers  map[*Controller]*comer
	stop    context.CancelFunc
	givenUp bool // guarded by mu of the family
}

// comer is an informer of a family as a source of a controller.
type comer struct {
	*debts.Cache
	sources []source    // added before it is opened, and not changed then
	failed  error       // the first error of those
	opened  atomic.Bool // it has all of them
}

// join lets the controller depend on an informer that does not run yet. Its sources may be added until it is opened.
func (c *Controller) join(inf debts.Informer, learner *writes.Learner, arrived func()) *comer {
	in := &comer{Cache: c.ledger.Join(inf, learner, arrived)}
	c.comers.Store(inf, in)
	return in
}

// now returns the sources, once there are all of them.
func (in *comer) now() []source {
	if !in.opened.Load() {
		return nil
	}
	return in.sources
}

// errGivenUp is why a member does not run that nothing named any more before it was opened.
var errGivenUp = errors.New("given up")

// NewDynamic makes a family. Its name stands in logs, errors and metrics. of makes the informer of a name: a new one in
// each call, because a name may come back that was given up. The informer should have a name of its own, as logs and
// Why tell informers apart by it. of sends no request, and is called by several goroutines at once, on standbys, too.
// Its error, as for a name that can be no resource, is that of [Dynamic.Get], so that Reconcile can report it. The keys
// do not wait for such an informer, and of is called again when they run again.
//
// A handler of an informer that does not return when its informer is given up is logged, and Run tells of it at its
// end.
//
// An informer sends its first list at once. If the server refuses it, or does not know the resource yet, the informer
// keeps asking, so a Role or a CustomResourceDefinition that arrives later is enough.
func NewDynamic[N comparable, T any](name string, of func(N) (*informer.SharedIndexInformer[T], error)) (*Dynamic[N, T],
	error) {
	var errs []error
	if name == "" {
		errs = append(errs, errors.New("the name is empty"))
	}
	if of == nil {
		errs = append(errs, errors.New("the function that makes the informers is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("NewDynamic %q: %w", name, err)
	}
	return &Dynamic[N, T]{name: name, of: of, begun: make(chan struct{}), wake: make(chan struct{}, 1),
		changed: make(map[N]struct{}), members: make(map[N]*member[T]), leaving: make(map[*member[T]]bool),
		since: time.Now()}, nil
}

// Get returns the informer of a name, whose cache is complete. The informer is good for this call of Reconcile. In the
// next one it may be given up, so call Get again. In a call for a key whose object names the informer, there is an
// error only if
//
//   - the server refuses what the informer asks for, or does not know its kind: the error wraps
//     [informer.ErrNotKnown] and the server's answer, so apierrors.IsForbidden and apierrors.IsNotFound tell which;
//   - the informer cannot be made: it wraps the error of the function given to [NewDynamic];
//   - the object has changed since the call began: it wraps [informer.ErrNotNamed] or [informer.ErrNotKnown].
//
// The first two Reconcile may report in the object's status. Return the error otherwise. After the end of the Manager
// it wraps [informer.ErrStopped].
func (d *Dynamic[N, T]) Get(name N) (*informer.SharedIndexInformer[T], error) {
	fail := func(err error) error { return fmt.Errorf("%s: %v: %w", d.name, name, err) }
	d.mu.Lock()
	m, begun, over := d.members[name], d.run != nil, d.over
	d.mu.Unlock()
	switch {
	case over:
		return nil, fail(informer.ErrStopped)
	case (m == nil || !m.opened.Load()) && !d.named(name):
		return nil, fail(informer.ErrNotNamed)
	case !begun:
		return nil, fail(informer.ErrNotKnown)
	}
	m, err := d.member(name)
	if err != nil {
		return nil, err
	}
	if why := m.unfit(); why != nil {
		return nil, fail(fmt.Errorf("%w: %w", informer.ErrNotKnown, why))
	}
	for c, ca := range m.comers { // here, too: a key whose informer is complete before it is parked runs at once
		c.manager.checkTracked(c.name, ca.Cache)
	}
	return m.inf, nil
}

// unfit returns why the informer may not be acted on, or nil. What is missing from one that is complete holds back the
// keys before they run, unless they may pass.
func (m *member[T]) unfit() error {
	for _, ca := range m.comers {
		if m.complete() && !ca.Passed() || ca.Ready(metav1.NamespaceAll) {
			continue
		}
		if why := m.inf.Fresh(metav1.NamespaceAll); why != nil {
			return why
		}
		return fmt.Errorf("the list is not complete that is to show what happened before: %w",
			m.inf.HealthIn(metav1.NamespaceAll).LastError)
	}
	return nil
}

// Name returns the name of the family.
func (d *Dynamic[N, T]) Name() string { return d.name }

// Run makes and ends informers as they are named, until ctx ends and all have ended. The Manager calls it. An informer
// that ends by itself ends Run with its error.
func (d *Dynamic[N, T]) Run(ctx context.Context) error {
	if d.started.Swap(true) {
		return fmt.Errorf("%w: %s runs once; a Manager that has it runs it", informer.ErrStarted, d.name)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d.mu.Lock()
	d.run, d.stop = ctx, stop
	d.mu.Unlock()
	close(d.begun)
	d.group.Keep("keeper of "+d.name, func() { d.keep(ctx) })
	<-ctx.Done()
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	err := d.group.Wait(dynamicGrace)
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.failed, err)
}

// dynamicGrace is how long Run waits for its informers, which have Options.StopGrace for their handlers.
const dynamicGrace = 15 * time.Second

// WaitForSync waits until Run has begun: a family has no first list. The keys wait for the informers that they need.
func (d *Dynamic[N, T]) WaitForSync(ctx context.Context) error {
	select {
	case <-d.begun:
		return nil
	default:
	}
	select {
	case <-d.begun:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not run yet: %w", d.name, context.Cause(ctx))
	}
}

// ResourceVersion returns the empty string: the informers of a family have no common version.
func (d *Dynamic[N, T]) ResourceVersion(string) string { return "" }

// Len returns how many objects the informers hold together.
func (d *Dynamic[N, T]) Len() (n int) {
	for _, m := range d.now() {
		n += m.inf.Len()
	}
	return n
}

// Health sums up the health of the informers. State is Live unless some of those that are complete are Stale or Failed,
// and none is Live: then it is that of one of these. Unknown counts those that are not complete. Numbers are sums,
// those of Lists and of its like with the informers that were given up.
func (d *Dynamic[N, T]) Health() informer.Health {
	d.mu.Lock()
	h, running, unknown := d.past, make([]*member[T], 0, len(d.members)), 0
	for _, m := range d.members {
		if m.opened.Load() {
			running = append(running, m)
		} else {
			unknown++
		}
	}
	leaving := slices.Collect(maps.Keys(d.leaving))
	h.Unknown, h.State, h.Since = unknown, informer.Live, d.since
	if d.over {
		h.State = informer.Stopped
	}
	d.mu.Unlock()
	for _, m := range leaving {
		addPast(&h, m.inf.HealthIn(metav1.NamespaceAll))
	}
	live := h.State != informer.Live
	var failing informer.Health
	for _, m := range running {
		of := m.inf.Health()
		addPast(&h, of)
		h.Rejected, h.Queued, h.Bytes = h.Rejected+of.Rejected, h.Queued+of.Queued, h.Bytes+of.Bytes
		switch {
		case !m.complete():
			h.Unknown++
		case of.State == informer.Live:
			live = true
			if h.LastProgress.IsZero() || of.LastProgress.Before(h.LastProgress) {
				h.LastProgress = of.LastProgress
			}
		case of.State == informer.Stale || of.State == informer.Failed:
			failing = of
		}
	}
	if !live && failing.State != "" {
		h.State, h.Since, h.LastError, h.LastProgress = failing.State, failing.Since, failing.LastError,
			failing.LastProgress
	}
	return h
}

// running returns the informer of a name, or nil if it does not run.
func (d *Dynamic[N, T]) running(name N) *member[T] {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.members[name]; m != nil && m.opened.Load() {
		return m
	}
	return nil
}

// addPast adds what an informer has counted since it began.
func addPast(h *informer.Health, of informer.Health) {
	h.Lists, h.Rewinds = h.Lists+of.Lists, h.Rewinds+of.Rewinds
	h.Differences, h.Mutated = h.Differences+of.Differences, h.Mutated+of.Mutated
}

// now returns the informers that run.
func (d *Dynamic[N, T]) now() map[N]*member[T] {
	d.mu.Lock()
	defer d.mu.Unlock()
	running := make(map[N]*member[T], len(d.members))
	for name, m := range d.members {
		if m.opened.Load() {
			running[name] = m
		}
	}
	return running
}

// parts describes the informers by their names.
func (d *Dynamic[N, T]) parts(withText bool) (list []status.Namespace) {
	for name, m := range d.now() {
		h := m.inf.HealthIn(metav1.NamespaceAll)
		list = append(list, status.Namespace{Name: fmt.Sprint(name),
			ResourceVersion: m.inf.ResourceVersion(metav1.NamespaceAll), State: string(h.State), Since: h.Since,
			Reason: debts.ReasonOf(h, withText), LastProgress: h.LastProgress})
	}
	slices.SortFunc(list, func(a, b status.Namespace) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// belongTo returns the Manager that the family belongs to: from now on this one, unless it had one before, or this one
// is nil.
func (d *Dynamic[N, T]) belongTo(m *Manager) *Manager {
	if d.manager == nil {
		d.manager = m
	}
	return d.manager
}

// controllers returns those that use the family.
func (d *Dynamic[N, T]) controllers() (all []*Controller) {
	for _, u := range d.users {
		all = append(all, u.Controller)
	}
	return all
}

// named reports whether an object names the informer.
func (d *Dynamic[N, T]) named(name N) bool {
	return slices.ContainsFunc(d.users, func(u *user[N, T]) bool { return u.named(name) })
}

// look says that objects may name other informers than before.
func (d *Dynamic[N, T]) look(name N) {
	d.mu.Lock()
	if !d.over {
		d.changed[name] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // the keeper is going to look anyway
	}
}

// keep makes the informers that are named, and ends those that no longer are, until ctx ends.
func (d *Dynamic[N, T]) keep(ctx context.Context) {
	for ctx.Err() == nil {
		if name, ok := d.next(); ok {
			d.follow(name)
			continue
		}
		select {
		case <-ctx.Done():
		case <-d.wake:
		}
	}
}

// next returns a name that is to be looked at, once.
func (d *Dynamic[N, T]) next() (name N, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name = range d.changed {
		delete(d.changed, name)
		return name, true
	}
	return name, false
}

// follow opens the informer of a name, or gives it up. A key that names it again from now on opens another one.
func (d *Dynamic[N, T]) follow(name N) {
	d.mu.Lock()
	m, named := d.members[name], d.named(name)
	if m != nil && !named {
		delete(d.members, name)
		d.leavesLocked(m)
	}
	d.mu.Unlock()
	switch {
	case named:
		_, _ = d.member(name) // the error is that of the keys
	case m != nil:
		d.giveUp(m)
	}
}

// leavesLocked counts a member that is no longer one among those that are given up.
func (d *Dynamic[N, T]) leavesLocked(m *member[T]) {
	if m.opened.Load() {
		d.leaving[m] = true
	}
}

// member returns the informer of a name, which it opens if it is not open.
func (d *Dynamic[N, T]) member(name N) (*member[T], error) {
	for {
		d.mu.Lock()
		m := d.members[name]
		if m == nil {
			m = &member[T]{over: make(chan struct{}), err: lifecycle.ErrExited} // unless open returns
			d.members[name] = m
		}
		d.mu.Unlock()
		m.open(func() {
			if m.err = d.open(name, m); m.err == nil && !d.named(name) {
				d.look(name) // who named it does so no longer, and the keeper may have looked before it was open
			}
		})
		if m.err == nil {
			return m, nil
		}
		d.mu.Lock()
		if d.members[name] == m {
			delete(d.members, name)
		}
		d.mu.Unlock()
		if m.err != errGivenUp {
			return nil, fmt.Errorf("%s: the informer of %v: %w", d.name, name, m.err)
		}
	}
}

// open calls fn once, on the goroutine that comes first, and waits for it.
func (m *member[T]) open(fn func()) {
	if m.taken.Swap(true) {
		<-m.over
		return
	}
	defer close(m.over) // deferred: fn may end the goroutine
	fn()
}

// open makes an informer, a source of each controller that uses the family, and runs it.
func (d *Dynamic[N, T]) open(name N, m *member[T]) error {
	var err error
	panicked := lifecycle.Try(func() { m.inf, err = d.of(name) })
	if err = errors.Join(panicked, err); err != nil {
		return err
	}
	if err := d.check(m.inf); err != nil {
		return err
	}
	learner := debts.NewLearner(m.inf)
	m.comers = make(map[*Controller]*comer)
	defer func() {
		if !m.opened.Load() {
			m.leave(d.log())
		}
	}()
	for _, u := range d.users {
		in := u.join(m.inf, learner, func() { u.arrived(name) })
		m.comers[u.Controller] = in
		if err := u.addSources(m.inf, in); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return informer.ErrStopped
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(writes.WithLearner(d.run, learner))
	m.opened.Store(true)
	d.group.Go("informer "+m.inf.Name(), func() {
		if err := m.inf.Run(ctx); err != nil {
			d.ended(name, m, fmt.Errorf("informer %s: %w", m.inf.Name(), err))
		}
	})
	return nil
}

// ended is told of an informer that has ended with an error. If it was given up, a handler of it is stuck, and that is
// no reason to end the others. Nor is an informer that somebody else has run: it is no member any more, and check says
// what is wrong when a key needs it again.
func (d *Dynamic[N, T]) ended(name N, m *member[T], err error) {
	d.mu.Lock()
	givenUp, runsElsewhere := m.givenUp, errors.Is(err, informer.ErrStarted)
	switch {
	case runsElsewhere && d.members[name] == m:
		delete(d.members, name)
	case runsElsewhere:
		givenUp = true // or about to be
	case d.failed == nil:
		d.failed = err
	}
	d.mu.Unlock()
	switch {
	case givenUp:
		d.log().Error(err, "An informer that was given up has not ended", "family", d.name)
	case runsElsewhere:
		m.leave(d.log())
	default:
		d.stop()
	}
}

// log returns the logger of the Manager. Run has begun.
func (d *Dynamic[N, T]) log() klog.Logger { return klog.FromContext(d.run) }

// check returns an error for an informer that cannot be run.
func (d *Dynamic[N, T]) check(inf *informer.SharedIndexInformer[T]) error {
	if inf == nil {
		return errors.New("the function given to NewDynamic has returned nil")
	}
	for other, m := range d.now() {
		if m.inf == inf {
			return fmt.Errorf("the function given to NewDynamic has returned the informer of %v", other)
		}
	}
	switch h := inf.HealthIn(metav1.NamespaceAll); {
	case d.manager != nil && d.manager.runs(inf):
		return fmt.Errorf("the function given to NewDynamic has returned informer %s, which the Manager runs",
			inf.Name())
	case h.Lists > 0 || inf.HasSynced() || h.State == informer.Stopped:
		return fmt.Errorf("the function given to NewDynamic has returned informer %s, which has run before: it makes "+
			"a new one in each call", inf.Name())
	}
	return nil
}

// giveUp ends an informer that is no longer a member. Run waits for its goroutines. What keys wait for in its cache is
// forgotten, and their writes are remembered for the next leader.
func (d *Dynamic[N, T]) giveUp(m *member[T]) {
	m.open(func() { m.err = errGivenUp })
	if !m.opened.Load() {
		return
	}
	m.leave(d.log())
	d.mu.Lock()
	m.givenUp = true
	d.mu.Unlock()
	m.stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leaving, m)
	addPast(&d.past, m.inf.HealthIn(metav1.NamespaceAll))
}

// complete reports whether the cache holds all of one list. It does before Synced is closed, and keys run then.
func (m *member[T]) complete() bool { return m.inf.HealthIn(metav1.NamespaceAll).Listed > 0 }

// leave takes the caches out of the ledgers.
func (m *member[T]) leave(log klog.Logger) {
	for c, in := range m.comers {
		c.comers.CompareAndDelete(m.inf, in)
		c.ledger.GiveUp(in.Cache, log)
	}
}
