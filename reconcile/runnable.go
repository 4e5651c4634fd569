package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// failures collects the errors that end a Manager. Safe for concurrent use.
type failures struct {
	mu   sync.Mutex
	errs []error // guarded by mu
	stop func()  // guarded by mu; called after each error; nil until Run
}

// stopOn sets what is called after each error from now on, and returns those that came before.
func (f *failures) stopOn(stop func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop = stop
	return errors.Join(f.errs...)
}

func (f *failures) add(err error) {
	f.mu.Lock()
	f.errs = append(f.errs, err)
	stop := f.stop
	f.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (f *failures) all() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errs...)
}

// runnables are the functions of ManagerOptions.WhileLeading, Beside or Throughout, while they run.
type runnables struct {
	mu     sync.Mutex
	goesOn []error // guarded by mu; of functions that have returned while some of their work goes on
}

// stuck returns an error that wraps ErrStuck if some work goes on. It is complete when all functions have returned.
func (r *runnables) stuck() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.goesOn...)
}

// runBeside runs ManagerOptions.Beside for as long as campaign takes, and waits for them.
func (m *Manager) runBeside(ctx context.Context, campaign func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group lifecycle.Group
	beside := m.startRunnables(ctx, m.opts.Beside, &group)
	err := campaign()
	stop()
	return errors.Join(err, group.Wait(m.opts.StopGrace), beside.stuck())
}

// startRunnables adds functions to a group.
func (m *Manager) startRunnables(ctx context.Context, functions map[string]func(context.Context) error,
	group *lifecycle.Group) *runnables {
	all := &runnables{}
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		log := klog.FromContext(ctx).WithValues("runnable", name)
		group.Go("runnable "+name, func() {
			m.runOne(klog.NewContext(ctx, log), all, name, functions[name])
		})
	}
	return all
}

// runOne calls one function, and judges what it returns.
func (m *Manager) runOne(ctx context.Context, all *runnables, name string, run func(context.Context) error) {
	err := run(ctx)
	log := klog.FromContext(ctx)
	switch {
	case errors.Is(err, ErrStuck):
		all.mu.Lock()
		defer all.mu.Unlock()
		all.goesOn = append(all.goesOn, fmt.Errorf("runnable %s: %w", name, err))
		if ctx.Err() == nil {
			m.failures.add(fmt.Errorf("runnable %s has returned while some of its work goes on", name))
		}
	case ctx.Err() != nil && (err == nil || lifecycle.IsOnly(err, context.Canceled)):
	case ctx.Err() != nil:
		log.Error(err, "A runnable failed while it was to end")
	case err != nil:
		m.failures.add(fmt.Errorf("runnable %s: %w", name, err))
	default:
		log.V(1).Info("A runnable is done")
	}
}
