package supervisor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// The test binary plays three parts. As "supervisor" it serves its standard input. As "parent" it starts such a
// supervisor, hands it the requests of its own input and never ends by itself: the process that tests kill.
const part = "SUPERVISOR_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(part) {
	case "supervisor":
		os.Exit(playSupervisor())
	case "parent":
		os.Exit(playParent())
	default:
		os.Exit(m.Run())
	}
}

func playSupervisor() int {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	dir, err := os.MkdirTemp("", "supervisor-test-")
	if err == nil {
		fmt.Fprintf(os.Stdout, "{\"event\":\"dir\",\"dir\":%q,\"pid\":%d}\n", dir, os.Getpid())
		err = supervisor.Serve(context.Background(), os.Stdin, os.Stdout, dir,
			func(*supervisor.Supervisor) map[string]supervisor.Handler { return nil })
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func playParent() int {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), part+"=supervisor")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(in, os.Stdin)
	return 1
}

// session is a conversation with a supervisor.
type session struct {
	t       *testing.T
	process *exec.Cmd // a supervisor, or the parent of one
	pid     int       // of the supervisor
	dir     string
	in      io.WriteCloser
	out     *bufio.Scanner
	last    int
	events  []supervisor.Message
}

func start(t *testing.T, as string) *session {
	s := &session{t: t, process: exec.Command(os.Args[0])}
	s.process.Env = append(os.Environ(), part+"="+as, "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	s.process.Stderr = os.Stderr
	var err error
	s.in, err = s.process.StdinPipe()
	require.NoError(t, err)
	out, err := s.process.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewScanner(out)
	require.NoError(t, s.process.Start())
	t.Cleanup(func() {
		s.in.Close()
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	})
	hello := s.receive()
	s.dir, s.pid = hello.Dir, hello.PID
	return s
}

func (s *session) receive() supervisor.Message {
	require.True(s.t, s.out.Scan(), "the supervisor's output ended")
	var m supervisor.Message
	require.NoError(s.t, json.Unmarshal(s.out.Bytes(), &m), s.out.Text())
	return m
}

// ask sends a request and returns its reply; events that come before it are kept.
func (s *session) ask(r supervisor.Request) supervisor.Message {
	s.last++
	r.ID = s.last
	line, err := json.Marshal(r)
	require.NoError(s.t, err)
	_, err = s.in.Write(append(line, '\n'))
	require.NoError(s.t, err)
	for {
		m := s.receive()
		if m.Event == "" {
			require.Equal(s.t, r.ID, m.ID)
			return m
		}
		s.events = append(s.events, m)
	}
}

// must is ask for requests that succeed.
func (s *session) must(r supervisor.Request) supervisor.Message {
	s.t.Helper()
	m := s.ask(r)
	require.Empty(s.t, m.Error)
	return m
}

// sh starts a shell script and returns its pid.
func (s *session) sh(name, script string) int {
	s.t.Helper()
	return s.must(supervisor.Request{Op: "start", Name: name, Command: []string{"/bin/sh", "-c", script}}).PID
}

// event returns the next event, whether it was read already or not.
func (s *session) event() supervisor.Message {
	if len(s.events) == 0 {
		return s.receive()
	}
	e := s.events[0]
	s.events = s.events[1:]
	return e
}

// log waits until the log of a process has n lines and returns them.
func (s *session) log(name string, n int) (lines []string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		content, err := os.ReadFile(s.dir + "/" + name + ".log")
		lines = strings.Fields(string(content))
		return err == nil && len(lines) >= n
	}, time.Minute, 5*time.Millisecond)
	return lines
}

// state is the letter that Linux has for the state of a process, "" if there is none. A zombie is gone but for its
// number, which the process that inherited it has yet to take note of.
func state(pid int) string {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return ""
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "?"
	}
	letter := string(stat[strings.LastIndexByte(string(stat), ')')+2])
	if letter == "Z" || letter == "X" {
		return ""
	}
	return letter
}

func requireGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.NotZero(t, pid)
		require.Eventually(t, func() bool { return state(pid) == "" }, time.Minute, 5*time.Millisecond, "pid %d", pid)
	}
}

func requireNoFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist)
	}, time.Minute, 5*time.Millisecond, path)
}
