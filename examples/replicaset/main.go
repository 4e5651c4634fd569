// Command replicaset keeps the wanted number of pods for each ReplicaSet: the job of the controller of that name in
// kube-controller-manager, which it can replace (switch that off with --controllers=*,-replicaset-controller).
//
// To read it, begin with Reconcile in replicaset.go: observe, diff, act, report. Each question on the way has a file of
// its own:
//
//	claim.go      which pods are mine?
//	scale.go      how many pods are missing or surplus, and how are they created and deleted?
//	victims.go    which pods go first?
//	status.go     what is the status?
//	report.go     when is the status written?
//	rival.go      does another ReplicaSet controller run?
//
// The rest is the command: flags.go, and this file, which starts everything.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/workqueue"
)

func main() {
	o, err := parseFlags(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		printError(err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err = run(ctx, o)
	stop()
	klog.Flush()
	if err != nil {
		printError(err)
		os.Exit(1)
	}
}

// printError writes err as one line, which also ends up in the pod's status.
func printError(err error) {
	oneLine := strings.NewReplacer(":\n", ": ", "\n", "; ")
	fmt.Fprintln(os.Stderr, "replicaset:", oneLine.Replace(err.Error()))
}

// run runs the command until ctx ends, and returns nil then.
func run(ctx context.Context, o options) error {
	cfg, err := o.restConfig()
	if err != nil {
		return err
	}
	var elector *leaderelection.Elector
	if o.leaderElect {
		elector, err = leaderelection.New(leaderelection.Config{
			REST: cfg, Namespace: o.leaseNamespace, Name: o.leaseName, Identity: o.identity,
			LeaseDuration: o.leaseDuration, RenewDeadline: o.renewDeadline, RetryPeriod: o.retryPeriod,
		})
		if err != nil {
			return err
		}
	}
	if err := o.checkRights(ctx, cfg); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop
		}
		return err
	}
	// A run for a ReplicaSet begins only when the caches show what the last run wrote.
	cfg.Wrap(reconcile.TrackWrites)
	if elector != nil {
		// A process that was paused until its lease was lost does not write when it continues.
		cfg.Wrap(elector.Fence)
	}
	return operate(ctx, cfg, elector, o)
}

// checkRights waits until the API server answers, at most for the startup timeout, and checks that all rights that the
// command needs are granted.
func (o options) checkRights(ctx context.Context, cfg *rest.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.startupTimeout,
		fmt.Errorf("no answer within %v (see --startup-timeout)", o.startupTimeout))
	defer cancel()
	return rights.Check(ctx, cfg, o.needs())
}

// needs returns the rights that the command needs, by namespace.
func (o options) needs() rights.Needs {
	needs := rights.Needs{o.namespace: {
		rights.Rule("apps", "replicasets", "get", "list", "watch"),
		rights.Rule("apps", "replicasets/status", "update"),
		rights.Rule("", "pods", "list", "watch", "create", "patch", "delete"),
		rights.Rule("", "events", "create", "patch"),
	}}
	if o.leaderElect {
		needs[o.leaseNamespace] = append(needs[o.leaseNamespace], rights.Lease(o.leaseName)...)
	}
	return needs
}

// operate runs the controller against the API server of cfg: while elector leads or, without one, at once.
func operate(ctx context.Context, cfg *rest.Config, elector *leaderelection.Elector, o options) error {
	cfg.UserAgent = manager + "/" + rest.DefaultKubernetesUserAgent()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client configuration: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "replicaset-controller"})

	collector := metrics.New(metrics.Options{})
	r, c, err := newController(client, events, o.namespace, reconcile.Options{
		Workers: o.workers, Metrics: collector, RateLimiter: backoff(),
		// All workers share the client's rate limit, and each may have a whole burst of pods to create.
		Timeout: 2*time.Minute + time.Duration(float64(o.workers*burst)/float64(o.qps)*float64(time.Second)),
	})
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err := watchForRivals(r.replicaSets, end); err != nil {
		return err
	}

	options := reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}}
	if o.metricsAddress != "0" {
		registry := prometheus.NewRegistry()
		collector.RESTClients()
		registry.MustRegister(collector, collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		options.HTTPAddress, options.Metrics = o.metricsAddress, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	}
	collector.Informer(r.replicaSets)
	collector.Informer(r.pods)
	if elector != nil {
		options.Elector = elector
		collector.Elector(o.leaseName, elector.Stats)
	}
	m, err := reconcile.NewManager(options)
	if err != nil {
		return err
	}
	err = m.Run(ctx)
	if found := (*rivalError)(nil); errors.As(context.Cause(ctx), &found) {
		return errors.Join(found, err) // err names what has not ended in time
	}
	return err
}

// backoff returns the rate limiter for failed keys: the delay of a key doubles with each failure, and all failed keys
// together come back at most 10 times a second.
func backoff() workqueue.RateLimiter[reconcile.Key] {
	return workqueue.MaxOf(workqueue.Exponential[reconcile.Key](5*time.Millisecond, 1000*time.Second, 0),
		workqueue.Bucket[reconcile.Key](10, 100))
}
