package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/planned"
)

// RunOptions may be left zero.
type RunOptions struct {
	Options
	// Quiet is how long the program has to do nothing new: see [Server.Settle]. Zero: 10 s.
	Quiet time.Duration
	// Timeout is how long the program runs at most. Zero: 5 minutes.
	Timeout time.Duration
}

// Func is the program of [Run]. It has to return when its context ends.
type Func = func(ctx context.Context, cfg *rest.Config) error

// Run runs a program on a fork of the cluster that base leads to, until it has settled or its time is over, ends it,
// and returns what it has done. run gets the configuration of the fork, and a context by which program.Planned
// says that it is planned.
//
// If run returns an error before it is told to end, Run returns that beside the report.
func Run(ctx context.Context, base *rest.Config, run Func, o RunOptions) (report *Report, err error) {
	fork, err := Fork(ctx, base, o.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fork.Close()) }()
	untilStopped, cancel := context.WithCancel(planned.With(ctx))
	defer cancel()
	var group lifecycle.Group
	var failed error
	running, end := context.WithCancel(ctx)
	group.Go("program", func() {
		defer end()
		var err error
		panicked := lifecycle.Try(func() { err = run(untilStopped, fork.Config()) })
		failed = errors.Join(panicked, err)
	})
	report, err = settle(ctx, running, fork, o, func() error {
		cancel()
		if err := group.Wait(stopGrace); err != nil {
			return err
		}
		return failed
	})
	if report != nil {
		report.ElsewhereUnknown = "the program is a function of the process that plans"
	}
	return report, err
}

// settle waits for a program that runs as long as running does, and returns the report once stop has ended it.
func settle(ctx, running context.Context, fork *Server, o RunOptions, stop func() error) (*Report, error) {
	quiet, timeout := cmp.Or(o.Quiet, 10*time.Second), cmp.Or(o.Timeout, 5*time.Minute)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	whileItRuns, cancel2 := context.WithCancel(limited)
	defer cancel2()
	defer context.AfterFunc(running, cancel2)()
	report, err := fork.Settle(whileItRuns, quiet)
	ended := running.Err() != nil && ctx.Err() == nil // by itself
	failed := stop()
	if ended && err == nil { // only the garbage collector may have more to do
		report, err = fork.Settle(limited, min(quiet, time.Second))
	}
	if report != nil {
		report.Setup.Quiet.Duration, report.Setup.Timeout.Duration = quiet, timeout
	}
	switch {
	case ended && failed != nil:
		return report, fmt.Errorf("plan: the program: %w", failed)
	case errors.Is(failed, lifecycle.ErrStuck):
		return report, errors.Join(err, failed)
	}
	return report, err
}
