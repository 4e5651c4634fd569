package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Spec says how to start a process.
type Spec struct {
	Name    string
	Command []string
	Env     []string
	Dir     string
}

// process is one run of a Spec.
type process struct {
	spec  Spec
	cmd   *exec.Cmd
	asked bool // guarded by Supervisor.mu

	ended  chan struct{} // closed by the reaper, after status is set
	status string
}

// newProcess prepares a run whose output is appended to logPath.
func newProcess(spec Spec, logPath string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", spec.Name, err)
	}
	cmd := exec.Command(spec.Command[0], spec.Command[1:]...)
	cmd.Dir = spec.Dir
	cmd.Env = append(os.Environ(), spec.Env...)
	// A file, not a pipe: nothing has to be copied, and a grandchild that keeps it open does not delay Wait.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	return &process{spec: spec, cmd: cmd, ended: make(chan struct{})}, nil
}

// start runs on the spawner's thread.
func (p *process) start() error {
	defer p.cmd.Stdout.(*os.File).Close() // the child has its own copy
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.spec.Name, err)
	}
	return nil
}

// reap waits for the process, then kills what is left of its group.
func (p *process) reap() {
	_ = p.cmd.Wait() // the status says all that this error says
	p.status = p.cmd.ProcessState.String()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	close(p.ended)
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil {
		return fmt.Errorf("send %v to %s (pid %d): %w", sig, p.spec.Name, p.cmd.Process.Pid, err)
	}
	return nil
}

// Tail returns the end of a log file: what an error message needs to show.
func Tail(path string) string {
	const most = 4 << 10
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(0, info.Size()-most)
	buf := make([]byte, most)
	n, err := f.ReadAt(buf, from)
	if n == 0 && err != nil {
		return "(empty)"
	}
	buf = buf[:n]
	if from > 0 { // begin at a line
		if _, rest, ok := bytes.Cut(buf, []byte("\n")); ok {
			buf = rest
		}
	}
	return string(bytes.TrimSpace(buf))
}
