package family

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// member is one informer of a family.
type member[N comparable, T any] struct {
	taken   atomic.Bool   // a goroutine opens it
	over    chan struct{} // closed when that has ended
	opened  atomic.Bool   // it runs: what follows is set, and does not change
	err     error         // why it does not; it is to be read when over is closed
	inf     *informer.SharedIndexInformer[T]
	caches  map[*User[N, T]]*debts.Cache
	stop    context.CancelFunc
	givenUp bool // guarded by mu of the family
}

// errGivenUp is why a member does not run that nothing named any more before it was opened.
var errGivenUp = errors.New("given up")

// member returns the informer of a name, which it opens if it is not open.
func (f *Family[N, T]) member(name N) (*member[N, T], error) {
	for {
		f.mu.Lock()
		m := f.members[name]
		if m == nil {
			m = &member[N, T]{over: make(chan struct{}), err: lifecycle.ErrExited} // unless open returns
			f.members[name] = m
		}
		f.mu.Unlock()
		m.once(func() {
			if m.err = f.open(name, m); m.err == nil && !f.named(name) {
				f.look(name) // who named it does so no longer, and the keeper may have looked before it was open
			}
		})
		if m.err == nil {
			return m, nil
		}
		f.mu.Lock()
		if f.members[name] == m {
			delete(f.members, name)
		}
		f.mu.Unlock()
		if m.err != errGivenUp {
			return nil, fmt.Errorf("%s: the informer of %v: %w", f.name, name, m.err)
		}
	}
}

// once calls fn on the goroutine that comes first, and waits for it on the others.
func (m *member[N, T]) once(fn func()) {
	if m.taken.Swap(true) {
		<-m.over
		return
	}
	defer close(m.over) // deferred: fn may end the goroutine
	fn()
}

// open makes an informer, a source of each controller that uses the family, and runs it.
func (f *Family[N, T]) open(name N, m *member[N, T]) error {
	var err error
	panicked := lifecycle.Try(func() { m.inf, err = f.of(name) })
	if err = errors.Join(panicked, err); err != nil {
		return err
	}
	if err := f.check(m.inf); err != nil {
		return err
	}
	learner := debts.NewLearner(m.inf)
	m.caches = make(map[*User[N, T]]*debts.Cache)
	defer func() {
		if !m.opened.Load() {
			f.close(m)
		}
	}()
	for _, u := range f.users {
		m.caches[u] = u.Ledger.Join(m.inf, learner, func() { u.Arrived(name) })
		if err := u.Open(m.inf, m.caches[u]); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return informer.ErrStopped
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(writes.WithLearner(f.run, learner))
	m.opened.Store(true)
	f.group.Go("informer "+m.inf.Name(), func() {
		if err := m.inf.Run(ctx); err != nil {
			f.ended(name, m, fmt.Errorf("informer %s: %w", m.inf.Name(), err))
		}
	})
	return nil
}

// check returns an error for an informer that cannot be run.
func (f *Family[N, T]) check(inf *informer.SharedIndexInformer[T]) error {
	if inf == nil {
		return errors.New("the function given to NewDynamic has returned nil")
	}
	for other, m := range f.now() {
		if m.inf == inf {
			return fmt.Errorf("the function given to NewDynamic has returned the informer of %v", other)
		}
	}
	if h := inf.HealthIn(metav1.NamespaceAll); h.Lists > 0 || inf.HasSynced() || h.State == informer.Stopped {
		return fmt.Errorf("the function given to NewDynamic has returned informer %s, which has run before: it makes "+
			"a new one in each call", inf.Name())
	}
	return nil
}

// ended is told of an informer that has ended with an error. If it was given up, a handler of it is stuck, and that is
// no reason to end the others. Nor is an informer that somebody else has run: it is no member any more, and check says
// what is wrong when a key needs it again.
func (f *Family[N, T]) ended(name N, m *member[N, T], err error) {
	f.mu.Lock()
	givenUp, runsElsewhere := m.givenUp, errors.Is(err, informer.ErrStarted)
	switch {
	case runsElsewhere && f.members[name] == m:
		delete(f.members, name)
	case runsElsewhere:
		givenUp = true // or about to be
	case f.failed == nil:
		f.failed = err
	}
	f.mu.Unlock()
	switch {
	case givenUp:
		f.log().Error(err, "An informer that was given up has not ended", "family", f.name)
	case runsElsewhere:
		f.close(m)
	default:
		f.stop()
	}
}

// giveUp ends an informer that is no longer a member. Run waits for its goroutines. What keys wait for in its cache is
// forgotten, and their writes are remembered for the next leader.
func (f *Family[N, T]) giveUp(m *member[N, T]) {
	m.once(func() { m.err = errGivenUp })
	if !m.opened.Load() {
		return
	}
	f.close(m)
	f.mu.Lock()
	m.givenUp = true
	f.mu.Unlock()
	m.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leaving, m)
	addPast(&f.past, m.inf.HealthIn(metav1.NamespaceAll))
}

// close takes the caches of a member out of the ledgers. It is no source any more.
func (f *Family[N, T]) close(m *member[N, T]) {
	for u, ca := range m.caches {
		u.Close(m.inf, ca)
		u.Ledger.GiveUp(ca, f.log())
	}
}

// complete reports whether the cache holds all of one list. It does before Synced is closed, and keys run then.
func (m *member[N, T]) complete() bool { return m.inf.HealthIn(metav1.NamespaceAll).Listed > 0 }

// unfit returns why the informer may not be acted on, or nil. What is missing from one that is complete holds back the
// keys before they run, unless they may pass.
func (m *member[N, T]) unfit() error {
	for _, ca := range m.caches {
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
