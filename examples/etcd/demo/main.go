// Command demo shows the operator at work with real members: a control plane on this machine, nodes that run etcd as
// processes, clients that read and write all the time, and what goes wrong in the life of a database. It takes about
// three minutes, draws what the clients see, and writes a plot of it. Linux only.
//
// # Reading order
//
// main.go: what runs. story.go: what happens. disaster.go: how it ends. stage.go: where. screen.go and plot.go: what is
// drawn.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	plot := flag.String("plot", "", "the file that takes the plot, an SVG; empty: there is none")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "demo: there are no arguments but flags; run make demo-etcd")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := tell(ctx, newScreen(os.Stdout), *plot)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
