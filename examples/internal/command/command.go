// Package command is what the example controllers have in common as commands: flags, configuration, a look at their
// rights before they start, leader election or shards, metrics, health, the pages of package inspect, Events, and the
// end when another controller does the same work. A controller of your own can begin with a copy of it.
//
//	func main() {
//		command.Program{Name: "deployment", Kind: "Deployment", ..., New: newParts}.Main()
//	}
//
// # Reading order
//
// command.go, flags.go, leader.go, rival.go, bundle.go with bundle_unix.go and bundle_other.go.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/reconcile/serve"
	"github.com/thermostat-go/thermostat/workqueue"
)

// Program is a controller as a command. It does the job of a controller of kube-controller-manager.
type Program struct {
	// Name is that of the command, such as "deployment"; its lease and its field manager are called thermostat-Name.
	Name string
	// BuiltIn is the name of the controller in kube-controller-manager. Empty: Name-controller.
	BuiltIn string
	// Kind is that of the objects that it reconciles, such as "Deployment".
	Kind string
	// About is the first sentence of --help.
	About string
	// Requests is the most requests that one run makes. It decides how long a run may take at --kube-api-qps.
	Requests int
	// QPS is the default of --kube-api-qps; that of --kube-api-burst is half as much again. Zero: 20.
	QPS float32
	// Rules are the rights that the controller needs on the objects of the namespaces that it works in.
	Rules []rbacv1.PolicyRule
	// Flags adds flags of the command's own. Nil: there are none.
	Flags func(*pflag.FlagSet)
	// By offers the flag --shards, with which all replicas are at work, each on a share of the objects. It says what of
	// a key decides to which share it belongs, as sharding.Options.By does. Nil: there is no such flag.
	By func(reconcile.Key) string
	// New makes the controller. It also says what is wrong with the values of the command's own flags.
	New func(Environment) (Parts, error)
}

// Environment is what a controller is made with.
type Environment struct {
	Config    *rest.Config // for clients, such as those of informer.NewResource; all share its rate limit
	Events    *events.Recorder
	Namespace string // empty: all namespaces
	Options   reconcile.Options
}

// Parts are what a controller consists of.
type Parts struct {
	Controller *reconcile.Controller
	// Caches are the informers that have metrics.
	Caches []metrics.Informer
	// WatchForRivals calls found, possibly several times, when another controller does the same work: see
	// [WatchForRivals].
	WatchForRivals func(p Program, found func(error)) error
}

// manager is the field manager of the program's writes, which the API server takes from the user agent.
func (p Program) manager() string { return "thermostat-" + p.Name }

// builtIn is the name of the controller that does the same work in kube-controller-manager.
func (p Program) builtIn() string { return cmp.Or(p.BuiltIn, p.Name+"-controller") }

// Main is the main function of the command.
func (p Program) Main() {
	o, err := p.ParseFlags(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		p.printError(err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err = p.run(ctx, o)
	stop()
	klog.Flush()
	if err != nil {
		p.printError(err)
		os.Exit(1)
	}
}

// printError writes err as one line, which also ends up in the pod's status.
func (p Program) printError(err error) {
	oneLine := strings.NewReplacer(":\n", ": ", "\n", "; ")
	fmt.Fprintln(os.Stderr, p.Name+":", oneLine.Replace(err.Error()))
}

// run runs the command until ctx ends, and returns nil then.
func (p Program) run(ctx context.Context, o Options) error {
	cfg, err := o.restConfig()
	if err != nil {
		return err
	}
	leader, err := p.leader(cfg, o)
	if err != nil {
		return err
	}
	if err := p.checkRights(ctx, cfg, o); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop
		}
		return err
	}
	// A run for an object begins only when the caches show what the last run wrote.
	cfg.Wrap(reconcile.TrackWrites)
	bundles, end := bundleSignals()
	defer end()
	return p.operate(ctx, cfg, leader, o, bundles)
}

// checkRights waits until the API server answers, at most for the startup timeout, and checks that all rights that the
// command needs are granted.
func (p Program) checkRights(ctx context.Context, cfg *rest.Config, o Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.StartupTimeout,
		fmt.Errorf("no answer within %v (see --startup-timeout)", o.StartupTimeout))
	defer cancel()
	return rights.Check(ctx, cfg, p.Needs(o))
}

// Needs returns the rights that the command needs, by namespace.
func (p Program) Needs(o Options) rights.Needs {
	needs := rights.Needs{o.Namespace: append(slices.Clone(p.Rules), rights.Rule("", "events", "create", "patch"))}
	switch {
	case o.Shards:
		needs[o.LeaseNamespace] = append(needs[o.LeaseNamespace], rights.Shards()...)
	case o.LeaderElect:
		needs[o.LeaseNamespace] = append(needs[o.LeaseNamespace], rights.Lease(o.LeaseName)...)
	}
	return needs
}

// Operate runs the controller against the API server of cfg: where leader says or, without one, at once.
func (p Program) Operate(ctx context.Context, cfg *rest.Config, leader Leader, o Options) error {
	return p.operate(ctx, cfg, leader, o, nil)
}

// operate is Operate, and saves a bundle for each value of bundles.
func (p Program) operate(ctx context.Context, cfg *rest.Config, leader Leader, o Options,
	bundles <-chan os.Signal) error {
	cfg.UserAgent = p.manager() + "/" + rest.DefaultKubernetesUserAgent()
	if cfg.QPS > 0 { // one limit for the clients of all resources together
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)
	}
	recorder, err := events.NewRecorder(cfg, p.Name+"-controller")
	if err != nil {
		return err
	}
	if leader != nil {
		// A process that was paused until its lease was lost does not write when it continues. Events may still tell
		// what it did before.
		cfg.Wrap(leader.Fence)
	}
	collector := metrics.New(metrics.Options{})
	parts, err := p.New(Environment{
		Config: cfg, Namespace: o.Namespace, Events: recorder,
		Options: reconcile.Options{
			Workers: o.Workers, Metrics: collector, RateLimiter: Backoff(),
			// All workers share the client's rate limit, and each may make all of its requests.
			Timeout: 2*time.Minute + time.Duration(float64(o.Workers*p.Requests)/float64(o.QPS)*float64(time.Second)),
		},
	})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err := parts.WatchForRivals(p, end); err != nil {
		return err
	}

	options := reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{parts.Controller},
		Beside:      map[string]func(context.Context) error{"events": recorder.Run},
	}
	if o.MetricsAddress != "0" {
		registry := prometheus.NewRegistry()
		collector.RESTClients()
		registry.MustRegister(collector, collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		server, err := serve.New(serve.Options{
			Address: o.MetricsAddress, Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
			Handlers: map[string]http.Handler{"/inspect/": inspect.Handler(inspect.Options{Actions: true})},
		})
		if err != nil {
			return err
		}
		options.Serve = server.Run
	}
	for _, cache := range parts.Caches {
		collector.Informer(cache)
	}
	if leader != nil {
		options.Elector = leader
		show(collector, leader, o)
	}
	m, err := reconcile.NewManager(options)
	if err != nil {
		return err
	}
	defer saveBundles(p.Name, m, bundles)()
	err = m.Run(ctx)
	if errors.Is(err, reconcile.ErrStuck) {
		saveBundle(p.Name, m) // while it shows what does not end
	}
	if found := (*RivalError)(nil); errors.As(context.Cause(ctx), &found) {
		return errors.Join(found, err) // err names what has not ended in time
	}
	return err
}

// Backoff returns the rate limiter for failed keys: the delay of a key doubles with each failure, and all failed keys
// together come back at most 10 times a second.
func Backoff() workqueue.RateLimiter[reconcile.Key] {
	return workqueue.MaxOf(workqueue.Exponential[reconcile.Key](5*time.Millisecond, 1000*time.Second, 0),
		workqueue.Bucket[reconcile.Key](10, 100))
}
