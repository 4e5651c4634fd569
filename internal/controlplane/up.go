package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/thermostat-go/thermostat/internal/controlplane/plane"
	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// runUp starts a control plane for a person and ends it on SIGINT or SIGTERM.
func runUp(args []string) int {
	flags := flag.NewFlagSet("controlplane up", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "",
		"write the administrator's kubeconfig to this `path` (default: in the data folder)")
	controllers := flags.String("controllers", "*",
		"which controllers of kube-controller-manager run, as its flag of this name takes them")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		return usage(fmt.Sprintf("up does not take the argument %q", flags.Arg(0)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := up(ctx, *kubeconfig, strings.Split(*controllers, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane up:", err)
		return 1
	}
	return 0
}

func up(ctx context.Context, kubeconfig string, controllers []string) (err error) {
	if kubeconfig != "" {
		if kubeconfig, err = filepath.Abs(kubeconfig); err != nil {
			return err
		}
		if err := ours(kubeconfig); err != nil {
			return err
		}
	}
	began := time.Now()
	s, err := startSupervisor()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	cluster, err := s.call(ctx, supervisor.Request{Op: "up", Controllers: controllers})
	if err != nil {
		return interrupted(ctx, err)
	}
	if kubeconfig == "" {
		kubeconfig = cluster.Kubeconfig
	} else {
		content, err := os.ReadFile(cluster.Kubeconfig)
		if err != nil {
			return err
		}
		if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
			return fmt.Errorf("write the kubeconfig: %w", err)
		}
		defer os.Remove(kubeconfig)
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own binary: %w", err)
	}
	command := []string{binary, "node", "--kubeconfig", cluster.Kubeconfig, "--metrics"}
	if _, err := s.call(ctx, supervisor.Request{Op: "start", Name: "node", Command: command}); err != nil {
		return interrupted(ctx, err)
	}
	fmt.Printf(`The control plane is ready after %.1f s, at %s. To use it:

  export KUBECONFIG=%s
  kubectl get namespaces

Logs are in %s. Ctrl-C ends the control plane and removes all its files.
`, time.Since(began).Seconds(), cluster.Server, kubeconfig, cluster.Dir)

	for {
		select {
		case <-ctx.Done():
			return nil
		case m, ok := <-s.messages:
			if !ok {
				return errors.New("the supervisor has ended")
			}
			if m.Event == "exit" {
				return fmt.Errorf("%s has ended (%s); the end of its log:\n%s", m.Name, m.Status,
					supervisor.Tail(m.Log))
			}
		}
	}
}

// ours refuses to write over a kubeconfig that another program wrote: a typing error must not cost a person their
// clusters.
func ours(path string) error {
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !strings.HasPrefix(string(content), plane.KubeconfigHeader):
		return fmt.Errorf("%s exists and was not written by this program: give another --kubeconfig", path)
	default:
		return nil
	}
}

// interrupted hides an error that is only the echo of a Ctrl-C.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// supervised is a supervisor in a process of its own, so that the control plane ends even if this process is killed.
type supervised struct {
	process  *exec.Cmd
	in       io.WriteCloser
	messages chan supervisor.Message // closed when the supervisor's output ends
}

func startSupervisor() (*supervised, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own binary: %w", err)
	}
	process := exec.Command(binary, "supervise")
	process.Stderr = os.Stderr
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C at the terminal is for us alone
	in, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	s := &supervised{process: process, in: in, messages: make(chan supervisor.Message)}
	go func() { // ends when the supervisor does; close waits for it
		defer close(s.messages)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var m supervisor.Message
			if json.Unmarshal(lines.Bytes(), &m) == nil {
				s.messages <- m
			}
		}
	}()
	return s, nil
}

// call sends one request and waits for its reply. Only one call is under way at a time.
func (s *supervised) call(ctx context.Context, r supervisor.Request) (supervisor.Message, error) {
	r.ID = 1
	line, err := json.Marshal(r)
	if err != nil {
		return supervisor.Message{}, err
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		return supervisor.Message{}, fmt.Errorf("ask the supervisor to %s: %w", r.Op, err)
	}
	for {
		select {
		case <-ctx.Done():
			return supervisor.Message{}, ctx.Err()
		case m, ok := <-s.messages:
			switch {
			case !ok:
				return m, errors.New("the supervisor has ended")
			case m.ID == r.ID && m.Error != "":
				return m, errors.New(m.Error)
			case m.ID == r.ID:
				return m, nil
			}
		}
	}
}

// close ends the supervisor's input and waits until it has ended all else.
func (s *supervised) close() error {
	s.in.Close()
	for range s.messages {
	}
	if err := s.process.Wait(); err != nil {
		return fmt.Errorf("the supervisor: %w", err)
	}
	return nil
}
