// Command cronbackup is the operator of examples/cronbackup, written with controller-runtime. README.md compares the
// two.
//
// # Reading order
//
// main.go: what runs. controller.go: what is done for one CronBackup.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
)

var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
}

// options are the flags.
type options struct {
	image           string
	backup, cleanup []string // commands
	metrics, probes string   // addresses; 0: none
}

func main() {
	var o options
	pflag.StringVar(&o.image, "image", "busybox:1.37", "image that backs up and cleans up")
	pflag.StringSliceVar(&o.backup, "backup-command", []string{"echo", "backup of $(TARGET_DATABASE)"},
		"command that backs up, and deletes backups older than $(RETENTION_DAYS); parts are separated by commas")
	pflag.StringSliceVar(&o.cleanup, "cleanup-command", []string{"echo", "clean-up of $(BACKUP)"},
		"command that deletes all backups of $(BACKUP); parts are separated by commas")
	pflag.StringVar(&o.metrics, "metrics-bind-address", "127.0.0.1:8080", "where /metrics is served")
	pflag.StringVar(&o.probes, "health-probe-bind-address", "127.0.0.1:8081", "where /healthz and /readyz are served")
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine) // controller-runtime's flag kubeconfig
	pflag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), o); err != nil {
		ctrl.Log.Error(err, "The operator ends")
		os.Exit(1)
	}
}

// run runs the operator until ctx ends, and returns nil then.
func run(ctx context.Context, cfg *rest.Config, o options) error {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&batchv1.Job{}: {Label: labels.SelectorFromSet(cleanupLabels)},
		}},
		Metrics:                       metricsserver.Options{BindAddress: o.metrics},
		HealthProbeBindAddress:        o.probes,
		LeaderElection:                true,
		LeaderElectionID:              "cronbackup",
		LeaderElectionNamespace:       "cronbackup",
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)}, // as the tests need it
	})
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	//lint:ignore SA1019 the newer recorder needs other rights, and the tests look for Events of the core group
	r := &CronBackupReconciler{mgr.GetClient(), mgr.GetEventRecorderFor("cronbackup"), o}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&v1.CronBackup{}).
		// A CronJob has the name of its CronBackup. One that has lost its owner, or is in the way, is seen as well.
		Watches(&batchv1.CronJob{}, &handler.EnqueueRequestForObject{}).
		Owns(&batchv1.Job{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
