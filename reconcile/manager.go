package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

var (
	// ErrStarted is returned by a second Run: a Manager runs once.
	ErrStarted = errors.New("the manager has been started before")
	// ErrStuck is wrapped by Run's error when something had not ended StopGrace after it was told to; the error names
	// it. That code still runs, so a process that gets this error should exit.
	ErrStuck = lifecycle.ErrStuck
)

// Elector lets one of several processes lead; *leaderelection.Elector is one. Run waits until this process leads, calls
// lead with a context that ends when it does no longer, waits for lead to return, and returns. It gives up what it
// holds for this process only then, and not at all if lead returns an error that wraps [ErrStuck]: some reconcile goes
// on.
//
// An Elector may have more methods, as *leaderelection.Elector does. With SetHandover(word string) and Handover() (word
// string, waited bool) it can hand over: what a leader leaves before lead returns is what the next one finds, and
// workers start when the caches have seen what the last leader wrote; waited says, where no word was left, that nobody
// has led for as long as a crashed leader is waited for. With Ready() error it says why this process could not lead,
// and /readyz says so, too.
type Elector interface {
	Run(ctx context.Context, lead func(ctx context.Context) error) error
}

// ManagerOptions configures a [Manager]. Only Controllers has to be set.
type ManagerOptions struct {
	// Controllers are run while this process leads.
	Controllers []*Controller
	// Informers are run beside those that the controllers have as sources: caches that are only read.
	Informers []Informer
	// Elector decides when this process leads. Nil: always.
	Elector Elector
	// SyncTimeout is how long the first lists may take. When it has passed Run returns an error that names each cache
	// that is missing, and wraps the causes, such as the server's 403. Zero: Run waits for as long as it takes, and
	// says in the log what it waits for; a Role or CRD that arrives late is enough then.
	SyncTimeout time.Duration
	// DrainTimeout is how long running reconciles may go on when the Manager is told to stop, before their context
	// ends. New ones do not begin. Zero: 30 s. When leadership is lost their context ends at once.
	DrainTimeout time.Duration
	// StopGrace is how long running reconciles have to return once their context has ended. Zero: 10 s. An Elector that
	// gives up on them sooner when leadership is lost, as package leaderelection's does after its own StopGrace of 3 s,
	// ends Run with an error that wraps ErrStuck.
	StopGrace time.Duration
	// HTTPAddress, host:port, is where /healthz, /readyz and, with Metrics, /metrics are served. There is no
	// authentication, so without a host it is the loopback address; a kubelet that probes needs 0.0.0.0:port or
	// [::]:port, behind a network policy. Empty: nowhere.
	HTTPAddress string
	// Metrics answers /metrics. Nil: it does not exist.
	Metrics http.Handler
}

// Manager runs controllers: the informers that they need, once each; the campaign for leadership, with the caches
// already warm; the workers, while it leads. Make one with [NewManager].
type Manager struct {
	opts      ManagerOptions
	informers []*managedInformer
	started   atomic.Bool
	// ready is nil once every controller has seen the first state of all its sources; until then it tells what is
	// missing.
	ready   atomic.Pointer[string]
	address atomic.Pointer[string]
}

// managed is an informer that the Manager runs.
type managedInformer struct {
	Informer
	learner *learner
}

// NewManager makes a Manager. It returns every mistake in opts, and every one that [For] and its like have kept.
func NewManager(opts ManagerOptions) (*Manager, error) {
	var errs []error
	if len(opts.Controllers) == 0 {
		errs = append(errs, errors.New("ManagerOptions.Controllers is empty"))
	}
	if opts.SyncTimeout < 0 {
		errs = append(errs, fmt.Errorf("ManagerOptions.SyncTimeout is %s; it is a duration, or zero to wait for as "+
			"long as it takes", opts.SyncTimeout))
	}
	if opts.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("ManagerOptions.DrainTimeout is %s; it is a duration, or zero for 30 s",
			opts.DrainTimeout))
	}
	if opts.DrainTimeout == 0 {
		opts.DrainTimeout = 30 * time.Second
	}
	if opts.StopGrace < 0 {
		errs = append(errs, fmt.Errorf("ManagerOptions.StopGrace is %s; it is a duration, or zero for 10 s",
			opts.StopGrace))
	}
	if err := checkAddress(opts.HTTPAddress); err != nil {
		errs = append(errs, fmt.Errorf("ManagerOptions.HTTPAddress is %q; it is host:port, such as \":8080\" for "+
			"port 8080 "+
			"of the loopback address: %w", opts.HTTPAddress, err))
	}
	if opts.Metrics != nil && opts.HTTPAddress == "" {
		errs = append(errs, errors.New("ManagerOptions.Metrics is set, but HTTPAddress is not"))
	}
	if opts.StopGrace == 0 {
		opts.StopGrace = 10 * time.Second
	}
	if opts.Elector != nil && kube.IsNil(opts.Elector) {
		errs = append(errs, fmt.Errorf("ManagerOptions.Elector is a nil %T; leave it out", opts.Elector))
	}
	m := &Manager{opts: opts}
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
		if c.hasManager {
			errs = append(errs, fmt.Errorf("controller %q belongs to another Manager already", c.name))
		}
		if len(c.sources)+len(c.channels) == 0 && len(c.mistakes) == 0 {
			errs = append(errs, fmt.Errorf("controller %q has no source: call For, Owns, Watches or WatchesChan, or "+
				"DependsOn if its keys are named by Enqueue alone", c.name))
		}
	}
	for i, inf := range opts.Informers {
		if kube.IsNil(inf) {
			errs = append(errs, fmt.Errorf("ManagerOptions.Informers[%d] is nil", i))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("NewManager: %w", err)
	}
	// From here on nothing fails: a Manager that was refused has no controllers.
	for _, c := range opts.Controllers {
		c.hasManager = true
		for _, ca := range c.ledger.caches {
			ca.learner = m.manage(ca.trackedInformer).learner
		}
	}
	for _, inf := range opts.Informers {
		m.manage(inf)
	}
	starting := "not started"
	m.ready.Store(&starting)
	return m, nil
}

// manage adds an informer to those that the Manager runs, unless it is one of them.
func (m *Manager) manage(inf Informer) *managedInformer {
	for _, other := range m.informers {
		if other.Informer == inf {
			return other
		}
	}
	added := &managedInformer{inf, &learner{}}
	m.informers = append(m.informers, added)
	return added
}

// Run does, in this order,
//
//	serve     listen on HTTPAddress
//	observe   run all informers, and wait until each controller has seen the first state of every source
//	campaign  run the Elector
//	act       when the caches have seen what the last leader wrote, run the workers, for as long as this process leads; then wait for them, and campaign again
//
// until ctx ends, and then undoes it in reverse, waiting for each: no more keys are taken, reconciles that are under
// way have DrainTimeout to finish, the lease is released, the informers end. It returns
//
//	nil                    ctx has ended and everything has ended
//	an error               of listening, of the Elector, of an informer that ended by itself; or the first lists took longer than SyncTimeout
//	one wrapping ErrStuck  something has not ended in time; it is named
//	one wrapping ErrStarted at once, if it is called again
func (m *Manager) Run(ctx context.Context) error {
	if m.started.Swap(true) {
		return ErrStarted
	}
	for _, c := range m.opts.Controllers {
		if len(c.mistakes) > 0 {
			return errors.Join(c.mistakes...)
		}
	}
	var background lifecycle.Group
	// The context of everything that outlives the workers, so that a Reconcile that is still running does not look at a
	// dead cache.
	under, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	var listener net.Listener
	if m.opts.HTTPAddress != "" {
		var err error
		if listener, err = listen(m.opts.HTTPAddress); err != nil {
			return fmt.Errorf("ManagerOptions.HTTPAddress: %w", err)
		}
		address := listener.Addr().String()
		m.address.Store(&address)
		background.Go("HTTP server", func() { m.serve(under, listener) })
	}

	// An informer returns an error if it cannot be run, since somebody else runs it, or if a handler of its is stuck.
	// Either ends everything.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, len(m.informers))
	for _, inf := range m.informers {
		background.Go("informer "+inf.Name(), func() {
			if err := inf.Run(withLearner(under, inf.learner)); err != nil {
				// as some errors of package informer begin
				if name := "informer " + inf.Name(); !strings.HasPrefix(err.Error(), name) {
					err = fmt.Errorf("%s: %w", name, err)
				}
				failed <- err
				stop()
			}
		})
	}

	for _, c := range m.opts.Controllers {
		for _, ch := range c.channels {
			background.Go("channel "+ch.name+" of controller "+c.name, func() { ch.read(ctx) })
		}
	}

	err := m.waitForCaches(ctx)
	if err == nil {
		err = m.campaign(ctx)
	}

	cancel()
	// Informers have a StopGrace of their own, after which they return.
	errs := []error{err, background.Wait(2 * m.opts.StopGrace)}
	for len(failed) > 0 {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// Address is where health checks and metrics are served, with the port that was chosen if HTTPAddress left it open;
// empty before Run.
func (m *Manager) Address() string {
	if a := m.address.Load(); a != nil {
		return *a
	}
	return ""
}

// observe waits until every informer is synced and every source's handler has seen the first state. It returns nil if
// ctx ended before: campaign finds out.
func (m *Manager) waitForCaches(ctx context.Context) error {
	log := klog.FromContext(ctx)
	wait := ctx
	if m.opts.SyncTimeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, m.opts.SyncTimeout)
		defer cancel()
	}
	began, waited := time.Now(), false
	for _, inf := range m.informers {
		missing := "waiting for the first list of informer " + inf.Name()
		m.ready.Store(&missing)
		for {
			patience, cancel := context.WithTimeout(wait, 10*time.Second)
			err := inf.WaitForSync(patience)
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, informer.ErrStopped) {
				return err
			}
			if wait.Err() != nil {
				if err := m.missingCaches(wait); err != nil {
					return fmt.Errorf("the caches were not complete within SyncTimeout (%s): %w", m.opts.SyncTimeout,
						err)
				}
				break // all of them are, at the last moment
			}
			waited = true
			log.Info("Waiting for a first list", "informer", inf.Name(), "health", inf.Health().String(), "for",
				time.Since(began).Round(time.Second))
		}
	}
	for _, c := range m.opts.Controllers {
		for _, s := range c.sources {
			select {
			case <-s.added.Synced():
			case <-ctx.Done():
				return nil
			}
		}
	}
	if err := m.checkTracking(log); err != nil {
		return err
	}
	m.ready.Store(nil)
	if !waited {
		log = log.V(1)
	}
	log.Info("Caches are complete", "took", time.Since(began))
	return nil
}

// incomplete says of each cache that is not complete what is in the way, or returns nil. ctx has ended.
func (m *Manager) missingCaches(ctx context.Context) error {
	var errs []error
	for _, inf := range m.informers {
		errs = append(errs, inf.WaitForSync(ctx))
	}
	return errors.Join(errs...)
}

// tracked returns an error if some of the informers that controllers depend on make their requests through TrackWrites
// and some do not: a mistake that would show as duplicates, some day. Without any that do, nobody has asked for
// TrackWrites.
func (m *Manager) checkTracking(log klog.Logger) error {
	var missing []error
	seen := 0
	for _, c := range m.opts.Controllers {
		for _, ca := range c.ledger.caches {
			passed, unread := ca.learner.tracked()
			if !passed {
				missing = append(missing, fmt.Errorf("controller %s depends on informer %s, whose requests do not "+
					"pass TrackWrites as those of other informers do: call cfg.Wrap(reconcile.TrackWrites) on the "+
					"rest.Config that its client is made from", c.name, ca.Name()))
				continue
			}
			seen++
			if !ca.learner.hasScope() {
				log.Info("An informer asks for what is no collection of a Kubernetes API, so writes there are not "+
					"waited for, unless Wrote and Deleted tell of them",
					"controller", c.name, "informer", ca.Name(), "address", unread)
			}
		}
	}
	switch {
	case len(missing) == 0:
		return nil
	case seen == 0:
		log.Info("No informer makes its requests through TrackWrites, so own writes are waited for only where Wrote " +
			"and Deleted tell of them: " +
			"cfg.Wrap(reconcile.TrackWrites) on the rest.Config of all clients does it")
		return nil
	}
	return errors.Join(missing...)
}

// campaign leads, again and again, until ctx ends.
//
// The elector must not learn of the end of ctx while this process leads: the lease is to be kept for as long as
// reconciles are draining. It is given up by act's return.
func (m *Manager) campaign(ctx context.Context) error {
	if m.opts.Elector == nil {
		if ctx.Err() != nil {
			return nil
		}
		return m.runWorkers(ctx, context.WithoutCancel(ctx))
	}
	log := klog.FromContext(ctx)
	for ctx.Err() == nil {
		electing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
		standby := context.AfterFunc(ctx, giveUp)
		var work tenure
		err := m.opts.Elector.Run(electing, func(tenure context.Context) error {
			return work.run(func() error {
				if standby() {
					return m.runWorkers(ctx, tenure)
				}
				if h, ok := m.opts.Elector.(handoverElector); ok { // ctx ended just before
					passHandoverOn(h)
				}
				return nil
			})
		})
		giveUp()
		led, stuck := work.result()
		switch {
		case stuck != nil && !errors.Is(err, ErrStuck):
			return errors.Join(err, stuck)
		case errors.Is(err, ErrStuck), err != nil && !led:
			return err
		case ctx.Err() != nil:
		case !led:
			return errors.New("the Elector has returned without an error, and without having led")
		default:
			log.Info("No longer leading; campaigning again", "reason", err)
		}
	}
	return nil
}

// leading is one call of the function that an Elector calls to lead. What has become of it the Manager knows by itself:
// whatever the Elector makes of it, nobody campaigns again beside work that goes on.
type tenure struct {
	mu           sync.Mutex
	began, ended bool  // guarded by mu
	err          error // guarded by mu
}

func (l *tenure) run(lead func() error) (err error) {
	l.mu.Lock()
	l.began = true
	l.mu.Unlock()
	// A log sink, or an elector's hand-over, may panic or end the goroutine. Then nobody can tell whether workers go
	// on.
	if failed := lifecycle.Apart(func() { err = lead() }); failed != nil {
		err = fmt.Errorf("the workers %w, as far as can be told: %w", ErrStuck, failed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.err = true, err
	return err
}

// result reports whether the call was made, and an error that wraps ErrStuck if some of its work goes on.
func (l *tenure) result() (led bool, stuck error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.began && !l.ended:
		return true, fmt.Errorf("the workers %w: the Elector has returned before them", ErrStuck)
	case errors.Is(l.err, ErrStuck):
		return true, l.err
	}
	return l.began, nil
}

// act runs the workers of all controllers until ctx or tenure ends and they have returned. When it was ctx, calls that
// are under way may go on for DrainTimeout.
func (m *Manager) runWorkers(ctx, tenure context.Context) error {
	acting, stopActing := context.WithCancel(tenure)
	defer stopActing()
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	defer context.AfterFunc(tenure, stopTaking)()

	if h, ok := m.opts.Elector.(handoverElector); ok {
		rest, ok := m.awaitHandover(taking, h)
		if !ok {
			passHandoverOn(h)
			return nil
		}
		defer func() { h.SetHandover(m.handoverText(rest)) }()
	}
	var workers lifecycle.Group
	for _, c := range m.opts.Controllers {
		c.start(taking, acting, &workers)
	}
	<-taking.Done()
	drain := time.NewTimer(m.opts.DrainTimeout)
	defer drain.Stop()
	select {
	case <-workers.Done():
	case <-tenure.Done():
	case <-drain.C:
	}
	stopActing()
	return workers.Wait(m.opts.StopGrace)
}

// checkAddress finds the mistakes in an address that can be seen without listening on it.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// listen takes an address without a host for one of the loopback interface: who wants the world to see it has to say
// so.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "localhost"
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// serve answers health checks until ctx ends.
func (m *Manager) serve(ctx context.Context, listener net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range m.opts.Controllers {
			if err := c.alive(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := m.notReady(); missing != "" {
			http.Error(w, missing, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	if m.opts.Metrics != nil {
		mux.Handle("GET /metrics", m.opts.Metrics)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	var closing lifecycle.Group
	closing.Go("close", func() {
		<-ctx.Done()
		server.Close()
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		klog.FromContext(ctx).Error(err, "The health checks are no longer served")
	}
	<-ctx.Done()
	closing.Wait(time.Second)
}

// notReady says why this process is not ready, or "": a first list is missing, a cache does not follow its server, or
// the Elector says that this process could not lead.
func (m *Manager) notReady() string {
	if missing := m.ready.Load(); missing != nil {
		return *missing
	}
	var ill []string
	for _, inf := range m.informers {
		if h := inf.Health(); h.State != informer.Live {
			ill = append(ill, fmt.Sprintf("informer %s: %s", inf.Name(), h))
		}
	}
	if e, ok := m.opts.Elector.(interface{ Ready() error }); ok {
		if err := e.Ready(); err != nil {
			ill = append(ill, err.Error())
		}
	}
	return strings.Join(ill, "\n")
}
