package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

var (
	// ErrStarted is returned by a second Run: a Manager runs once.
	ErrStarted = errors.New("the manager has been started before")
	// ErrStuck is wrapped by Run's error when something had not ended StopGrace after it was told to; the error names
	// it. That code still runs, so a process that gets this error should exit.
	ErrStuck = lifecycle.ErrStuck
)

// ManagerOptions configures a [Manager]. Only Controllers has to be set, or one of the other things to run.
type ManagerOptions struct {
	// Controllers are run while this process leads; with shards, each key where its slice is led.
	Controllers []*Controller
	// WhileLeading are functions of yours that run while this process leads, by names for the log. They are called when
	// the workers start, on goroutines of their own, and again in each tenure. Their ctx ends when leadership is lost,
	// and when the Manager is told to stop: then they have DrainTimeout to return, as reconciles have, and the Lease is
	// kept for them. A function that returns nil is done for this tenure. An error before its ctx has ended stops the
	// Manager, and Run returns it; an error after that is logged. A function that returns while some of its work goes
	// on returns an error that wraps [ErrStuck]: then the Lease is not released. With shards there are none, as no
	// process leads all of them: see sharding.Shards.While.
	WhileLeading map[string]func(ctx context.Context) error
	// Beside are functions that run whether this process leads or not. They are called once, when the caches are
	// complete, but for namespaces that the server refuses: see [Manager.Run]. Their ctx ends when the workers have
	// ended and the Lease is released; the caches are still alive then. They have StopGrace to return. Else the same
	// holds for them as for WhileLeading. With the Shards of package sharding all processes may write at once: the
	// fence lets what is written here pass wherever any slice is led.
	Beside map[string]func(ctx context.Context) error
	// Throughout are functions that run from the beginning of Run, before the first list, until the informers end: what
	// the first list may need, such as the conversion webhooks of package webhook. Their ctx ends when the workers,
	// Beside and the Lease have ended; then they have twice StopGrace to return. Else the same holds for them as for
	// Beside.
	Throughout map[string]func(ctx context.Context) error
	// Informers are run beside those that the controllers have as sources: caches that are only read. What Reconcile
	// reads and others write belongs into [DependsOn] instead: no new leader waits for these to be up to date.
	Informers []Informer
	// Elector decides when this process leads. Nil: always. With the Shards of package sharding in its place all
	// processes are at work, each on its own share of the keys.
	Elector Elector
	// ErrorTexts lets [Manager.Inspect] and its like show the texts of errors. Without it they show kinds of errors
	// only: the text of an error of Reconcile's, or of the server's, may quote values of an object.
	ErrorTexts bool
	// SyncTimeout is how long the first lists may take. When it has passed Run returns an error that names each cache
	// that is missing, and wraps the causes, such as the server's 403. Zero: Run waits for as long as it takes, and
	// says in the log what it waits for; a Role or CRD that arrives late is enough then.
	SyncTimeout time.Duration
	// DrainTimeout is how long running reconciles may go on when the Manager is told to stop, before their context
	// ends. New ones do not begin. Zero: 30 s. When leadership is lost their context ends at once. With the Shards of
	// package sharding their own DrainTimeout ends it as well.
	DrainTimeout time.Duration
	// StopGrace is how long running reconciles have to return once their context has ended. Zero: 10 s. An Elector
	// that gives up on them sooner when leadership is lost, as package leaderelection's does after its own StopGrace
	// of 3 s, ends Run with an error that wraps ErrStuck.
	StopGrace time.Duration
	// Serve answers requests about the Manager, such as those for its health: package serve has one. It is called when
	// Run begins, before the first list, and its ctx ends when the workers, Beside and the Lease have ended. An error
	// ends the Manager. Nil: nothing is served.
	Serve func(ctx context.Context, m *Manager) error
}

// Manager runs controllers: the informers that they need, once each; the campaign for leadership, with the caches
// already warm; the workers, while it leads. Make one with [NewManager].
type Manager struct {
	// Never changed after NewManager.
	opts      ManagerOptions
	shards    sharder // the Elector, if it is one; else nil
	informers []*managedInformer
	ledgers   debts.Ledgers // of the controllers

	// Any goroutine may use these.
	failures failures
	started  atomic.Bool
	ready    atomic.Pointer[string] // what the first sync still waits for; nil when it is complete
	progress progressOfRun
	tracking debts.Tracking
	unseen   unseenWords
}

// managedInformer is an informer that the Manager runs.
type managedInformer struct {
	Informer
	learner *writes.Learner
}

// NewManager makes a Manager. Its error joins every mistake in opts, and in the calls of [For], [Owns], [Watches],
// [WatchesChan] and [DependsOn] for its controllers.
func NewManager(opts ManagerOptions) (*Manager, error) {
	if err := errors.Join(append(opts.mistakes(), opts.sourceMistakes()...)...); err != nil {
		return nil, fmt.Errorf("NewManager: %w", err)
	}
	opts.DrainTimeout = cmp.Or(opts.DrainTimeout, 30*time.Second)
	opts.StopGrace = cmp.Or(opts.StopGrace, 10*time.Second)
	m := &Manager{opts: opts}
	if m.shards, _ = opts.Elector.(sharder); m.shards != nil {
		m.shards.LeaveWords(share{m}.word)
	}
	// From here on nothing fails: a Manager that was refused has no controllers.
	for _, c := range opts.Controllers {
		m.ledgers = append(m.ledgers, c.ledger)
		c.manager, c.shards, c.errorTexts = m, m.shards, opts.ErrorTexts
		for _, s := range c.sources {
			s.cache.Learner = m.manage(s.from).learner
		}
		for _, n := range c.needs {
			n.family.belongTo(m)
			m.manage(n.family)
		}
	}
	debts.Together(m.ledgers...)
	m.tracking.Ledgers = m.ledgers
	for _, inf := range opts.Informers {
		m.manage(inf)
	}
	starting := "not started"
	m.ready.Store(&starting)
	return m, nil
}

// mistakes returns what is wrong with the options by themselves.
func (opts ManagerOptions) mistakes() (errs []error) {
	mistake := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("ManagerOptions."+format, args...))
	}
	if len(opts.Controllers)+len(opts.WhileLeading)+len(opts.Beside)+len(opts.Throughout) == 0 {
		mistake("Controllers is empty, and there is nothing else to run")
	}
	if opts.SyncTimeout < 0 {
		mistake("SyncTimeout is %s; it is a duration, or zero to wait for as long as it takes", opts.SyncTimeout)
	}
	if opts.DrainTimeout < 0 {
		mistake("DrainTimeout is %s; it is a duration, or zero for 30 s", opts.DrainTimeout)
	}
	if opts.StopGrace < 0 {
		mistake("StopGrace is %s; it is a duration, or zero for 10 s", opts.StopGrace)
	}
	if opts.Elector != nil && kube.IsNil(opts.Elector) {
		mistake("Elector is a nil %T; leave it out", opts.Elector)
	}
	if shards, ok := opts.Elector.(sharder); ok && len(opts.WhileLeading) > 0 {
		mistake("WhileLeading is set, and with the shards %s no process leads all of them: use Beside, with "+
			"Shards.While in it where one process has to do it", shards)
	}
	for i, inf := range opts.Informers {
		if kube.IsNil(inf) {
			mistake("Informers[%d] is nil", i)
			continue
		}
		errs = append(errs, opts.shareless(inf))
	}
	return append(errs, errors.Join(kube.CheckNamed("ManagerOptions.Beside", opts.Beside),
		kube.CheckNamed("ManagerOptions.Throughout", opts.Throughout),
		kube.CheckNamed("ManagerOptions.WhileLeading", opts.WhileLeading)))
}

// sourceMistakes returns what is wrong with the controllers and their sources.
func (opts ManagerOptions) sourceMistakes() (errs []error) {
	names := make(map[string]bool)
	for i, c := range opts.Controllers {
		if c == nil {
			errs = append(errs, fmt.Errorf("ManagerOptions.Controllers[%d] is nil", i))
			continue
		}
		if names[c.name] {
			errs = append(errs, fmt.Errorf("two controllers are called %q", c.name))
		}
		names[c.name] = true
		errs = append(errs, c.mistakes...)
		for _, s := range c.sources {
			errs = append(errs, opts.shareless(s.from), opts.misplaced(c, &s))
		}
		if c.manager != nil {
			errs = append(errs, fmt.Errorf("controller %q belongs to another Manager already", c.name))
		}
		for _, r := range c.references {
			if c.ledger.Find(r.from) == nil {
				errs = append(errs, fmt.Errorf("controller %q: References: informer %s, whose objects name "+
					"others, is no source of the controller: call For", c.name, r.from.Name()))
			}
		}
		for _, n := range c.needs {
			if c.ledger.Find(n.from) == nil {
				errs = append(errs, fmt.Errorf("controller %q: Needs: informer %s, whose objects name others, is no "+
					"source of the controller: call For", c.name, n.from.Name()))
			}
			if n.family.belongTo(nil) != nil {
				errs = append(errs, fmt.Errorf("controller %q: Needs: %s belongs to another Manager already", c.name,
					n.family.Name()))
			}
			for _, other := range n.family.controllers() {
				if !slices.Contains(opts.Controllers, other) {
					errs = append(errs, fmt.Errorf("controller %q: Needs: %s is also needed by controller %q, which "+
						"is none of ManagerOptions.Controllers", c.name, n.family.Name(), other.name))
				}
			}
		}
		if len(c.sources)+len(c.channels) == 0 && len(c.mistakes) == 0 {
			errs = append(errs, fmt.Errorf("controller %q has no source: call For, Owns, Watches or WatchesChan, or "+
				"DependsOn if its keys are named by Enqueue alone", c.name))
		}
	}
	return errs
}

// manage adds an informer to those that the Manager runs, unless it is one of them.
func (m *Manager) manage(inf Informer) *managedInformer {
	for _, other := range m.informers {
		if other.Informer == inf {
			return other
		}
	}
	added := &managedInformer{inf, debts.NewLearner(inf)}
	m.informers = append(m.informers, added)
	return added
}

// runs reports whether an informer is one of those that the Manager runs from the start.
func (m *Manager) runs(inf Informer) bool {
	return slices.ContainsFunc(m.informers, func(other *managedInformer) bool { return other.Informer == inf })
}

// Run does, in this order,
//
//	serve          call ManagerOptions.Serve, and run what ManagerOptions.Throughout has; both go on until the end
//	waitForCaches  run all informers, and wait until each controller has seen the first state of every source. Of an
//	               informer of several namespaces those may be missing that the server refuses, if one is complete
//	runBeside      run what ManagerOptions.Beside has
//	campaign       run the Elector
//	runWorkers     while this process leads: wait until the caches have seen what the last leader wrote, then run the
//	               workers and WhileLeading; afterwards wait for them to end, and campaign again
//
// until ctx ends, and then undoes it in reverse, waiting for each: no more keys are taken, reconciles that are under
// way have DrainTimeout to finish, the lease is released, Beside and the informers end. With shards keys are taken, for
// half of DrainTimeout at most, until other processes have prepared for the slices of this one. It returns
//
//	nil                    ctx has ended and everything has ended
//	an error               of Serve, of the Elector, of an informer that ended by itself, of WhileLeading or
//	                       Beside; the first lists took longer than SyncTimeout; or a source came after NewManager
//	one wrapping ErrStuck  something has not ended in time; it is named
//	one wrapping ErrStarted at once, if it is called again
func (m *Manager) Run(ctx context.Context) error {
	if m.started.Swap(true) {
		return ErrStarted
	}
	m.progress.enter(status.StageSyncing)
	defer m.progress.enter(status.StageStopped)
	var background lifecycle.Group
	// The context of everything that outlives the workers, so that a Reconcile that is still running does not look at
	// a dead cache.
	under, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if late := m.failures.stopOn(stop); late != nil {
		return late
	}
	m.startServing(under, &background)
	throughout := m.startRunnables(under, m.opts.Throughout, &background)
	m.startInformers(under, &background)
	for _, c := range m.opts.Controllers {
		for _, ch := range c.channels {
			background.Go("channel "+ch.name+" of controller "+c.name, func() { ch.read(ctx) })
		}
	}
	err := m.waitForCaches(ctx)
	if err == nil {
		err = m.runBeside(under, func() error { return m.campaign(ctx) })
	}
	cancel()
	// Informers have a StopGrace of their own, after which they return.
	return errors.Join(err, background.Wait(2*m.opts.StopGrace), throughout.stuck(), m.failures.all())
}

// startServing calls ManagerOptions.Serve.
func (m *Manager) startServing(ctx context.Context, group *lifecycle.Group) {
	if m.opts.Serve == nil {
		return
	}
	group.Go("ManagerOptions.Serve", func() {
		if err := m.opts.Serve(ctx, m); err != nil {
			m.failures.add(fmt.Errorf("ManagerOptions.Serve: %w", err))
		}
	})
}

// startInformers runs the informers. One that runs already, or that ends because one of its handlers is stuck, ends
// everything.
func (m *Manager) startInformers(ctx context.Context, group *lifecycle.Group) {
	for _, inf := range m.informers {
		group.Go("informer "+inf.Name(), func() {
			if err := inf.Run(writes.WithLearner(ctx, inf.learner)); err != nil {
				// Some errors of package informer begin with the name.
				if name := "informer " + inf.Name(); !strings.HasPrefix(err.Error(), name) {
					err = fmt.Errorf("%s: %w", name, err)
				}
				m.failures.add(err)
			}
		})
	}
}

// waitForCaches waits until every informer is synced, but for namespaces that the server refuses, and every source's
// handler has seen the first state. It returns nil if ctx ends before, which campaign checks.
func (m *Manager) waitForCaches(ctx context.Context) error {
	log, began := klog.FromContext(ctx), time.Now()
	wait := ctx
	if m.opts.SyncTimeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, m.opts.SyncTimeout)
		defer cancel()
	}
	var waited bool
	refused := make(map[Informer]bool)
	for _, inf := range m.informers {
		missing := "waiting for the first list of informer " + inf.Name()
		m.ready.Store(&missing)
		first := firstList{inf: inf.Informer, began: began, logged: began}
		err := first.await(wait, log)
		waited, refused[inf.Informer] = waited || first.waited, first.refused
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, informer.ErrStopped):
			return err
		default:
			if err := m.missingCaches(wait, refused); err != nil {
				return fmt.Errorf("the caches were not complete within SyncTimeout (%s): %w", m.opts.SyncTimeout, err)
			} // else they have become complete at the last moment
		}
	}
	for _, c := range m.opts.Controllers {
		for _, s := range c.sources {
			if refused[s.from] {
				continue
			}
			select {
			case <-s.added.Synced():
			case <-ctx.Done():
				return nil
			}
		}
	}
	if err := m.tracking.Check(log); err != nil {
		return err
	}
	m.ready.Store(nil)
	if !waited {
		log = log.V(1)
	}
	log.Info("Caches are complete", "took", time.Since(began))
	return nil
}

// firstList is the wait for the first list of an informer.
type firstList struct {
	inf             Informer
	began, logged   time.Time // when the Manager began to wait, and when it has last said so
	waited, refused bool      // it has been said, and what is missing are namespaces that the server refuses
}

// await returns nil when the list is complete, or complete but for namespaces that the server refuses. The error is
// informer.ErrStopped, or ctx has ended.
func (l *firstList) await(ctx context.Context, log klog.Logger) error {
	for {
		pause, cancel := context.WithTimeout(ctx, time.Second)
		err := l.inf.WaitForSync(pause)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, informer.ErrStopped):
			return err
		case onlyRefused(l.inf):
			l.refused = true
			log.Error(err, "The workers do not wait for namespaces that are refused; the keys that need them do",
				"informer", l.inf.Name())
			return nil
		case time.Since(l.logged) >= 10*time.Second:
			l.waited, l.logged = true, time.Now()
			log.Info("Waiting for a first list", "informer", l.inf.Name(), "health", l.inf.Health().String(), "for",
				time.Since(l.began).Round(time.Second))
		}
	}
}

// onlyRefused reports whether all that an informer still waits for are namespaces that the server refuses, beside one
// that is complete. A key waits for its namespaces by itself.
func onlyRefused(inf Informer) (only bool) {
	several, ok := inf.(interface {
		Scope() informer.Scope
		HealthIn(namespace string) informer.Health
	})
	if !ok {
		return false
	}
	for _, namespace := range several.Scope().Namespaces {
		switch h := several.HealthIn(namespace); {
		case h.Listed > 0:
			only = true
		case h.State != informer.Denied:
			return false
		}
	}
	return only
}

// missingCaches says what keeps each incomplete cache from being complete, or returns nil. ctx has ended.
func (m *Manager) missingCaches(ctx context.Context, refused map[Informer]bool) error {
	var errs []error
	for _, inf := range m.informers {
		if !refused[inf.Informer] {
			errs = append(errs, inf.WaitForSync(ctx))
		}
	}
	return errors.Join(errs...)
}
