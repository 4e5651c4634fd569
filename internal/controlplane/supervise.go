package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/thermostat-go/thermostat/internal/controlplane/plane"
	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// runSupervise serves requests on its standard input until that ends, or until SIGTERM or SIGINT. Then it kills every
// child and removes its data folder.
func runSupervise(args []string) int {
	if len(args) != 0 {
		return usage("supervise takes no arguments")
	}
	// A write to a pipe whose reader has died would kill this process before it has killed its children.
	// Notify, not Ignore: children inherit what is ignored.
	brokenPipe := make(chan os.Signal, 1)
	signal.Notify(brokenPipe, syscall.SIGPIPE)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer stop()
	if err := supervise(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane supervise:", err)
		return 1
	}
	return 0
}

func supervise(ctx context.Context) (err error) {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own binary: %w", err)
	}
	dir, err := os.MkdirTemp("", "thermostat-")
	if err != nil {
		return fmt.Errorf("create the data folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return supervisor.Serve(ctx, os.Stdin, os.Stdout, dir,
		func(s *supervisor.Supervisor) map[string]supervisor.Handler {
			return plane.New(dir, binary, s).Handlers()
		})
}
