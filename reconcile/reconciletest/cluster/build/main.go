// Command build compiles the programs that a test cluster is made of and writes their paths, one a line.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, build := range []func(context.Context, io.Writer) (string, error){cluster.BuildControlPlane,
		cluster.BuildNode} {
		binary, err := build(ctx, os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "build:", err)
			os.Exit(1)
		}
		fmt.Println(binary)
	}
}
