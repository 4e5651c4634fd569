package sharding

import (
	"bufio"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
)

// A disturbed has three processes that share the slices of a control plane of their own, through a network that can be
// cut, and judges their stamps as they come.
type disturbed struct {
	t          *testing.T
	cluster    *testcluster.Cluster
	network    *network.Network
	command    func(name string) testcluster.Command
	processes  map[string]*testcluster.Process
	stamps     *bufio.Reader
	unfinished string // the part of a line that has been written so far
	turns      turns
	last       map[int]stamp // of each slice
	longest    time.Duration // that a slice was worked on by nobody
	during     string        // when that was seen
	lines      int
}

func disturb(t *testing.T) *disturbed {
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true,
		Controllers: []string{"serviceaccount-controller"}})
	net, err := network.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, net.Close()) })
	cfg := cluster.Config()
	server, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	port, err := net.Listen("server", "127.0.0.1:0", server.Host)
	require.NoError(t, err)
	cfg.Host = "https://" + port.Address()
	namespace, dir := cluster.Namespace(t), t.TempDir()
	createStamped(t, cluster.Config(), namespace)
	file, kubeconfig := filepath.Join(dir, "stamps"), filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, testcluster.WriteKubeconfig(kubeconfig, cfg))
	stamps, err := os.Open(file)
	require.NoError(t, err)
	t.Cleanup(func() { stamps.Close() })
	binary, err := os.Executable()
	require.NoError(t, err)
	d := &disturbed{t: t, cluster: cluster, network: net, stamps: bufio.NewReader(stamps), turns: turns{},
		processes: map[string]*testcluster.Process{}, last: map[int]stamp{}}
	d.command = func(name string) testcluster.Command {
		return testcluster.Command{Name: namespace + "-" + name, Path: binary, Env: []string{"REPLICA=" + name,
			"KUBECONFIG=" + kubeconfig, "NAMESPACE=" + namespace, "STAMPS=" + file}}
	}
	return d
}

func (d *disturbed) start(name string) {
	p, err := d.network.Start(network.End(name), func() (*testcluster.Process, error) {
		if p := d.processes[name]; p != nil {
			return p.Restart(d.t.Context())
		}
		return d.cluster.Run(d.t.Context(), d.command(name))
	})
	require.NoError(d.t, err)
	d.processes[name] = p
}

// tolerate requires that an order to a process went well, unless the process has ended by itself: its work may have
// been stuck for longer than it may be.
func (d *disturbed) tolerate(p *testcluster.Process, err error) {
	if err == nil {
		return
	}
	select {
	case <-p.Ended():
	case <-time.After(time.Minute):
		require.NoError(d.t, err)
	}
}

// read judges the stamps that have been written since the last call.
func (d *disturbed) read(why string, from time.Time, worked map[int]bool, replicas map[string]bool) {
	for {
		line, err := d.stamps.ReadString('\n')
		d.unfinished += line
		if err == io.EOF {
			return
		}
		require.NoError(d.t, err)
		s, err := parseStamp(d.unfinished)
		require.NoError(d.t, err, "%q", d.unfinished)
		d.unfinished = ""
		d.lines++
		require.Empty(d.t, d.turns.add(s))
		if last, ok := d.last[s.slice]; ok && s.at.Sub(last.at) > d.longest {
			d.longest, d.during = s.at.Sub(last.at), why
		}
		if s.at.After(d.last[s.slice].at) {
			d.last[s.slice] = s
		}
		if s.at.After(from) {
			name, _, _ := strings.Cut(s.by, "-")
			worked[s.slice], replicas[name] = true, true
		}
	}
}

// all waits until all slices are worked on, and each of these works.
func (d *disturbed) all(why string, who ...string) {
	from, worked, replicas := time.Now(), map[int]bool{}, map[string]bool{}
	missing := func(name string) bool { return !replicas[name] }
	for len(worked) < realSlices || slices.ContainsFunc(who, missing) {
		require.Less(d.t, time.Since(from), 3*time.Minute, "%s: %v work on %v", why, replicas, worked)
		time.Sleep(100 * time.Millisecond)
		d.read(why, from, worked, replicas)
		for _, name := range who { // one whose work is stuck for longer than it may be has ended, too
			select {
			case <-d.processes[name].Ended():
				d.start(name)
			default:
			}
		}
	}
}

// TestRealProcessesInTrouble has three processes share the slices of a real control plane. It has each trouble once,
// and more for as long as THERMOSTAT_SOAK says, such as 1h.
func TestRealProcessesInTrouble(t *testing.T) {
	d, random := disturb(t), rand.New(rand.NewPCG(41, uint64(time.Now().UnixNano())))
	ctx := t.Context()
	names := []string{"a", "b", "c"}
	for _, name := range names {
		d.start(name)
	}
	d.all("at first", names...)
	others := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	}
	short := func() time.Duration { return time.Duration(random.IntN(5000)) * time.Millisecond }
	troubles := map[string]func(p *testcluster.Process, name string){
		"cut off": func(_ *testcluster.Process, name string) {
			heal := []func(){d.network.Cut(network.End(name), "server")}
			if random.IntN(2) == 0 {
				heal = append(heal, d.network.Cut("server", network.End(name)))
			}
			d.all("cut off", others(name)...)
			for _, f := range heal {
				f()
			}
		},
		"killed": func(p *testcluster.Process, name string) {
			d.tolerate(p, p.Kill(ctx))
			if random.IntN(2) == 0 {
				d.all("killed", others(name)...)
			}
		},
		"paused": func(p *testcluster.Process, name string) {
			d.tolerate(p, p.Stop(ctx))
			time.Sleep(short())
			if random.IntN(2) == 0 {
				d.all("paused", others(name)...)
			}
			d.tolerate(p, p.Continue(ctx))
		},
		"asked to end": func(p *testcluster.Process, _ string) {
			d.tolerate(p, p.Terminate(ctx))
		},
		"without a server": func(*testcluster.Process, string) {
			require.NoError(t, d.cluster.Kill(ctx, testcluster.APIServer))
			time.Sleep(short())
			require.NoError(t, d.cluster.Restart(ctx, testcluster.APIServer))
		},
	}
	order := slices.Sorted(maps.Keys(troubles))
	until, _ := time.ParseDuration(os.Getenv("THERMOSTAT_SOAK"))
	began, done := time.Now(), map[string]int{}
	for round := 0; round < len(order) || time.Since(began) < until; round++ {
		trouble := order[random.IntN(len(order))]
		if round < len(order) {
			trouble = order[round]
		}
		name := names[random.IntN(len(names))]
		troubles[trouble](d.processes[name], name)
		done[trouble]++
		d.all("after "+name+" was "+trouble, names...)
	}
	for _, p := range d.processes {
		d.tolerate(p, p.Terminate(ctx))
	}
	d.read("at the end", time.Now(), map[int]bool{}, map[string]bool{})
	t.Logf("%v: %v; %d stamps, overlaps 0, at most %v without work on a slice, %s",
		time.Since(began).Round(time.Second), done, d.lines, d.longest.Round(10*time.Millisecond), d.during)
}
