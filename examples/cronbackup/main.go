// Command cronbackup is an operator: it keeps one CronJob for each CronBackup, and cleans up when a CronBackup is
// deleted. README.md says how to run it, and what it promises.
//
// # Reading order
//
// api/v1/types.go: what the user writes. main.go: what runs. reconcile.go: what is done for one CronBackup.
// webhooks.go: what API servers ask; api/v1alpha1 is the version before.
package main

import (
	"context"
	_ "embed"
	"errors"
	"net/http"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/reconcile/serve"
	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

const name = "cronbackup" // of the controller, its field manager, its Lease and the namespace of that

//go:embed deploy/rbac.yaml
var role []byte

// options are the flags.
type options struct {
	image           string
	backup, cleanup []string // commands
	account         string   // service account of their pods; empty: the default one of the namespace
	address         string   // of metrics and health; "0": none

	webhookAddress string            // "0": none
	webhookHosts   []string          // by which API servers call them
	certificate    string            // folder with the files tls.crt and tls.key; empty: the operator makes its own
	lifetimes      webhook.Lifetimes // of its own; zero but in tests
}

func main() {
	var o options
	kubeconfig := pflag.String("kubeconfig", "", "file that names the API server; not needed in a pod")
	pflag.StringVar(&o.image, "image", "busybox:1.37", "image that backs up and cleans up")
	pflag.StringSliceVar(&o.backup, "backup-command", []string{"echo", "backup of $(TARGET_DATABASE)"},
		"command that backs up, and deletes backups older than $(RETENTION_DAYS); parts are separated by commas")
	pflag.StringSliceVar(&o.cleanup, "cleanup-command", []string{"echo", "clean-up of $(BACKUP)"},
		"command that deletes all backups of $(BACKUP); parts are separated by commas")
	pflag.StringVar(&o.account, "service-account", "", "service account of the pods that back up and clean up")
	pflag.StringVar(&o.address, "http-address", "127.0.0.1:8080", "of /metrics, /healthz and /readyz; 0: nowhere")
	pflag.StringVar(&o.webhookAddress, "webhook-address", "0", "of the webhooks, such as :9443; 0: there are none")
	pflag.StringSliceVar(&o.webhookHosts, "webhook-host", []string{"cronbackup.cronbackup.svc"},
		"names or IP addresses by which API servers call the webhooks")
	pflag.StringVar(&o.certificate, "webhook-certificate", "",
		"folder with tls.crt and tls.key for the webhooks, such as cert-manager's; the operator makes its own without")
	pflag.Parse()
	program.Main(*kubeconfig, func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, o) })
}

// run runs the operator until ctx ends. It then returns nil or, if it was still starting, an error that wraps ctx's
// cause.
func run(ctx context.Context, base *rest.Config, o options) error {
	needs, err := rights.Parse(role)
	if err := errors.Join(err, rights.Check(ctx, base, needs)); err != nil {
		return err
	}
	elector, err1 := leaderelection.New(leaderelection.Config{REST: base, Namespace: name, Name: name})
	cfg, err2 := reconcile.ClientConfig(base, elector) // for all requests but those about the Lease and Events
	recorder, err3 := events.NewRecorder(base, name)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	group, batch := informer.NewGroup(cfg), batchv1.SchemeGroupVersion
	backups := informer.CachedIn(group, v1.GroupVersion.WithResource("cronbackups"), informer.Options[*v1.CronBackup]{})
	cronJobs := informer.CachedIn(group, batch.WithResource("cronjobs"), informer.Options[*batchv1.CronJob]{})
	cleanups := informer.CachedIn(group, batch.WithResource("jobs"),
		informer.Options[*batchv1.Job]{LabelSelector: labels.SelectorFromSet(cleanupLabels)})
	if err := group.Err(); err != nil {
		return err
	}
	collector := metrics.New(metrics.Options{})
	collector.Elector(name, elector.Stats)
	collector.Informer(group.Informers()...)

	r := &reconciler{o, backups, cronJobs, cleanups, recorder}
	c, err := reconcile.NewController(name, r, reconcile.Options{Workers: 8, Metrics: collector, Invalid: r.invalid})
	if err != nil {
		return err
	}
	reconcile.For(c, backups.Cache)
	// A CronJob has the name of its CronBackup. One that has lost its owner, or is in the way, is seen as well.
	reconcile.For(c, cronJobs.Cache)
	reconcile.Owns(c, cleanups.Cache, backups.GroupVersionKind())
	checks, throughout := map[string]func(*http.Request) error{}, map[string]func(context.Context) error{}
	if o.webhookAddress != "0" {
		hooks, err := webhooks(base, o, collector)
		if err != nil {
			return err
		}
		checks["webhooks"], throughout["webhooks"] = hooks.Ready, hooks.Run
	}
	server, err := serve.New(serve.Options{Address: o.address, Metrics: collector, ReadyChecks: checks})
	if err != nil {
		return err
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{c},
		Beside:      map[string]func(context.Context) error{"events": recorder.Run},
		Throughout:  throughout,
		Elector:     elector,
		Serve:       server.Run,
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}
