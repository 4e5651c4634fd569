// Package program has the main function of a controller: [Main] finds the API server and stops at a signal. [Planned]
// tells it that what it does is only looked at.
//
// It is a package of its own because it reads kubeconfig files with client-go's clientcmd, which package reconcile does
// without.
//
// # Reading order
//
// program.go is the whole package.
package program

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/planned"
)

// Main is the main function of a program. It calls run with the configuration of the API server, and ends the process
// with status 1 and a line in the log if run returns an error.
//
//	func main() {
//		kubeconfig := flag.String("kubeconfig", "", "file that names the API server; not needed in a pod")
//		flag.Parse()
//		program.Main(*kubeconfig, run)
//	}
//
// ctx ends at the first SIGINT or SIGTERM. An error of run that says only so, because it wraps nothing but the cause of
// ctx, is no failure: the process was told to stop before it had started. A second signal ends the process at once.
//
// An error with a method ProgramStatus() int, such as that of a plan by a flag ([plan.Flag]), ends the process with
// that status, and is not logged.
//
// kubeconfig is the path of a file. Empty: the files that $KUBECONFIG names or else ~/.kube/config, and in a pod
// without these its service account. run gets the configuration as it is; the clients of controllers are made from what
// reconcile.ClientConfig makes of it.
//
// [plan.Flag]: https://pkg.go.dev/github.com/thermostat-go/thermostat/reconcile/plan#Flag
func Main(kubeconfig string, run func(ctx context.Context, cfg *rest.Config) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := runWith(ctx, kubeconfig, run)
	stop()
	if status := statusOf(ctx, err); status != 0 {
		klog.FlushAndExit(klog.ExitFlushTimeout, status)
	}
	klog.Flush()
}

// Planned reports whether the program runs on a fork of the cluster, made by package reconcile/plan: by its context, or
// one that was made from it, or as a process, by the variable THERMOSTAT_PLANNED of its environment. A program that
// acts on something else than the cluster, such as the databases that it looks after, then has to look only.
func Planned(ctx context.Context) bool { return planned.Is(ctx) }

// statusOf returns the exit status for the error of a program, which it logs.
func statusOf(ctx context.Context, err error) int {
	var exit interface{ ProgramStatus() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ProgramStatus()
	}
	klog.FromContext(ctx).Error(err, "The program ends")
	return 1
}

func runWith(ctx context.Context, kubeconfig string, run func(context.Context, *rest.Config) error) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("no configuration of an API server: %w", err)
	}
	err = run(ctx, cfg)
	if ctx.Err() != nil && lifecycle.IsOnly(err, context.Cause(ctx), ctx.Err()) {
		return nil
	}
	return err
}
