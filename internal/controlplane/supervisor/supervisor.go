package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
)

// Supervisor starts processes, signals them, and ends all of them in Close.
type Supervisor struct {
	dir     string        // logs go here
	onExit  func(Message) // called once for each process that ended, from its reaper
	spawner *spawner
	reapers sync.WaitGroup

	// Guarded by mu. Once closed is set nothing is started any more: Close has then seen every process there will be.
	mu     sync.Mutex
	closed bool
	latest map[string]*process // the latest run of each name, ended or not
}

// New returns a Supervisor whose children log to files in dir. It calls onExit when a child ended.
func New(dir string, onExit func(Message)) *Supervisor {
	return &Supervisor{dir: dir, onExit: onExit, spawner: newSpawner(), latest: map[string]*process{}}
}

// Log is the path of the file that takes the output of the named process.
func (s *Supervisor) Log(name string) string { return filepath.Join(s.dir, name+".log") }

// Start starts a process. A Spec that has only a name is that of the latest process of this name.
func (s *Supervisor) Start(spec Spec) (pid int, err error) {
	if spec.Name == "" || spec.Name != filepath.Base(spec.Name) {
		return 0, fmt.Errorf("start %q: a name must be usable as a file name", spec.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errors.New("the supervisor is ending")
	}
	last := s.latest[spec.Name]
	if last != nil && last.running() {
		return 0, fmt.Errorf("%s runs already, as pid %d", spec.Name, last.cmd.Process.Pid)
	}
	if len(spec.Command) == 0 {
		if last == nil {
			return 0, fmt.Errorf("start %s: it was never started before, so a command is needed", spec.Name)
		}
		spec = last.spec
	}
	p, err := newProcess(spec, s.Log(spec.Name))
	if err != nil {
		return 0, err
	}
	if err := s.spawner.do(p.start); err != nil {
		return 0, err
	}
	s.latest[spec.Name] = p
	s.reapers.Go(func() {
		p.reap()
		s.mu.Lock()
		asked := p.asked
		s.mu.Unlock()
		s.onExit(Message{Event: "exit", Name: spec.Name, PID: p.cmd.Process.Pid, Status: p.status, Asked: asked,
			Log: s.Log(spec.Name)})
	})
	return p.cmd.Process.Pid, nil
}

// Stop freezes a running process and its group, and returns when the process has stopped.
func (s *Supervisor) Stop(ctx context.Context, name string) (pid int, err error) {
	p, err := s.signal(name, syscall.SIGSTOP, false)
	if err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, p.awaitStopped(ctx)
}

// Continue undoes Stop.
func (s *Supervisor) Continue(name string) (pid int, err error) {
	p, err := s.signal(name, syscall.SIGCONT, false)
	if err != nil {
		return 0, err
	}
	return p.cmd.Process.Pid, nil
}

// End sends sig to a process and waits until it has been reaped. It returns how the process ended.
func (s *Supervisor) End(ctx context.Context, name string, sig syscall.Signal) (status string, err error) {
	p, err := s.signal(name, sig, true)
	if err != nil {
		return "", err
	}
	select {
	case <-p.ended:
		return p.status, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s (pid %d) did not end after %v: %w", name, p.cmd.Process.Pid, sig, ctx.Err())
	}
}

func (s *Supervisor) signal(name string, sig syscall.Signal, ends bool) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.latest[name]
	if p == nil {
		return nil, fmt.Errorf("there is no process named %q", name)
	}
	if !p.running() {
		return nil, fmt.Errorf("%s does not run: it ended with %q", name, p.status)
	}
	p.asked = p.asked || ends
	return p, p.signal(sig)
}

// Running says whether the named process runs, and if not, how it ended.
func (s *Supervisor) Running(name string) (running bool, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.latest[name]
	switch {
	case p == nil:
		return false, "never started"
	case p.running():
		return true, ""
	default:
		return false, p.status
	}
}

// Restart kills the process if it runs, and starts it again.
func (s *Supervisor) Restart(ctx context.Context, name string) (pid int, err error) {
	if running, _ := s.Running(name); running {
		if _, err := s.End(ctx, name, syscall.SIGKILL); err != nil {
			return 0, err
		}
	}
	return s.Start(Spec{Name: name})
}

// Close kills every process, stopped ones included, and returns when all of them have been reaped.
func (s *Supervisor) Close() {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	for _, p := range s.latest {
		if p.running() {
			p.asked = true
			_ = p.signal(syscall.SIGKILL) // fails only if it has just ended by itself
		}
	}
	s.mu.Unlock()
	s.reapers.Wait()
	if !already {
		s.spawner.close()
	}
}
