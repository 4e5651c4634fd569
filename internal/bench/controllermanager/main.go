// Command controllermanager is the kube-controller-manager of Kubernetes, all of it, with client-go's informers or with
// those of package clientgo, which read the bytes of its clients themselves. It runs for a while, tells what that took,
// and ends.
//
// It compiles only with a variable that client-go does not have: see BenchmarkControllerManager, which builds it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as in the main package of Kubernetes
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/thermostat-go/thermostat/informer/clientgo"
)

func main() {
	wired := flag.Bool("wired", false, "have informers of package clientgo, which read bytes")
	length := flag.Duration("for", time.Minute, "run that long")
	out := flag.String("report", "", "the `file` that takes the figures")
	flag.Parse()
	if err := run(*wired, *length, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "controllermanager:", err)
		os.Exit(1)
	}
}

// run runs a controller manager with its own flags for a while, and writes what it took to a file.
func run(wired bool, length time.Duration, out string, args []string) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := configure(ctx, args)
	if err != nil {
		return err
	}
	made := &informers{began: began, make: cache.Constructor}
	if wired {
		made.make, c.Kubeconfig = clientgo.NewSharedIndexInformerWithOptions, clientgo.Wire(c.Kubeconfig)
	}
	cache.Constructor = made.new
	failed := make(chan error, 1)
	go func() { failed <- app.Run(ctx, c.Complete()) }()
	select {
	case err := <-failed:
		return fmt.Errorf("it ended: %w", err)
	case <-time.After(time.Until(began.Add(length))):
	}
	r, err := measure(made)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(out, encoded, 0o644)
}

// configure is what the command of Kubernetes does with its flags.
func configure(ctx context.Context, args []string) (*config.Config, error) {
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	known, off, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	flags := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	for _, set := range o.Flags(known, off, aliases).FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	if err := logsapi.ValidateAndApply(o.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return nil, err
	}
	return o.Config(ctx, known, off, aliases)
}
