package sharding

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
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
	silences   silences      // of the server
	soak       time.Duration // for how long it goes on; zero: each trouble once
	longest    pause         // of all
	worst      pause         // the longest but for the time in which the server was silent
	lines      int
}

// A pause is a time in which nobody worked on a slice.
type pause struct {
	slice    int
	from, to stamp
	silent   time.Duration // of it the server answered nobody
	why      string        // the trouble in which it has ended
}

func (p pause) length() time.Duration { return p.to.at.Sub(p.from.at) }

// excess is for how long nobody worked though the server answered.
func (p pause) excess() time.Duration { return p.length() - p.silent }

// maxExcess bounds that in a soak: for the Lease of a dead owner to stand for LeaseDuration, for it to be seen and
// removed, and for caches to list anew, on a machine that is busy. internals.md has what was measured. The test
// that has each trouble once depends on no load: there it is a minute.
const maxExcess = 4 * realLease

func (p pause) String() string {
	return fmt.Sprintf("%v, of which the server was silent for %v: slice %d from %s to %s, %s",
		p.length().Round(10*time.Millisecond), p.silent.Round(10*time.Millisecond), p.slice, p.from.by, p.to.by, p.why)
}

// silences are the times in which the server answers nobody, found by somebody who writes to it all the time.
type silences struct {
	mu       sync.Mutex
	all      []span    // guarded by mu
	answered time.Time // guarded by mu: when the latest answer came
}

type span struct{ from, to time.Time }

// silentFor is how long no write is answered when there is a silence. One that is answered later than that is no good
// for a replica either: see Options.tryTimeout.
const silentFor = time.Second

// listen writes until ctx ends. The time in which the machine lets nobody run is a silence, too.
func (s *silences) listen(ctx context.Context, maps corev1client.ConfigMapInterface) {
	s.mu.Lock()
	s.answered = time.Now()
	s.mu.Unlock()
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written"}, Data: map[string]string{}}
	for ctx.Err() == nil {
		written.Data["at"] = time.Now().String()
		try, cancel := context.WithTimeout(ctx, silentFor)
		_, err := maps.Update(try, written, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(try, written, metav1.CreateOptions{})
		}
		cancel()
		if err == nil {
			s.mu.Lock()
			if now := time.Now(); now.Sub(s.answered) > silentFor {
				s.all = append(s.all, span{s.answered, now})
			}
			s.answered = time.Now()
			s.mu.Unlock()
		}
		lifecycle.Sleep(ctx, 100*time.Millisecond)
	}
}

// latest returns when the latest answer came.
func (s *silences) latest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// within returns how long the server was silent in that time.
func (s *silences) within(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, silence := range append(s.all, span{s.answered, time.Now()}) {
		if silence.to.Sub(silence.from) > silentFor {
			sum += max(0, earlier(silence.to, to).Sub(later(silence.from, from)))
		}
	}
	return sum
}

// TestTheListenerHears a server that has not answered its first writes.
func TestTheListenerHears(t *testing.T) {
	inFleet(t, 0, func(f *fleet) {
		link := f.server.Link()
		link.Inject(func(reconciletest.Request) reconciletest.Fault {
			return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
				return nil, errors.New("not now")
			}
		})
		var s silences
		var listener sync.WaitGroup
		ctx, stop := context.WithCancel(quiet)
		began := time.Now()
		maps := kubernetes.NewForConfigOrDie(link.Config()).CoreV1().ConfigMaps("default")
		listener.Go(func() { s.listen(ctx, maps) })
		time.Sleep(3 * time.Second)
		link.Inject(nil)
		time.Sleep(5 * time.Second)
		require.Less(f, time.Since(s.latest()), silentFor)
		require.InDelta(f, 3, s.within(began, time.Now()).Seconds(), 0.5)
		stop()
		listener.Wait()
	})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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
	var listener sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	maps := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().ConfigMaps(namespace)
	listener.Go(func() { d.silences.listen(ctx, maps) })
	t.Cleanup(func() { stop(); listener.Wait() })
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
		if last, ok := d.last[s.slice]; ok {
			d.paused(pause{slice: s.slice, from: last, to: s, why: why})
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

// paused judges a pause, and logs a long one.
func (d *disturbed) paused(p pause) {
	if p.length() < realLease {
		return
	}
	p.silent = d.silences.within(p.from.at, p.to.at)
	if p.excess() > 2*realLease {
		d.t.Log("long:", p)
	}
	most := time.Minute
	if d.soak > 0 {
		most = maxExcess
	}
	require.Less(d.t, p.excess(), most, "%v", p)
	if p.length() > d.longest.length() {
		d.longest = p
	}
	if p.excess() > d.worst.excess() {
		d.worst = p
	}
}

// all waits until all slices are worked on, and each of these works. The server answers then, so the listener has to
// hear it: one that did not would take all pauses for silences.
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
	for heard := time.Now(); !d.silences.latest().After(heard); time.Sleep(100 * time.Millisecond) {
		require.Less(d.t, time.Since(heard), time.Minute, "%s: the listener hears nothing", why)
	}
}

// TestRealProcessesInTrouble has three processes share the slices of a real control plane. It has each trouble once,
// and more for as long as THERMOSTAT_SOAK says, such as 1h.
func TestRealProcessesInTrouble(t *testing.T) {
	d, random := disturb(t), rand.New(rand.NewPCG(41, uint64(time.Now().UnixNano())))
	d.soak, _ = time.ParseDuration(os.Getenv("THERMOSTAT_SOAK"))
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
	began, done := time.Now(), map[string]int{}
	for round := 0; round < len(order) || time.Since(began) < d.soak; round++ {
		trouble := order[random.IntN(len(order))]
		if round < len(order) {
			trouble = order[round]
		}
		name := names[random.IntN(len(names))]
		troubles[trouble](d.processes[name], name)
		if done[trouble]++; round%20 == 19 {
			t.Logf("%v: %v; %d stamps, overlaps 0; longest: %v; but for silences: %v",
				time.Since(began).Round(time.Second), done, d.lines, d.longest, d.worst)
		}
		d.all("after "+name+" was "+trouble, names...)
	}
	for _, p := range d.processes {
		d.tolerate(p, p.Terminate(ctx))
	}
	d.read("at the end", time.Now(), map[int]bool{}, map[string]bool{})
	t.Logf("%v: %v; %d stamps, overlaps 0; the longest time without work on a slice: %v; the longest but for silences "+
		"of the server: %v", time.Since(began).Round(time.Second), done, d.lines, d.longest, d.worst)
}
