// Command demo shows the ReplicaSet controller of examples/replicaset at work on a real control plane, and checks everything that it says.
//
// It is what "make demo" runs. It needs the Go toolchain and nothing else: etcd, kube-apiserver and kube-controller-manager are compiled the
// first time, run on this machine only, and end with it, as do all their files.
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
	keep := flag.Bool("keep", false, "stay up at the end, until Ctrl-C, and say how to play with kubectl")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q: there are only flags, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, newNarrator(os.Stdout), *keep)
	stop()
	if err != nil {
		fmt.Printf("\ndemo: FAILED: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("\ndemo: ok")
}

func run(ctx context.Context, say *narrator, keep bool) (err error) {
	began := time.Now()
	d := &demo{narrator: say}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		err = errors.Join(err, d.close())
	}()
	for i, step := range d.steps() {
		say.step(i+1, step.title)
		result, err := step.do(ctx)
		if err != nil {
			if ctx.Err() == nil {
				d.showLogs()
			}
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		say.result(result)
	}
	say.text("All of it took %s.", seconds(time.Since(began)))
	if keep {
		return d.stay(ctx)
	}
	return nil
}
