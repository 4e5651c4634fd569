// Command drift shows in which fields the objects of a cluster differ from their manifests, and who has set them. It
// compares as "kubectl apply --server-side" would: by a dry run, which changes nothing.
//
//	$ kubectl scale deployment web --replicas 5
//	$ go run ./examples/drift -f web.yaml
//	Deployment default/web
//	  .spec.replicas   desired 3   is 5   was set by kubectl
//
// With -watch it shows the differences again whenever they change, until Ctrl-C: a controller whose only act is to
// print. Values of Secrets are not shown. The exit code is 0 if there are no differences, 1 if there are some, and 2 if
// something failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/reconcile"
)

// options has the values of the flags.
type options struct {
	file, kubeconfig, manager string
	watch                     bool
}

func main() {
	var o options
	flag.StringVar(&o.file, "f", "", "file with the manifests, in YAML or JSON")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file with the API server and credentials; empty: $KUBECONFIG, else ~/.kube/config")
	flag.StringVar(&o.manager, "field-manager", "kubectl",
		"the manager that applies the manifests; fields that it applied before and that are in no manifest differ, too")
	flag.BoolVar(&o.watch, "watch", false, "show the differences whenever they change, until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cfg, namespace, err := o.config(flag.Args())
	drifted := false
	if err == nil {
		drifted, err = run(ctx, os.Stdout, cfg, namespace, o)
	}
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "drift:", err)
		os.Exit(2)
	case drifted:
		os.Exit(1)
	}
}

// config checks the flags, and returns the client configuration and the namespace that kubectl would use.
func (o options) config(args []string) (cfg *rest.Config, namespace string, err error) {
	switch {
	case len(args) > 0:
		return nil, "", fmt.Errorf("unexpected argument %q: there are only flags, see -help", args[0])
	case o.file == "":
		return nil, "", errors.New("-f is needed: the file with the manifests")
	}
	files := clientcmd.NewDefaultClientConfigLoadingRules()
	files.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(files, nil)
	if cfg, err = loader.ClientConfig(); err == nil {
		namespace, _, err = loader.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("client configuration: %w", err)
	}
	return cfg, namespace, nil
}

// run shows the differences of all objects, and reports whether there were some. With o.watch it runs until ctx ends.
func run(ctx context.Context, out io.Writer, cfg *rest.Config, namespace string, o options) (drifted bool, err error) {
	targets, err := readTargets(cfg, o.file, namespace)
	if err != nil {
		return false, err
	}
	var controllers []*reconcile.Controller
	for _, t := range targets {
		v := &view{target: t, manager: o.manager, out: out}
		differs, err := v.show(ctx)
		if err != nil {
			return false, err
		}
		drifted = drifted || differs
		c, err := v.controller()
		if err != nil {
			return false, err
		}
		controllers = append(controllers, c)
	}
	if !o.watch {
		return drifted, nil
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: controllers})
	if err != nil {
		return false, err
	}
	return false, m.Run(ctx)
}
