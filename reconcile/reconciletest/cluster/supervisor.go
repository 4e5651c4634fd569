package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// request and message are the lines that a supervisor reads and writes. They are described in
// internal/controlplane/supervisor, which is part of another module so that its dependencies never become ours.
type request struct {
	ID      int      `json:"id"`
	Op      string   `json:"op"`
	Name    string   `json:"name,omitempty"`
	Command []string `json:"command,omitempty"`
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`

	Controllers []string `json:"controllers,omitempty"`
}

type message struct {
	ID         int    `json:"id"`
	Error      string `json:"error"`
	Event      string `json:"event"`
	Name       string `json:"name"`
	PID        int    `json:"pid"`
	Status     string `json:"status"`
	Asked      bool   `json:"asked"`
	Log        string `json:"log"`
	Dir        string `json:"dir"`
	Server     string `json:"server"`
	Kubeconfig string `json:"kubeconfig"`
}

var errSupervisorEnded = errors.New("the supervisor of the cluster has ended")

// supervisor is our end of the pipes to a "controlplane supervise". Its one goroutine reads the supervisor's output; it
// ends when the supervisor does, and close waits for it.
type supervisor struct {
	command *exec.Cmd
	in      io.WriteCloser
	onExit  func(message)
	ended   chan struct{} // closed when the supervisor's output has ended

	// Guarded by mu. A reply takes its request out of pending.
	mu      sync.Mutex
	next    int
	pending map[int]chan message
}

func startSupervisor(binary string, onExit func(message)) (*supervisor, error) {
	s := &supervisor{
		command: exec.Command(binary, "supervise"),
		onExit:  onExit,
		ended:   make(chan struct{}),
		pending: map[int]chan message{},
	}
	// With our own stderr go test does not report the end of a test binary before the supervisor has ended, too.
	s.command.Stderr = os.Stderr
	// Ctrl-C at the terminal is for us. The supervisor hears of it when we end.
	ownGroup(s.command)
	var err error
	if s.in, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	go s.read(out)
	return s, nil
}

func (s *supervisor) read(out io.Reader) {
	defer close(s.ended)
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			m = message{Error: fmt.Sprintf("the supervisor wrote %q: %v", line, err)}
		}
		if m.Event != "" {
			s.onExit(m)
			continue
		}
		s.mu.Lock()
		reply := s.pending[m.ID]
		delete(s.pending, m.ID)
		s.mu.Unlock()
		if reply != nil {
			reply <- m // has room for it
		}
	}
}

// call sends a request and waits for its reply. If ctx ends first, the supervisor still does what it was asked to.
func (s *supervisor) call(ctx context.Context, r request) (message, error) {
	reply := make(chan message, 1)
	s.mu.Lock()
	s.next++
	r.ID = s.next
	s.pending[r.ID] = reply
	line, err := json.Marshal(r)
	if err == nil {
		_, err = s.in.Write(append(line, '\n'))
	}
	s.mu.Unlock()
	if err != nil {
		return message{}, fmt.Errorf("%s %s: %w (%w)", r.Op, r.Name, errSupervisorEnded, err)
	}
	select {
	case m := <-reply:
		if m.Error != "" {
			return m, errors.New(m.Error)
		}
		return m, nil
	case <-s.ended:
		return message{}, fmt.Errorf("%s %s: %w", r.Op, r.Name, errSupervisorEnded)
	case <-ctx.Done():
		return message{}, fmt.Errorf("%s %s: %w", r.Op, r.Name, ctx.Err())
	}
}

// close ends the supervisor's input and returns when it has ended everything else and itself.
func (s *supervisor) close() error {
	s.in.Close()
	<-s.ended
	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("the supervisor of the cluster: %w", err)
	}
	return nil
}
