// Command loop is a controller in seven steps, for readers who have never seen one. The README tells the story.
//
//	go run ./examples/loop 1 --kubeconfig ~/.kube/config --namespace default
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
)

// steps are the programs of the story, in its order. Each runs until ctx ends.
var steps = []func(ctx context.Context, c cluster) error{step1, step2, step3, step4, step5, step6, step7}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("loop", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "`file` that names the API server; default: $KUBECONFIG")
	namespace := flags.String("namespace", "default", "where the ConfigMaps and the pods are")
	if len(args) == 0 {
		return errors.New("usage: loop STEP [--kubeconfig FILE] [--namespace NAME]")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 || n > len(steps) {
		return fmt.Errorf("there is no step %q, but 1 to %d", args[0], len(steps))
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = *kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return err
	}
	c, err := connect(cfg, *namespace)
	if err != nil {
		return err
	}
	log.Printf("step %d works in namespace %s", n, *namespace)
	return steps[n-1](ctx, c)
}
