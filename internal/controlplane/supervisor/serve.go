package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// Handler serves one operation. Its context ends when the input does.
type Handler func(ctx context.Context, r Request) (Message, error)

// Serve starts a Supervisor for dir and serves requests from in until in or ctx ends. It returns when every child is
// gone. The handlers that extra returns are served along with the basic ones.
func Serve(ctx context.Context, in io.Reader, out io.Writer, dir string,
	extra func(*Supervisor) map[string]Handler) error {
	w := &lineWriter{out: out}
	s := New(dir, w.write)
	handlers := basic(s)
	for op, h := range extra(s) {
		handlers[op] = h
	}

	lines := make(chan []byte)
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			select {
			case lines <- append([]byte(nil), scanner.Bytes()...):
			case <-done:
				return
			}
		}
		ended <- scanner.Err()
	}()
	defer close(done)

	serving, cancel := context.WithCancel(ctx)
	var requests sync.WaitGroup
	defer requests.Wait()
	defer s.Close() // first the processes, then the requests that wait for one of them
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("read requests: %w", err)
			}
			return nil
		case line := <-lines:
			requests.Go(func() { w.write(serve(serving, handlers, line)) })
		}
	}
}

func serve(ctx context.Context, handlers map[string]Handler, line []byte) Message {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return Message{Error: fmt.Sprintf("a request must be one JSON object in one line: %v", err)}
	}
	h, ok := handlers[r.Op]
	if !ok {
		return Message{ID: r.ID, Error: fmt.Sprintf("unknown operation %q", r.Op)}
	}
	m, err := h(ctx, r)
	m.ID = r.ID
	if err != nil {
		m.Error = err.Error()
	}
	return m
}

func basic(s *Supervisor) map[string]Handler {
	end := func(sig syscall.Signal) Handler {
		return func(ctx context.Context, r Request) (Message, error) {
			status, err := s.End(ctx, r.Name, sig)
			return Message{Status: status}, err
		}
	}
	return map[string]Handler{
		"start": func(_ context.Context, r Request) (Message, error) {
			pid, err := s.Start(Spec{Name: r.Name, Command: r.Command, Env: r.Env, Dir: r.Dir})
			return Message{PID: pid, Log: s.Log(r.Name)}, err
		},
		"restart": func(ctx context.Context, r Request) (Message, error) {
			if len(r.Command) > 0 {
				return Message{}, errors.New("restart starts a process as it was started last: it takes no command")
			}
			pid, err := s.Restart(ctx, r.Name)
			return Message{PID: pid, Log: s.Log(r.Name)}, err
		},
		"stop": func(ctx context.Context, r Request) (Message, error) {
			pid, err := s.Stop(ctx, r.Name)
			return Message{PID: pid}, err
		},
		"continue": func(_ context.Context, r Request) (Message, error) {
			pid, err := s.Continue(r.Name)
			return Message{PID: pid}, err
		},
		"kill":      end(syscall.SIGKILL),
		"terminate": end(syscall.SIGTERM),
	}
}

// lineWriter writes messages one after the other. A write can block only while the parent lives and does not read; when
// the parent dies, the write fails, which is no news: the end of the input says the same.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *lineWriter) write(m Message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.Write(append(line, '\n'))
}
