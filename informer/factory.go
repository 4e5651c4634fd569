package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Factory lets parts of a program that do not know each other share informers: one watch and one copy for all who ask
// for the same. An informer runs from its first user to its last. The zero value is ready for use; its owner calls Run,
// once.
//
//	var f informer.Factory
//	inf, err := informer.New[*corev1.Pod](clientset.CoreV1().Pods(metav1.NamespaceAll), informer.Options[*corev1.Pod]{})
//	pods, err := informer.Share(&f, "pods", inf) // inf itself, or the one that somebody has shared before
//	defer pods.Release(ctx)
//
// Where one part of the program can hand its informer to the others, that is simpler. The informers of a factory are
// run by it, and by nobody else.
type Factory struct {
	mu sync.Mutex
	// Guarded by mu. Each informer in shared has at least one user. start is set, and group used, from the start of Run
	// until its end begins; then ended is.
	shared         map[shareKey]*share
	start          func(*share)
	started, ended bool
	group          lifecycle.Group
	// Guarded by mu: the errors of informers of which no Release has told.
	failed []error
}

// shareKey is what two users must have in common.
type shareKey struct {
	resource       string
	typ            reflect.Type
	namespaces     string
	labels, fields string
}

// share is an informer and those who use it.
type share struct {
	informer runner
	users    int           // guarded by Factory.mu
	stop     func()        // nil: it has not been started; guarded by Factory.mu
	awaited  bool          // by a Release, which tells of err; guarded by Factory.mu
	done     chan struct{} // closed, with Factory.mu held, when Run has returned
	err      error         // of Run; to be read once done is closed
}

// runner is an informer whose type of objects has been forgotten.
type runner interface {
	Name() string
	Run(context.Context) error
	WaitForSync(context.Context) error
}

// Shared is one user's part in an informer. Its methods are those of the informer, but for Run, which is the factory's.
// [AddIndex] takes the informer itself, and an index stays with that when its user has gone; so would a handler that is
// added there, and not here.
type Shared[T any] struct {
	*SharedIndexInformer[T]
	factory *Factory
	key     shareKey
	share   *share

	mu sync.Mutex
	// Guarded by mu. Once released is true, there are no handlers, and there will be none.
	handlers []*Registration
	released bool
}

// Share returns the factory's informer for the resource of that name, for values of type T, with the scope of inf. If
// there is none, it is inf, which must not have been started, and whose scope stays as it is from now on. Otherwise inf
// is dropped, and nothing has been lost: an informer costs nothing before it runs.
//
// The name stands for the client, which cannot be compared: use one for each resource and namespace of each cluster
// (for each resource, where the informer is one of [NewNamespaced]), and, with [Project] or Options.Transform, for each
// function. Options.MaxStaleness, VerifyEvery and MaxBytes, which say how far the cache is to be trusted, have to
// agree, or the error says which does not; of the others those of the first informer count. Once Run of the factory
// ends, the error is [ErrStopped].
func Share[T any](f *Factory, resource string, inf *SharedIndexInformer[T]) (*Shared[T], error) {
	if f == nil || inf == nil || resource == "" {
		return nil, errors.New("informer: Share needs a factory, the name of a resource and an informer, one of " +
			"them is missing")
	}
	fail := func(err error) (*Shared[T], error) {
		return nil, fmt.Errorf("informer %s: Share of %q: %w", inf.name, resource, err)
	}
	if err := inf.becomeWriter(); err != nil {
		return fail(err)
	}
	defer inf.unlockWriter() // not before the scope is the key's
	c := inf.course.Load()
	key := shareKey{resource, reflect.TypeFor[T](), strings.Join(c.scope.Namespaces, ","), c.selector.LabelSelector,
		c.selector.FieldSelector}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return fail(ErrStopped)
	}
	s, exists := f.shared[key]
	if !exists {
		if inf.started.Load() {
			return fail(fmt.Errorf("%w: let the factory run it", ErrStarted))
		}
		if f.shared == nil {
			f.shared = make(map[shareKey]*share)
		}
		inf.shared = true
		s = &share{informer: inf, done: make(chan struct{})}
		f.shared[key] = s
		if f.start != nil {
			f.start(s)
		}
	}
	shared := s.informer.(*SharedIndexInformer[T])
	switch {
	case shared.health.maxStaleness != inf.health.maxStaleness:
		return fail(fmt.Errorf("its Options.MaxStaleness is %s, that of the shared informer %s",
			inf.health.maxStaleness, shared.health.maxStaleness))
	case shared.verifyEvery != inf.verifyEvery:
		return fail(fmt.Errorf("its Options.VerifyEvery is %s, that of the shared informer %s", inf.verifyEvery,
			shared.verifyEvery))
	case shared.budget.max != inf.budget.max:
		return fail(fmt.Errorf("its Options.MaxBytes is %d, that of the shared informer %d", inf.budget.max,
			shared.budget.max))
	}
	s.users++
	return &Shared[T]{SharedIndexInformer: shared, factory: f, key: key, share: s}, nil
}

// Run runs the informers that are shared, now or later, until ctx ends, and returns when they have ended. The error
// joins theirs, each of which wraps [ErrStuck], but for those that [Shared.Release] has returned; a second Run returns
// [ErrStarted].
func (f *Factory) Run(ctx context.Context) error {
	f.mu.Lock()
	if f.started {
		f.mu.Unlock()
		return fmt.Errorf("informer.Factory: %w", ErrStarted)
	}
	f.started = true
	f.start = func(s *share) {
		ctx, cancel := context.WithCancel(ctx)
		s.stop = cancel
		f.group.Go("informer "+s.informer.Name(), func() {
			err := s.informer.Run(ctx)
			f.mu.Lock()
			defer f.mu.Unlock()
			s.err = err
			close(s.done)
			if err != nil && !s.awaited {
				f.failed = append(f.failed, err)
			}
		})
	}
	for _, s := range f.shared {
		f.start(s)
	}
	f.mu.Unlock()

	<-ctx.Done()
	f.mu.Lock()
	f.start, f.ended = nil, true
	f.mu.Unlock()
	<-f.group.Done() // each informer has its own StopGrace
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.failed...)
}

// WaitForSync waits for the first complete list of each informer that is shared now. The error joins theirs: see
// [SharedIndexInformer.WaitForSync].
func (f *Factory) WaitForSync(ctx context.Context) error {
	f.mu.Lock()
	var shared []runner
	for _, s := range f.shared {
		shared = append(shared, s.informer)
	}
	f.mu.Unlock()
	var failed []error
	for _, inf := range shared {
		failed = append(failed, inf.WaitForSync(ctx))
	}
	return errors.Join(failed...)
}

// Run returns [ErrStarted]: a shared informer is run by its factory.
func (s *Shared[T]) Run(context.Context) error {
	return fmt.Errorf("informer %s: %w: its factory runs it", s.name, ErrStarted)
}

// AddHandler is that of the informer; Release removes the handler. After Release the error is [ErrStopped].
func (s *Shared[T]) AddHandler(h Handler[T], opts HandlerOptions) (*Registration, error) {
	gone := fmt.Errorf("informer %s: AddHandler: %w for this user: it has been released", s.name, ErrStopped)
	s.mu.Lock()
	released := s.released
	s.mu.Unlock()
	if released {
		return nil, gone
	}
	added, err := s.SharedIndexInformer.AddHandler(h, opts) // calls h if it is inline, so mu is not held
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released { // meanwhile, and Release does not know this handler
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = added.Remove(ended) // it is deaf at once; nobody waits for the call that may be under way
		return nil, gone
	}
	s.handlers = append(s.handlers, added)
	return added, nil
}

// Release ends this user's part: the handlers that it added are removed, and if it was the last user, the informer
// ends. Release waits for both, or until ctx ends, whose error it then returns; the error wraps [ErrStuck] if the
// informer ended without one of its handlers. What the informer holds can still be read, and may be old. Another
// Release does nothing.
func (s *Shared[T]) Release(ctx context.Context) error {
	s.mu.Lock()
	handlers, again := s.handlers, s.released
	s.handlers, s.released = nil, true
	s.mu.Unlock()
	if again {
		return nil
	}
	f := s.factory
	f.mu.Lock()
	s.share.users--
	last := s.share.users == 0 && !f.ended
	if last {
		delete(f.shared, s.key)
	}
	stop := s.share.stop
	s.share.awaited = last
	f.mu.Unlock()
	if last && stop != nil {
		stop()
		select {
		case <-s.share.done:
		case <-ctx.Done():
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if closed(s.share.done) {
			return s.share.err
		}
		s.share.awaited = false
		return ctx.Err()
	}
	var failed []error
	for _, h := range handlers {
		failed = append(failed, h.Remove(ctx))
	}
	return errors.Join(failed...)
}
