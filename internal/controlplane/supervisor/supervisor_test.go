package supervisor_test

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// Nothing outlives the process that started it, however that ends: here with kill -9, while one child is stopped, one
// has a child of its own, and one shuts its ears to every polite signal.
func TestKilledParentLeavesNothingBehind(t *testing.T) {
	s := start(t, "parent")
	plain := s.sh("plain", "exec sleep 1000")
	stopped := s.sh("stopped", "exec sleep 1000")
	s.must(supervisor.Request{Op: "stop", Name: "stopped"})
	deaf := s.sh("deaf", "trap '' TERM INT HUP PIPE; while :; do sleep 1; done")
	family := s.sh("family", "sleep 1000 & echo $!; wait")
	grandchild, err := strconv.Atoi(s.log("family", 1)[0])
	require.NoError(t, err)
	all := []int{plain, stopped, deaf, family, grandchild, s.pid}
	for _, pid := range all {
		require.NotEmpty(t, state(pid))
	}

	require.NoError(t, s.process.Process.Kill())
	requireGone(t, all...)
	requireNoFile(t, s.dir)
}

// The parent may die at any moment, with requests under way.
func TestParentKilledWhileStarting(t *testing.T) {
	for range 10 {
		s := start(t, "parent")
		for i := range 20 {
			_, err := io.WriteString(s.in, `{"id":1,"op":"start","name":"n`+strconv.Itoa(i)+
				`","command":["/bin/sleep","1000"]}`+"\n")
			require.NoError(t, err)
		}
		require.NoError(t, s.process.Process.Kill())
		requireGone(t, s.pid)
		for s.out.Scan() { // every child that was reported is gone; its supervisor waited for it
			if _, pid, ok := strings.Cut(s.out.Text(), `"pid":`); ok {
				n, err := strconv.Atoi(strings.TrimRight(strings.SplitN(pid, ",", 2)[0], "}"))
				require.NoError(t, err)
				requireGone(t, n)
			}
		}
		requireNoFile(t, s.dir)
	}
}

func TestEndOfInput(t *testing.T) {
	s := start(t, "supervisor")
	child := s.sh("child", "exec sleep 1000")
	require.NoError(t, s.in.Close())
	exit := s.event()
	require.Equal(t, "exit", exit.Event)
	require.Equal(t, child, exit.PID)
	require.True(t, exit.Asked)
	require.False(t, s.out.Scan(), "nothing more")
	require.NoError(t, s.process.Wait())
	requireGone(t, child)
	requireNoFile(t, s.dir)
}

func TestOperations(t *testing.T) {
	s := start(t, "supervisor")
	pid := s.sh("child", "echo up; exec sleep 1000")
	s.log("child", 1)

	require.Contains(t, s.ask(supervisor.Request{Op: "start", Name: "child"}).Error,
		"runs already, as pid "+strconv.Itoa(pid))

	require.Equal(t, pid, s.must(supervisor.Request{Op: "stop", Name: "child"}).PID)
	require.Equal(t, "T", state(pid))
	require.Equal(t, pid, s.must(supervisor.Request{Op: "stop", Name: "child"}).PID, "stopped already")
	require.Equal(t, pid, s.must(supervisor.Request{Op: "continue", Name: "child"}).PID)
	require.Eventually(t, func() bool { return state(pid) == "S" }, time.Minute, 5*time.Millisecond)

	require.Equal(t, "signal: terminated", s.must(supervisor.Request{Op: "terminate", Name: "child"}).Status)
	exit := s.event()
	require.Equal(t, supervisor.Message{
		Event: "exit", Name: "child", PID: pid, Status: "signal: terminated", Asked: true, Log: s.dir + "/child.log",
	}, exit)

	require.Contains(t, s.ask(supervisor.Request{Op: "kill", Name: "child"}).Error,
		`it ended with "signal: terminated"`)

	second := s.must(supervisor.Request{Op: "start", Name: "child"}).PID
	require.NotEqual(t, pid, second)
	require.Equal(t, []string{"up", "up"}, s.log("child", 2), "the same command again, and the log goes on")
	s.must(supervisor.Request{Op: "stop", Name: "child"})
	third := s.must(supervisor.Request{Op: "restart", Name: "child"}).PID
	require.NotEqual(t, second, third)
	requireGone(t, second)
	require.Equal(t, "signal: killed", s.must(supervisor.Request{Op: "kill", Name: "child"}).Status)
}

func TestExitThatNobodyAskedFor(t *testing.T) {
	s := start(t, "supervisor")
	pid := s.sh("short", "sleep 1000 & echo $!; exit 3")
	exit := s.event()
	require.Equal(t, "exit status 3", exit.Status)
	require.Equal(t, pid, exit.PID)
	require.False(t, exit.Asked)
	orphan, err := strconv.Atoi(s.log("short", 1)[0])
	require.NoError(t, err)
	requireGone(t, orphan)
}

func TestBadRequests(t *testing.T) {
	s := start(t, "supervisor")
	for line, want := range map[string]string{
		`hello`:                             "one JSON object in one line",
		`{"op":"dance"}`:                    `unknown operation "dance"`,
		`{"op":"kill","name":"nobody"}`:     `there is no process named "nobody"`,
		`{"op":"start","name":"nobody"}`:    "a command is needed",
		`{"op":"start","name":"../x"}`:      "usable as a file name",
		`{"op":"restart","command":["ls"]}`: "takes no command",
		`{"op":"start","name":"x","command":["/no/such/binary"]}`: "no such file or directory",
	} {
		_, err := io.WriteString(s.in, line+"\n")
		require.NoError(t, err)
		require.Contains(t, s.receive().Error, want, line)
	}
	require.NotZero(t, s.sh("child", "exec sleep 1000"), "it serves on")
}

func TestTail(t *testing.T) {
	path := t.TempDir() + "/log"
	require.Contains(t, supervisor.Tail(path), "no such file")
	for content, want := range map[string]string{
		"":              "(empty)",
		"one\ntwo\n":    "one\ntwo",
		longLines(1000): strings.TrimSpace(longLines(204)), // whole lines of 20 bytes, at most 4096 bytes
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.Equal(t, want, supervisor.Tail(path))
	}
}

func longLines(n int) string { return strings.Repeat("0123456789012345678\n", n) }
