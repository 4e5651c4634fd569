package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/thermostat-go/thermostat/internal/demo/story"
)

// process is a controller that runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed after the process has ended
}

// run starts a program. What it prints goes to the file NAME.log.
func (s *stage) run(_ context.Context, name, path string, args []string) (story.Process, error) {
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has a copy
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = leash()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.started = append(s.started, p)
	s.working.Go(func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // Wait tells how it ended
	})
	return p, nil
}

func (p *process) Ended() <-chan struct{} { return p.ended }

// Kill ends the process without a chance to clean up, and waits until it has ended.
func (p *process) Kill(ctx context.Context) error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	_, err := p.Wait(ctx)
	return err
}

// Terminate tells the process to end.
func (p *process) Terminate(context.Context) error { return p.signal(syscall.SIGTERM) }

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v to %s: %w", s, p.cmd.Path, err)
	}
	return nil
}

// Wait waits until the process has ended, and returns how: "exit status 0", "signal: killed".
func (p *process) Wait(ctx context.Context) (string, error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.String(), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
