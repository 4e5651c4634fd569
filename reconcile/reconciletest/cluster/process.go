package cluster

import (
	"context"
	"fmt"
	"sync"
)

// Command is a program to run below the supervisor of a cluster.
type Command struct {
	Name string   // names the process and its log file
	Path string   // of the binary
	Args []string // without the binary
	Env  []string // added to the environment of this process
	Dir  string   // default: that of this process
}

// Process is one run of a [Command]. Restarting it gives a new Process.
type Process struct {
	Name string
	PID  int
	Log  string // path of the file that takes its output

	cluster *Cluster
	exit    *exit
}

// exit is how a process ended. The status is written before ended is closed.
type exit struct {
	ended  chan struct{}
	status string
}

// exits remembers how processes ended. The news of an exit may overtake the reply to the start.
type exits struct {
	mu    sync.Mutex
	known map[exitKey]*exit
}

type exitKey struct {
	name string
	pid  int
}

func (e *exits) of(name string, pid int) *exit {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := exitKey{name, pid}
	if e.known[key] == nil {
		e.known[key] = &exit{ended: make(chan struct{})}
	}
	return e.known[key]
}

// Run starts a command. It ends with the cluster, or when it is killed or ends by itself.
func (c *Cluster) Run(ctx context.Context, command Command) (*Process, error) {
	return c.run(ctx, request{
		Op:      "start",
		Name:    command.Name,
		Command: append([]string{command.Path}, command.Args...),
		Env:     command.Env,
		Dir:     command.Dir,
	})
}

func (c *Cluster) run(ctx context.Context, r request) (*Process, error) {
	m, err := c.supervisor.call(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Process{Name: r.Name, PID: m.PID, Log: m.Log, cluster: c, exit: c.exits.of(r.Name, m.PID)}, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.exit.ended }

// Wait waits until the process has ended and says how: "exit status 0", "signal: killed".
func (p *Process) Wait(ctx context.Context) (status string, err error) {
	select {
	case <-p.exit.ended:
		return p.exit.status, nil
	case <-p.cluster.supervisor.ended:
	case <-ctx.Done():
		return "", fmt.Errorf("%s (pid %d) has not ended: %w", p.Name, p.PID, ctx.Err())
	}
	// The supervisor reports the exits of all its processes before it ends itself, unless it was killed.
	select {
	case <-p.exit.ended:
		return p.exit.status, nil
	default:
		return "", errSupervisorEnded
	}
}

// Stop freezes the process (SIGSTOP).
func (p *Process) Stop(ctx context.Context) error { return p.cluster.order(ctx, "stop", p.Name) }

// Continue undoes Stop.
func (p *Process) Continue(ctx context.Context) error {
	return p.cluster.order(ctx, "continue", p.Name)
}

// Kill sends SIGKILL and returns when the process has ended.
func (p *Process) Kill(ctx context.Context) error { return p.cluster.order(ctx, "kill", p.Name) }

// Terminate sends SIGTERM and returns when the process has ended.
func (p *Process) Terminate(ctx context.Context) error {
	return p.cluster.order(ctx, "terminate", p.Name)
}

// Restart kills the process if it still runs, and starts the same command again.
func (p *Process) Restart(ctx context.Context) (*Process, error) {
	return p.cluster.run(ctx, request{Op: "restart", Name: p.Name})
}
