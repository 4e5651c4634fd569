// Command demo shows the ReplicaSet controller of examples/replicaset at work on a real control plane, and checks
// everything that it says.
//
// It is what "make demo" runs, and needs only the Go toolchain. It compiles etcd, kube-apiserver and
// kube-controller-manager the first time, runs them on this machine, and removes them and their files when it ends.
// With -kubeconfig it runs on a cluster to which examples/replicaset/deploy has been applied: see "make kind-demo".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	keep := flag.Bool("keep", false, "stay up at the end until Ctrl-C, for kubectl")
	kubeconfig := flag.String("kubeconfig", "",
		"the demo's cluster, in which the controller has been deployed; empty: one on this machine")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q: there are only flags, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	say := newNarrator(os.Stdout)
	var s stage = &here{narrator: say}
	if *kubeconfig != "" {
		s = &inCluster{narrator: say, kubeconfig: *kubeconfig}
	}
	err := run(ctx, say, s, *keep)
	stop()
	if err != nil {
		fmt.Printf("\ndemo: FAILED: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("\ndemo: ok")
}

func run(ctx context.Context, say *narrator, s stage, keep bool) (err error) {
	began := time.Now()
	d := &demo{narrator: say, stage: s}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		err = errors.Join(err, s.close())
	}()
	for i, step := range d.steps() {
		say.step(i+1, step.title)
		result, err := step.do(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.showLogs()
			}
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		say.result(result)
	}
	say.text("All steps took %s.", seconds(time.Since(began)))
	if keep {
		return d.stay(ctx)
	}
	return nil
}
