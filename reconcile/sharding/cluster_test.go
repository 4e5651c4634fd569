package sharding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv("REPLICA") == "" {
		os.Exit(m.Run())
	}
	if err := runReplica(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, ErrStuck) {
			os.Exit(1)
		}
		os.Exit(2)
	}
	os.Exit(0)
}

// realSlices is how many slices the real processes share.
const realSlices = 12

// runReplica takes part until SIGTERM. It stamps its work on each slice into a file, a line every few milliseconds. The
// time in a line is from before the check: in a process that was paused after it the line itself may come at any time.
func runReplica() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	stamps, err := os.OpenFile(os.Getenv("STAMPS"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var shards *Shards
	var working lifecycle.Group
	work := func(slice int, key types.NamespacedName) error {
		for {
			now := time.Now()
			ctx, epoch, leave, err := shards.Enter(context.Background(), key)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(stamps, "%d %s-%d %d\n", slice, os.Getenv("REPLICA"), epoch, now.UnixNano())
			lifecycle.Sleep(ctx, 20*time.Millisecond)
			leave()
			if err != nil {
				return err
			}
		}
	}
	shards, err = New(Options{REST: cfg, Namespace: os.Getenv("NAMESPACE"), Name: "shards",
		Identity: os.Getenv("REPLICA"), By: func(key types.NamespacedName) string { return key.Name },
		Slices: realSlices, LeaseDuration: 3 * time.Second, RenewDeadline: 1500 * time.Millisecond,
		RetryPeriod: 400 * time.Millisecond, StopGrace: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	for again := true; again; again = errors.Is(err, ErrLost) && ctx.Err() == nil {
		err = shards.Run(ctx, func(tenure context.Context) error {
			shards.Inherit(tenure, func(context.Context, []int) {}, func(slices []int) {
				for _, slice := range slices {
					working.Go("work", func() { _ = work(slice, keyOf(slice, realSlices)) })
				}
			})
			return nil
		})
	}
	<-working.Done()
	return err
}

// A stamp is one line: who worked on a slice, under which epoch.
type stamp struct {
	slice int
	by    string
	at    time.Time
}

func readStamps(t *testing.T, file string) (all []stamp) {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range bytes.Lines(raw) {
		if s, err := parseStamp(string(line)); err == nil { // the last line may not be finished
			all = append(all, s)
		}
	}
	return all
}

func parseStamp(line string) (s stamp, err error) {
	var at int64
	_, err = fmt.Sscanf(line, "%d %s %d\n", &s.slice, &s.by, &at)
	s.at = time.Unix(0, at)
	return s, err
}

// turns are who works on each slice, by stamps in the order in which they were written.
type turns map[int]*turn

type turn struct {
	by    string
	began time.Time
	ended map[string]bool
	owner int // how many there were
}

// add says what is wrong with a stamp: one of somebody who went on with a slice after another one had begun. A line
// that comes late, and was begun before the later one's first, is what a Lease cannot prevent: the one write in flight
// of a process that was paused.
func (all turns) add(s stamp) string {
	t := all[s.slice]
	if t == nil {
		t = &turn{ended: map[string]bool{}}
		all[s.slice] = t
	}
	switch {
	case s.by == t.by || t.ended[s.by] && s.at.Before(t.began):
		return ""
	case t.ended[s.by]:
		return fmt.Sprintf("%s worked on slice %d after %s had begun", s.by, s.slice, t.by)
	}
	t.owner++
	t.ended[t.by] = true
	t.by, t.began = s.by, s.at
	return ""
}

func overlaps(stamps []stamp) (owners int, broken []string) {
	all := turns{}
	for _, s := range stamps {
		if wrong := all.add(s); wrong != "" {
			broken = append(broken, wrong)
		}
	}
	for _, t := range all {
		owners += t.owner
	}
	return owners, broken
}

func TestStampsOverlapIsSeen(t *testing.T) {
	line := func(by string, at int64) stamp { return stamp{1, by, time.Unix(at, 0)} }
	n, broken := overlaps([]stamp{line("a", 1), line("a", 2), line("b", 3), {2, "a", time.Unix(4, 0)}})
	require.Equal(t, 3, n)
	require.Empty(t, broken)
	_, broken = overlaps([]stamp{line("a", 1), line("b", 2), line("a", 3)})
	require.Len(t, broken, 1)
	_, broken = overlaps([]stamp{line("a", 1), line("b", 3), line("a", 2), line("b", 4)})
	require.Empty(t, broken, "in flight while its process was paused")
}

// TestRealProcesses has three processes share the slices of a real control plane, while they are killed, paused and
// asked to end.
func TestRealProcesses(t *testing.T) {
	cluster := testcluster.Shared(t)
	namespace, dir := cluster.Namespace(t), t.TempDir()
	file, kubeconfig := filepath.Join(dir, "stamps"), filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, testcluster.WriteKubeconfig(kubeconfig, cluster.Config()))
	binary, err := os.Executable()
	require.NoError(t, err)
	run := func(name string) *testcluster.Process {
		p, err := cluster.Run(t.Context(), testcluster.Command{Name: namespace + "-" + name, Path: binary,
			Env: []string{"REPLICA=" + name, "KUBECONFIG=" + kubeconfig, "NAMESPACE=" + namespace, "STAMPS=" + file}})
		require.NoError(t, err)
		return p
	}
	processes := map[string]*testcluster.Process{}
	// up starts a process again that has ended by itself, as a kubelet would: its work had to end and did not, because
	// it was paused just then, or got no processor.
	up := func(name string) *testcluster.Process {
		select {
		case <-processes[name].Ended():
			status, err := processes[name].Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, "exit status 1", status, "only work that is stuck may end it: see %s", processes[name].Log)
			processes[name] = run(name)
		default:
		}
		return processes[name]
	}
	// all waits until every slice is worked on, and each of these works.
	all := func(who ...string) {
		for from := time.Now(); ; time.Sleep(200 * time.Millisecond) {
			worked, replicas := map[int]bool{}, map[string]bool{}
			for _, s := range readStamps(t, file) {
				if s.at.After(from) {
					name, _, _ := strings.Cut(s.by, "-")
					worked[s.slice], replicas[name] = true, true
				}
			}
			missing := func(name string) bool { return !replicas[name] }
			if len(worked) == realSlices && !slices.ContainsFunc(who, missing) {
				return
			}
			require.Less(t, time.Since(from), 2*time.Minute, "%v", who)
			for _, name := range who {
				up(name)
			}
		}
	}
	began := time.Now()
	for _, name := range []string{"a", "b", "c"} {
		processes[name] = run(name)
	}
	all("a", "b", "c")
	require.NoError(t, up("a").Kill(t.Context()))
	all("b", "c")
	require.NoError(t, up("b").Stop(t.Context()))
	all("c")
	require.NoError(t, processes["b"].Continue(t.Context()))
	processes["a"], err = processes["a"].Restart(t.Context())
	require.NoError(t, err)
	all("a", "c") // b's work may have been stuck when it was paused: then it has ended
	c := up("c")
	require.NoError(t, c.Terminate(t.Context()))
	status, err := c.Wait(t.Context())
	require.NoError(t, err)
	require.Contains(t, []string{"exit status 0", ""}, status, "see %s", c.Log)
	all("a")
	var ending sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		ending.Go(func() { _ = processes[name].Terminate(context.Background()) })
	}
	ending.Wait()
	lines := readStamps(t, file)
	owners, broken := overlaps(lines)
	t.Logf("%v: %d stamps, %d slices begun, overlaps %d", time.Since(began).Round(time.Second), len(lines), owners,
		len(broken))
	require.Empty(t, broken)
	require.Greater(t, owners, 2*realSlices)
}
