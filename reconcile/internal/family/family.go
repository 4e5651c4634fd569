package family

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Family is a family of informers, by their names. reconcile.Dynamic has the contract of the methods that it passes on.
type Family[N comparable, T any] struct {
	// Never changed once the family runs.
	name  string
	of    func(N) (*informer.SharedIndexInformer[T], error)
	users []*User[N, T]

	started atomic.Bool     // by Run, once
	begun   chan struct{}   // closed by Run
	group   lifecycle.Group // of the informers, and of the goroutine that makes and ends them
	wake    chan struct{}   // holds a value if there are names to look at

	mu sync.Mutex
	// Guarded by mu. changed are the names that are to be looked at. run is the context of the informers, and stop ends
	// it; both are nil before Run. failed is the first error of an informer, and over says that none starts any more.
	// past counts what those have done that were given up.
	changed map[N]struct{}
	members map[N]*member[N, T]
	run     context.Context
	stop    context.CancelFunc
	failed  error
	over    bool
	since   time.Time
	past    informer.Health
	leaving map[*member[N, T]]bool // given up, and not in past yet
}

// New makes a family whose informers of makes.
func New[N comparable, T any](name string, of func(N) (*informer.SharedIndexInformer[T], error)) *Family[N, T] {
	return &Family[N, T]{name: name, of: of, begun: make(chan struct{}), wake: make(chan struct{}, 1),
		changed: make(map[N]struct{}), members: make(map[N]*member[N, T]), leaving: make(map[*member[N, T]]bool),
		since: time.Now()}
}

// Use adds a user, before the family runs.
func (f *Family[N, T]) Use(u *User[N, T]) {
	u.family = f
	f.users = append(f.users, u)
}

// Name returns the name of the family.
func (f *Family[N, T]) Name() string { return f.name }

// Get returns the informer of a name, or why it may not be acted on.
func (f *Family[N, T]) Get(name N) (*informer.SharedIndexInformer[T], error) {
	fail := func(err error) error { return fmt.Errorf("%s: %v: %w", f.name, name, err) }
	f.mu.Lock()
	m, begun, over := f.members[name], f.run != nil, f.over
	f.mu.Unlock()
	switch {
	case over:
		return nil, fail(informer.ErrStopped)
	case (m == nil || !m.opened.Load()) && !f.named(name):
		return nil, fail(informer.ErrNotNamed)
	case !begun:
		return nil, fail(informer.ErrNotKnown)
	}
	m, err := f.member(name)
	if err != nil {
		return nil, err
	}
	if why := m.unfit(); why != nil {
		return nil, fail(fmt.Errorf("%w: %w", informer.ErrNotKnown, why))
	}
	for u, ca := range m.caches { // here, too: a key whose informer is complete before it is parked runs at once
		u.Ready(ca)
	}
	return m.inf, nil
}

// Run makes and ends informers as they are named, until ctx ends and all have ended. An informer that ends by itself
// ends Run with its error.
func (f *Family[N, T]) Run(ctx context.Context) error {
	if f.started.Swap(true) {
		return fmt.Errorf("%w: %s runs once; a Manager that has it runs it", informer.ErrStarted, f.name)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f.mu.Lock()
	f.run, f.stop = ctx, stop
	f.mu.Unlock()
	close(f.begun)
	f.group.Keep("keeper of "+f.name, func() { f.keep(ctx) })
	<-ctx.Done()
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	err := f.group.Wait(grace)
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.failed, err)
}

// grace is how long Run waits for its informers, which have Options.StopGrace for their handlers.
const grace = 15 * time.Second

// WaitForSync waits until Run has begun.
func (f *Family[N, T]) WaitForSync(ctx context.Context) error {
	select {
	case <-f.begun:
		return nil
	default:
	}
	select {
	case <-f.begun:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not run yet: %w", f.name, context.Cause(ctx))
	}
}

// log returns the logger of the Manager. Run has begun.
func (f *Family[N, T]) log() klog.Logger { return klog.FromContext(f.run) }

// named reports whether an object names the informer.
func (f *Family[N, T]) named(name N) bool {
	return slices.ContainsFunc(f.users, func(u *User[N, T]) bool { return u.Named(name) })
}

// look says that objects may name other informers than before.
func (f *Family[N, T]) look(name N) {
	f.mu.Lock()
	if !f.over {
		f.changed[name] = struct{}{}
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // the keeper is going to look anyway
	}
}

// keep makes the informers that are named, and ends those that no longer are, until ctx ends.
func (f *Family[N, T]) keep(ctx context.Context) {
	for ctx.Err() == nil {
		if name, ok := f.next(); ok {
			f.follow(name)
			continue
		}
		select {
		case <-ctx.Done():
		case <-f.wake:
		}
	}
}

// next returns a name that is to be looked at, once.
func (f *Family[N, T]) next() (name N, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name = range f.changed {
		delete(f.changed, name)
		return name, true
	}
	return name, false
}

// follow opens the informer of a name, or gives it up. A key that names it again from now on opens another one.
func (f *Family[N, T]) follow(name N) {
	f.mu.Lock()
	m, named := f.members[name], f.named(name)
	if m != nil && !named {
		delete(f.members, name)
		f.leavesLocked(m)
	}
	f.mu.Unlock()
	switch {
	case named:
		_, _ = f.member(name) // the error is that of the keys
	case m != nil:
		f.giveUp(m)
	}
}

// leavesLocked counts a member that is no longer one among those that are given up.
func (f *Family[N, T]) leavesLocked(m *member[N, T]) {
	if m.opened.Load() {
		f.leaving[m] = true
	}
}

// running returns the informer of a name, or nil if it does not run.
func (f *Family[N, T]) running(name N) *member[N, T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[name]; m != nil && m.opened.Load() {
		return m
	}
	return nil
}

// now returns the informers that run.
func (f *Family[N, T]) now() map[N]*member[N, T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	running := make(map[N]*member[N, T], len(f.members))
	for name, m := range f.members {
		if m.opened.Load() {
			running[name] = m
		}
	}
	return running
}
