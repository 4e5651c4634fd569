// Command cronbackup is an operator: it keeps one CronJob for each CronBackup, and cleans up when a CronBackup is
// deleted. README.md says how to run it, and what it promises.
//
// # Reading order
//
// api/v1/types.go: what the user writes. main.go: what runs. reconcile.go: what is done for one CronBackup.
package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
)

const name = "cronbackup" // of the controller, its Lease and its field manager

// options are the flags.
type options struct {
	image           string
	backup, cleanup []string // commands
	leaseNamespace  string   // empty: no leader election
	address         string   // of metrics and health; empty: none
}

func main() {
	var o options
	kubeconfig := pflag.String("kubeconfig", "", "file that names the API server; not needed in a pod")
	pflag.StringVar(&o.image, "image", "busybox:1.37", "image that backs up and cleans up")
	pflag.StringSliceVar(&o.backup, "backup-command", []string{"echo", "backup of $(TARGET_DATABASE)"},
		"command that backs up, and deletes backups older than $(RETENTION_DAYS); parts are separated by commas")
	pflag.StringSliceVar(&o.cleanup, "cleanup-command", []string{"echo", "clean-up of $(BACKUP)"},
		"command that deletes all backups of $(BACKUP); parts are separated by commas")
	pflag.StringVar(&o.leaseNamespace, "lease-namespace", "", "where replicas elect their leader; empty: no election")
	pflag.StringVar(&o.address, "http-address", "127.0.0.1:8080", "where /metrics, /healthz and /readyz are served")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = run(ctx, cfg, o)
	}
	if err != nil {
		klog.ErrorS(err, "The operator ends")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// run runs the operator until ctx ends, and returns nil then.
func run(ctx context.Context, base *rest.Config, o options) error {
	opts, collector := reconcile.ManagerOptions{}, metrics.New(metrics.Options{})
	var elector *leaderelection.Elector
	if o.leaseNamespace != "" {
		var err error
		elector, err = leaderelection.New(leaderelection.Config{REST: base, Namespace: o.leaseNamespace, Name: name})
		if err != nil {
			return err
		}
		opts.Elector = elector
		collector.Elector(name, elector.Stats)
	}
	cfg, err := reconcile.ClientConfig(base, elector)
	if err != nil {
		return err
	}
	r, c, err := newController(cfg, o, collector)
	if err != nil {
		return err
	}
	events := record.NewBroadcaster()
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{
		Interface: kubernetes.NewForConfigOrDie(cfg).CoreV1().Events("")})
	// Objects of a Resource have their kind, so the scheme may be empty.
	r.events = events.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: name})

	if opts.Controllers = []*reconcile.Controller{c}; o.address != "" {
		registry := prometheus.NewRegistry()
		registry.MustRegister(collector)
		opts.HTTPAddress, opts.Metrics = o.address, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	}
	m, err := reconcile.NewManager(opts)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// newController makes the clients, the caches and the controller, which has no recorder of Events yet.
func newController(cfg *rest.Config, o options, collector *metrics.Collector) (*reconciler, *reconcile.Controller,
	error) {
	jobs := batchv1.SchemeGroupVersion
	backups, err1 := follow[*v1.CronBackup](cfg, v1.GroupVersion.WithResource("cronbackups"), nil, collector)
	cronJobs, err2 := follow[*batchv1.CronJob](cfg, jobs.WithResource("cronjobs"), nil, collector)
	cleanups, err3 := follow[*batchv1.Job](cfg, jobs.WithResource("jobs"), cleanupLabels, collector)
	r := &reconciler{options: o, backups: backups, cronJobs: cronJobs, cleanups: cleanups}
	c, err4 := reconcile.NewController(name, r, reconcile.Options{Workers: 8, Metrics: collector})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, nil, err
	}
	reconcile.For(c, backups.cache)
	// A CronJob has the name of its CronBackup. One that has lost its owner, or is in the way, is seen as well.
	reconcile.For(c, cronJobs.cache)
	reconcile.Owns(c, cleanups.cache, kind)
	return r, c, nil
}

// followed is a client, and a cache of what it lists.
type followed[T informer.Object] struct {
	*informer.Resource[T]
	cache *informer.SharedIndexInformer[T]
}

func follow[T informer.Object](cfg *rest.Config, gvr schema.GroupVersionResource, labeled labels.Set,
	collector *metrics.Collector) (followed[T], error) {
	client, err := informer.NewResource[T](cfg, gvr, informer.ResourceOptions{})
	if err != nil {
		return followed[T]{}, err
	}
	cache, err := informer.New(client, informer.Options[T]{LabelSelector: labeled.AsSelector()})
	if err == nil {
		collector.Informer(cache)
	}
	return followed[T]{client, cache}, err
}
