package sharding

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A testGroup is replicas around a server in memory, in virtual time. For each slice that a replica gains, somebody
// enters and leaves its work, again and again, and the group looks whether another replica does so at the same time.
type testGroup struct {
	*testing.T
	server  *reconciletest.Server
	change  func(*Options)
	members []*testMember
	faults  func(reconciletest.Request) reconciletest.Fault // that who starts has

	mu      sync.Mutex
	works   map[int]*testMember // who works on a slice
	free    map[int]time.Time   // since when nobody has entered its work
	longest time.Duration       // of free
	broken  []string
}

type testMember struct {
	*Shards
	name   string
	link   *reconciletest.Link
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	linger time.Duration // how long work goes on after its context has ended
	dead   bool          // guarded by the group's mu
	works  lifecycle.Group
}

func newTestGroup(t *testing.T, change func(*Options)) *testGroup {
	return &testGroup{T: t, server: reconciletest.NewServer(t, reconciletest.Options{}), change: change,
		works: map[int]*testMember{}, free: map[int]time.Time{}}
}

func (g *testGroup) start(name string) *testMember {
	m := &testMember{name: name, link: g.server.Link(), done: make(chan struct{})}
	opts := Options{REST: m.link.Config(), Namespace: "default", Name: "shards", Identity: name, Slices: 64,
		By: func(key types.NamespacedName) string { return key.Name }}
	if g.change != nil {
		g.change(&opts)
	}
	var err error
	m.Shards, err = New(opts)
	require.NoError(g, err)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	m.cancel = cancel
	m.link.Inject(g.faults)
	m.works.Go("run", func() {
		for again := true; again; again = errors.Is(m.err, ErrLost) && ctx.Err() == nil {
			m.err = m.Run(ctx, func(tenure context.Context) error {
				m.Inherit(tenure, func(context.Context, []string, bool) {}, func(slices []int) { g.gained(m, slices) })
				return nil
			})
		}
		close(m.done)
	})
	g.members = append(g.members, m)
	return m
}

// keyOf finds a key of a slice.
func keyOf(slice, n int) types.NamespacedName {
	for i := 0; ; i++ {
		if name := fmt.Sprint(i); sliceOf(name, n) == slice {
			return types.NamespacedName{Namespace: "default", Name: name}
		}
	}
}

func (g *testGroup) gained(m *testMember, slices []int) {
	for _, slice := range slices {
		key := keyOf(slice, m.count())
		m.works.Go("work", func() {
			for g.work(m, slice, key) {
			}
		})
	}
}

// work is one run of a key.
func (g *testGroup) work(m *testMember, slice int, key types.NamespacedName) (again bool) {
	ctx, leave, err := m.Enter(context.Background(), key)
	if err != nil {
		require.ErrorIs(g, err, ErrNotOwned)
		return false
	}
	defer leave()
	g.mu.Lock()
	if m.dead {
		g.mu.Unlock()
		return false
	}
	if other := g.works[slice]; other != nil && other != m && !other.dead {
		g.broken = append(g.broken, fmt.Sprintf("%s works on %d, and %s does", m.name, slice, other.name))
	}
	g.works[slice] = m
	if since, ok := g.free[slice]; ok {
		g.longest = max(g.longest, time.Since(since))
		delete(g.free, slice)
	}
	g.mu.Unlock()
	if lifecycle.Sleep(ctx, time.Second); ctx.Err() != nil {
		time.Sleep(m.linger)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.works[slice] == m {
		delete(g.works, slice)
		g.free[slice] = time.Now()
	}
	return true
}

// stop is SIGTERM, and the wait for the process.
func (g *testGroup) stop(m *testMember) error {
	m.cancel()
	<-m.done
	<-m.works.Done()
	return m.err
}

// kill is kill -9, as far as the others can see: what it worked on is as if nobody did.
func (g *testGroup) kill(m *testMember) {
	m.link.Close()
	g.mu.Lock()
	m.dead = true
	for slice, other := range g.works {
		if other == m {
			g.free[slice] = time.Now()
		}
	}
	g.mu.Unlock()
	m.cancel()
}

// end stops everybody, and says what was wrong.
func (g *testGroup) end() {
	for _, m := range g.members {
		m.cancel()
	}
	for _, m := range g.members {
		<-m.done
		<-m.works.Done()
		require.NoError(g, m.err, m.name)
	}
	require.Empty(g, g.broken)
}

// shares returns how many slices each replica has, and checks that all are worked on.
func (g *testGroup) shares() map[string]int {
	synctest.Wait()
	all := map[string]int{}
	sum := 0
	for _, m := range g.members {
		if n := len(m.Stats().Slices); n > 0 {
			all[m.name] = n
			sum += n
		}
	}
	require.Equal(g, g.members[0].count(), sum, "%v", all)
	return all
}

func (g *testGroup) worst() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	worst := g.longest
	for _, since := range g.free {
		worst = max(worst, time.Since(since))
	}
	return worst
}

func (g *testGroup) again() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest = 0
}

// inGroup runs a test in a bubble.
func inGroup(t *testing.T, change func(*Options), test func(g *testGroup)) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t, change)
		test(g)
		g.end()
	})
}

func TestReplicasShareTheSlices(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a, _, _ := g.start("a"), g.start("b"), g.start("c")
		require.NoError(t, a.Health())
		time.Sleep(10 * time.Second)
		require.Empty(t, a.Stats().Slices, "the first table waits: there may have been one before")
		time.Sleep(7 * time.Second)
		require.Equal(t, map[string]int{"a": 22, "b": 21, "c": 21}, sorted(g.shares()))
		require.NoError(t, a.Health())
		require.True(t, a.Owns(keyOf(a.Stats().Slices[0], 64)))

		for slice := range 64 {
			in, leader, since := a.Leader(keyOf(slice, 64))
			require.Equal(t, slice, in)
			require.Contains(t, []string{"a", "b", "c"}, leader)
			require.Less(t, time.Since(since), 3*time.Second)
		}

		g.again()
		d := g.start("d")
		time.Sleep(14 * time.Second)
		require.Empty(t, d.Stats().Slices, "it has been there for too short a time to ask others for their slices")
		time.Sleep(4 * time.Second)
		require.Len(t, d.Stats().Slices, 16)
		require.Less(t, g.worst(), time.Second, "a slice waits for two requests")
		require.Equal(t, uint64(16), d.Stats().Gained)
		_, leader, since := a.Leader(keyOf(d.Stats().Slices[0], 64))
		require.Equal(t, "d", leader)
		require.Less(t, time.Since(since), 4*time.Second)

		g.again()
		require.NoError(t, g.stop(d))
		time.Sleep(2 * time.Second)
		require.Len(t, g.shares(), 3)
		require.Less(t, g.worst(), time.Second, "it has given them away itself")
		require.Equal(t, uint64(16), d.Stats().Lost)
	})
}

// sorted gives the larger shares to the first names: who has one slice more is chance.
func sorted(shares map[string]int) map[string]int {
	most := 0
	for _, n := range shares {
		most = max(most, n)
	}
	for name, n := range shares {
		if n == most && name != "a" {
			shares[name], shares["a"] = shares["a"], n
		}
	}
	return shares
}

// TestACrashedReplicaIsReplaced in LeaseDuration and what it takes to see that.
func TestACrashedReplicaIsReplaced(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a, b, _ := g.start("a"), g.start("b"), g.start("c")
		time.Sleep(20 * time.Second)
		g.again()
		g.kill(b)
		time.Sleep(12 * time.Second)
		require.NoError(t, a.Health())
		time.Sleep(7 * time.Second)
		shares := g.shares()
		require.NotContains(t, shares, "b")
		t.Logf("nobody worked on the slices of a crashed replica for %v", g.worst())
		require.Less(t, g.worst(), 18*time.Second)
		require.NoError(t, a.Health())
		leases := reconciletest.List[*coordinationv1.Lease](g.server, "leases.coordination.k8s.io", "default")
		require.Len(t, leases, 3, "two replicas, and the table")
	})
}

var errCut = errors.New("the network is cut")

// cut keeps all requests of a replica from the server.
func (m *testMember) cut(yes bool) {
	if !yes {
		m.link.Inject(nil)
		return
	}
	m.link.CutWatches()
	m.link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Refuse(errCut) })
}

// TestAReplicaThatIsCutOffStopsBeforeOthersBegin and takes part again when it can.
func TestAReplicaThatIsCutOffStopsBeforeOthersBegin(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a, b := g.start("a"), g.start("b")
		a.linger = 2900 * time.Millisecond
		time.Sleep(20 * time.Second)
		require.Len(t, a.Stats().Slices, 32)
		key := keyOf(a.Stats().Slices[0], 64)
		a.cut(true)
		time.Sleep(7500 * time.Millisecond)
		require.True(t, a.Owns(key))
		time.Sleep(2500 * time.Millisecond)
		require.False(t, a.Owns(key), "RenewDeadline has passed since the last renewal was sent")
		time.Sleep(8 * time.Second)
		require.Len(t, b.Stats().Slices, 64)
		a.cut(false)
		time.Sleep(25 * time.Second)
		require.Len(t, g.shares(), 2)
		require.Equal(t, uint64(2), a.Stats().Tenures)
	})
}

// TestAWaitOutlastsATenure: a replica that has waited for the Lease of one that crashed has still waited when it has
// lost its own tenure and has begun another one. Else nobody takes the slices as long as no tenure lasts for
// LeaseDuration.
func TestAWaitOutlastsATenure(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a, b := g.start("a"), g.start("b")
		time.Sleep(20 * time.Second)
		g.kill(b)
		for range 3 {
			time.Sleep(8 * time.Second)
			a.cut(true)
			time.Sleep(12 * time.Second)
			a.cut(false)
		}
		time.Sleep(3 * time.Second)
		require.Equal(t, uint64(4), a.Stats().Tenures)
		require.Len(t, a.Stats().Slices, 64)
	})
}

// TestAShortCutGivesTheSlicesBack: a replica that lost its tenure and is back before anybody has waited for it takes
// its slices again at once, since it knows that its own work has ended.
func TestAShortCutGivesTheSlicesBack(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a, b := g.start("a"), g.start("b")
		time.Sleep(20 * time.Second)
		had, others := a.Stats().Slices, b.Stats().Slices
		a.cut(true)
		time.Sleep(11500 * time.Millisecond)
		require.Empty(t, a.Stats().Slices)
		a.cut(false)
		time.Sleep(3 * time.Second)
		require.Equal(t, had, a.Stats().Slices)
		require.Equal(t, others, b.Stats().Slices)
	})
}

// TestWhatIsDeletedOrEditedByHand is repaired, without two that work on one slice.
func TestWhatIsDeletedOrEditedByHand(t *testing.T) {
	edit := func(g *testGroup, which func(*coordinationv1.Lease) bool, change func(*coordinationv1.Lease)) {
		for _, lease := range reconciletest.List[*coordinationv1.Lease](g.server, "leases.coordination.k8s.io",
			"default") {
			if which(lease) {
				byHand(g, lease, change)
			}
		}
	}
	isTable := func(l *coordinationv1.Lease) bool { return l.Name == "shards" }
	isReplica := func(l *coordinationv1.Lease) bool { return l.Name != "shards" }
	all := func(*coordinationv1.Lease) bool { return true }
	unlabel := func(l *coordinationv1.Lease) { l.Labels = nil }
	for name, do := range map[string]struct {
		byHand func(g *testGroup)
		within time.Duration
	}{
		"table deleted":      {func(g *testGroup) { edit(g, isTable, nil) }, 17 * time.Second},
		"replicas deleted":   {func(g *testGroup) { edit(g, isReplica, nil) }, 5 * time.Second},
		"everything deleted": {func(g *testGroup) { edit(g, all, nil) }, 20 * time.Second},
		"table edited": {func(g *testGroup) {
			edit(g, isTable, func(l *coordinationv1.Lease) { l.Annotations[tableAnnotation] += " " })
		}, 17 * time.Second},
		"table emptied": {func(g *testGroup) {
			edit(g, isTable, func(l *coordinationv1.Lease) { l.Annotations = nil })
		}, 17 * time.Second},
		"table touched": {func(g *testGroup) {
			edit(g, isTable, func(l *coordinationv1.Lease) { l.Annotations["touched"] = "yes" })
		}, 2 * time.Second},
		"replicas touched": {func(g *testGroup) {
			edit(g, isReplica, func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"touched": "yes"} })
		}, 2 * time.Second},
		"label of the table":     {func(g *testGroup) { edit(g, isTable, unlabel) }, 17 * time.Second},
		"labels of the replicas": {func(g *testGroup) { edit(g, isReplica, unlabel) }, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inGroup(t, nil, func(g *testGroup) {
				for i := range 3 {
					g.start(fmt.Sprint("r", i)).linger = 2900 * time.Millisecond
				}
				time.Sleep(20 * time.Second)
				g.shares()
				g.again()
				do.byHand(g)
				time.Sleep(20 * time.Second)
				require.Len(t, g.shares(), 3)
				t.Logf("nobody worked for %v", g.worst())
				require.Less(t, g.worst(), do.within+3*time.Second)
			})
		})
	}
}

// byHand changes a Lease, or deletes it.
func byHand(g *testGroup, lease *coordinationv1.Lease, change func(*coordinationv1.Lease)) {
	c, err := newClient(Options{REST: g.server.Config(), Namespace: "default", Name: "shards"}, func() {})
	require.NoError(g, err)
	if change == nil {
		require.NoError(g, c.remove(context.Background(), lease.Name, version{uid: string(lease.UID)}))
		return
	}
	lease = lease.DeepCopy()
	change(lease)
	_, err = c.update(context.Background(), lease)
	require.NoError(g, err)
}

// TestWorkThatDoesNotEnd keeps its slice, and at last Run says so.
func TestWorkThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t, nil)
		a, b := g.start("a"), g.start("b")
		time.Sleep(20 * time.Second)
		slice := a.Stats().Slices[0]
		ctx, leave, err := a.Enter(context.Background(), keyOf(slice, 64))
		require.NoError(t, err)
		epoch, ok := a.Epoch(ctx)
		require.True(t, ok)
		require.NotZero(t, epoch)
		_, ok = b.Epoch(ctx)
		require.False(t, ok)
		a.cancel()
		time.Sleep(5 * time.Second)
		require.NoError(t, ctx.Err(), "running work has DrainTimeout")
		require.NotContains(t, b.Stats().Slices, slice)
		time.Sleep(26 * time.Second)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), ErrNotOwned)
		time.Sleep(3 * time.Second)
		<-a.done
		require.ErrorIs(t, a.err, ErrStuck)
		require.ErrorContains(t, a.err, fmt.Sprintf("slices [%d]", slice))
		require.NotContains(t, b.Stats().Slices, slice, "its Lease has to run out first")
		require.ErrorIs(t, a.Run(context.Background(), func(context.Context) error { return nil }), ErrStuck)
		time.Sleep(20 * time.Second)
		require.Contains(t, b.Stats().Slices, slice)
		leave()
		require.NoError(t, g.stop(b))
		<-a.works.Done()
		require.Empty(t, g.broken)
	})
}

// TestAnotherByGetsNoSlices: two replicas would work on one key, each in another slice. When the last one that has the
// group's has stopped, or has died, it is the new one that counts.
func TestAnotherByGetsNoSlices(t *testing.T) {
	stopped := func(g *testGroup, m *testMember) { require.NoError(g, g.stop(m)) }
	killed := func(g *testGroup, m *testMember) { g.kill(m) }
	another := func(o *Options) { o.By = ByKey }
	keysOf := func(o *Options) { o.ByKeyIn = []string{"big"} }
	for name, test := range map[string]struct {
		by  func(*Options)
		end func(*testGroup, *testMember)
	}{"stopped": {another, stopped}, "killed": {another, killed}, "another ByKeyIn": {keysOf, stopped}} {
		end := test.end
		t.Run(name, func(t *testing.T) {
			change := func(o *Options) {
				if o.Identity >= "c" {
					test.by(o)
				}
			}
			inGroup(t, change, func(g *testGroup) {
				a, b := g.start("a"), g.start("b")
				time.Sleep(time.Second)
				c, d := g.start("c"), g.start("d")
				time.Sleep(time.Minute)
				require.Equal(t, map[string]int{"a": 32, "b": 32}, g.shares())
				require.ErrorContains(t, c.Ready(), "Options.By of this replica")
				require.ErrorContains(t, d.Ready(), "until all replicas with the other one have stopped")
				require.NoError(t, a.Ready())
				require.NoError(t, a.Health())
				end(g, b)
				time.Sleep(20 * time.Second)
				require.Equal(t, map[string]int{"a": 64}, g.shares())
				requests := c.Stats().Requests
				time.Sleep(20 * time.Second)
				require.Less(t, c.Stats().Requests-requests, uint64(15), "it waits, and renews its Lease")
				end(g, a)
				time.Sleep(20 * time.Second)
				require.Len(t, c.Stats().Slices, 32)
				require.Len(t, d.Stats().Slices, 32)
				require.NoError(t, c.Ready())
			})
		})
	}
}

// TestAnElectorsLeaseIsNotTaken, whether it leads or has released it; and an elector that takes the table's ends the
// work of the shards.
func TestAnElectorsLeaseIsNotTaken(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		elector, err := leaderelection.New(leaderelection.Config{REST: g.server.Config(), Namespace: "default",
			Name: "shards", Identity: "old"})
		require.NoError(t, err)
		lead := func() (stop func()) {
			ctx, stopLeading := context.WithCancel(quiet)
			var group lifecycle.Group
			group.Go("elector", func() {
				_ = elector.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
			})
			return func() { stopLeading(); <-group.Done() }
		}
		stop := lead()
		time.Sleep(10 * time.Second)
		a := g.start("a")
		time.Sleep(time.Minute)
		require.True(t, elector.Stats().Leading)
		require.Zero(t, elector.Stats().Losses)
		require.Empty(t, a.Stats().Slices)
		require.ErrorContains(t, a.Ready(), `is held by "old`)
		require.ErrorContains(t, a.Ready(), "Give the shards another Name")
		stop()
		time.Sleep(time.Minute)
		require.Empty(t, a.Stats().Slices, "another elector may be about to take it")
		require.ErrorContains(t, a.Ready(), "nobody at present")

		for _, lease := range reconciletest.List[*coordinationv1.Lease](g.server, "leases.coordination.k8s.io",
			"default") {
			if lease.Name == "shards" {
				byHand(g, lease, nil)
			}
		}
		time.Sleep(20 * time.Second)
		require.Len(t, a.Stats().Slices, 64)
		require.NoError(t, a.Ready())

		stop = lead()
		time.Sleep(time.Minute)
		require.True(t, elector.Stats().Leading)
		require.Zero(t, elector.Stats().Losses)
		require.Empty(t, a.Stats().Slices)
		require.ErrorContains(t, a.Ready(), `is held by "old`)
		stop()
	})
}

// TestWhoKnowsNothingOfSlicesCannotWrite: every replica leads, and without Inherit none of them knows of what.
func TestWhoKnowsNothingOfSlicesCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestGroup(t, nil).alone("a")
		ctx, cancel := context.WithCancel(quiet)
		m.works.Go("run", func() {
			m.err = m.Run(ctx, func(tenure context.Context) error {
				<-tenure.Done()
				return nil
			})
		})
		time.Sleep(20 * time.Second)
		require.Equal(t, uint64(4), m.Stats().Gained)
		req, err := http.NewRequestWithContext(quiet, http.MethodPut, "http://server/pods", nil)
		require.NoError(t, err)
		_, err = m.Fence(nil).RoundTrip(req)
		require.ErrorIs(t, err, ErrNotOwned)
		cancel()
		<-m.works.Done()
		require.NoError(t, m.err)
	})
}

func TestFence(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		sent := 0
		wire := roundTrip(func(req *http.Request) (*http.Response, error) {
			sent++
			if !lifecycle.Sleep(req.Context(), 1300*time.Millisecond) {
				return nil, req.Context().Err()
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		})
		do := func(ctx context.Context, method string) error {
			req, err := http.NewRequestWithContext(ctx, method, "http://server/pods", nil)
			require.NoError(t, err)
			response, err := a.Fence(wire).RoundTrip(req)
			if err == nil {
				require.NoError(t, response.Body.Close())
			}
			return err
		}
		require.NoError(t, do(context.Background(), http.MethodGet), "reads pass")
		err := do(context.Background(), http.MethodPut)
		require.ErrorIs(t, err, ErrNotOwned)
		var notSent interface{ NotSent() bool }
		require.ErrorAs(t, err, &notSent)
		time.Sleep(20 * time.Second)
		require.NoError(t, do(context.Background(), http.MethodPut), "nobody can tell to which slice it belongs")
		ctx, leave, err := a.Enter(context.Background(), keyOf(1, 64))
		require.NoError(t, err)
		require.NoError(t, do(ctx, http.MethodPut))
		sent = 0
		a.cut(true)
		time.Sleep(6 * time.Second)
		for err = nil; err == nil; {
			err = do(ctx, http.MethodPut)
		}
		require.ErrorIs(t, err, ErrNotOwned)
		require.ErrorContains(t, err, "was cut off")
		require.False(t, errors.As(err, &notSent))
		before := sent
		require.ErrorAs(t, do(ctx, http.MethodPut), &notSent)
		require.Equal(t, before, sent)
		leave()
		a.cut(false)
		time.Sleep(5 * time.Second)
		require.Len(t, a.Stats().Slices, 64)
		require.ErrorIs(t, do(ctx, http.MethodPut), ErrNotOwned, "work of an earlier tenure")
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestHealthNamesSlicesThatNobodyLeads: the table is there, and its owners are not.
func TestHealthNamesSlicesThatNobodyLeads(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		g.faults = func(reconciletest.Request) reconciletest.Fault { return reconciletest.Refuse(errCut) }
		a := g.start("a")
		time.Sleep(14 * time.Second)
		require.NoError(t, a.Health())
		time.Sleep(2 * time.Second)
		require.ErrorContains(t, a.Health(), "nobody leads 64 of 64 slices")
		// Its first list may have come before it was cut off.
		require.Regexp(t, "the table was never read|there is no table", a.Health().Error())
		a.cut(false)
		time.Sleep(20 * time.Second)
		require.NoError(t, a.Health())
		a.cut(true)
		time.Sleep(24 * time.Second)
		require.NoError(t, a.Health(), "LeaseDuration after its deadline")
		time.Sleep(3 * time.Second)
		require.ErrorContains(t, a.Health(), "their owners do not renew their Leases")
		a.cut(false)
		time.Sleep(10 * time.Second)
		require.NoError(t, a.Health())
	})
}

// TestWorkThatKeepsASliceIsSeen by all, and fails the health check of its process: no key of the slice runs.
func TestWorkThatKeepsASliceIsSeen(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(20 * time.Second)
		var leaves []func()
		for slice := range 64 {
			_, leave, err := a.Enter(quiet, keyOf(slice, 64))
			require.NoError(t, err)
			leaves = append(leaves, leave)
		}
		b := g.start("b")
		time.Sleep((15 + 32) * time.Second)
		require.Empty(t, b.Stats().Slices)
		require.Len(t, a.Stats().Slices, 32)
		require.NoError(t, a.Check(nil))
		require.NoError(t, a.Health())
		require.NoError(t, b.Health())
		time.Sleep(4 * time.Second)
		require.ErrorIs(t, a.Check(nil), ErrStuck)
		require.ErrorContains(t, a.Check(nil), "their keys run nowhere")
		require.ErrorContains(t, a.Health(), "32 of 64 slices")
		require.Equal(t, a.Health(), b.Health())
		require.NoError(t, b.Check(nil))
		for _, leave := range leaves {
			leave()
		}
		time.Sleep(time.Second)
		require.NoError(t, a.Check(nil))
		require.NoError(t, a.Health())
		require.Len(t, b.Stats().Slices, 32)
	})
}

// TestARightThatIsMissing makes a replica not ready, whichever it is, and one that is given makes it ready.
func TestARightThatIsMissing(t *testing.T) {
	for _, verb := range []string{"list", "watch", "create", "update"} {
		inGroup(t, nil, func(g *testGroup) {
			g.start("a")
			time.Sleep(20 * time.Second)
			g.faults = func(r reconciletest.Request) reconciletest.Fault {
				if r.Verb == verb {
					return reconciletest.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, nil))
				}
				return nil
			}
			b := g.start("b")
			time.Sleep(20 * time.Second)
			require.ErrorContains(t, b.Ready(), verb+" leases.coordination.k8s.io default/")
			b.cut(false)
			time.Sleep(20 * time.Second)
			require.NoError(t, b.Ready(), verb)
		})
	}
}

// TestADenialOfWhatAnotherHasDone says nothing about a replica for long: b is the first to remove a, which is gone, and
// may not; c does it then.
func TestADenialOfWhatAnotherHasDone(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(time.Second)
		g.faults = func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb == "delete" {
				return reconciletest.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, nil))
			}
			return nil
		}
		b := g.start("b")
		time.Sleep(time.Second)
		g.faults = nil
		g.start("c")
		time.Sleep(20 * time.Second)
		g.kill(a)
		time.Sleep(20 * time.Second)
		require.ErrorContains(t, b.Ready(), "delete leases.coordination.k8s.io default/")
		time.Sleep(20 * time.Second)
		require.NoError(t, b.Ready())
	})
}

// TestARunWakesNobody when it ends, unless its slice is to be given away.
func TestARunWakesNobody(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(20 * time.Second)
		changes := func() <-chan struct{} {
			synctest.Wait()
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.changed
		}
		before := changes()
		_, leave, err := a.Enter(quiet, keyOf(1, 64))
		require.NoError(t, err)
		leave()
		require.Equal(t, before, changes())
	})
}

// BenchmarkEnter is what each run of a key costs more than without shards.
func BenchmarkEnter(b *testing.B) {
	for _, n := range []int{256, 4096} {
		b.Run(fmt.Sprint("slices=", n), func(b *testing.B) {
			s, err := New(Options{REST: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "default", Name: "shards",
				Identity: "a", Slices: n})
			require.NoError(b, err)
			s.r = newReplica("a", "a", n, timing{time.Hour, time.Hour}, false)
			s.r.renewed(s.now(), s.now(), version{"uid", "1"})
			for slice := range n {
				s.r.holds[slice] = &hold{}
			}
			s.change(func() {})
			for _, w := range s.works {
				w.open = true
			}
			key := types.NamespacedName{Namespace: "default", Name: "a"}
			b.ReportAllocs()
			for b.Loop() {
				_, leave, err := s.Enter(quiet, key)
				if err != nil {
					b.Fatal(err)
				}
				leave()
			}
		})
	}
}

// TestHealthNeedsNoTenure: who may look, and may not make a Lease, sees the same as all.
func TestHealthNeedsNoTenure(t *testing.T) {
	inGroup(t, nil, func(g *testGroup) {
		a := g.start("a")
		g.faults = func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb == "create" {
				return reconciletest.Refuse(errCut)
			}
			return nil
		}
		b := g.start("b")
		time.Sleep(time.Minute)
		require.Len(t, a.Stats().Slices, 64)
		require.Zero(t, b.Stats().Tenures)
		require.NoError(t, b.Health())
		g.kill(a)
		time.Sleep(30 * time.Second)
		require.ErrorContains(t, b.Health(), "their owners do not renew their Leases")
	})
}

// TestALeaveWaitsForNobodyToSettleIn: a replica that has just joined prepares for the slices of one that leaves at
// once, as in a rolling update, and asks those that stay for none.
func TestALeaveWaitsForNobodyToSettleIn(t *testing.T) {
	prepares := func(o *Options) {
		o.Prepare = func(ctx context.Context, _ []int) error {
			lifecycle.Sleep(ctx, time.Second)
			return ctx.Err()
		}
	}
	inGroup(t, prepares, func(g *testGroup) {
		a, b := g.start("a"), g.start("b")
		time.Sleep(20 * time.Second)
		c := g.start("c")
		time.Sleep(5 * time.Second)
		g.again()
		told := time.Now()
		require.NoError(t, g.stop(a))
		require.Greater(t, time.Since(told), time.Second)
		require.Less(t, time.Since(told), 5*time.Second)
		time.Sleep(2 * time.Second)
		require.Less(t, g.worst(), 500*time.Millisecond)
		require.Len(t, b.Stats().Slices, 32)
		require.Len(t, c.Stats().Slices, 32)
	})
}

// TestSlicesAreAskedForWhenTheyArePrepared and stay with their owner until then.
func TestSlicesAreAskedForWhenTheyArePrepared(t *testing.T) {
	var asked []int
	change := func(o *Options) {
		if o.Identity == "b" {
			o.Prepare = func(ctx context.Context, slices []int) error {
				asked = slices
				lifecycle.Sleep(ctx, 10*time.Second)
				return ctx.Err()
			}
		}
	}
	inGroup(t, change, func(g *testGroup) {
		a := g.start("a")
		time.Sleep(20 * time.Second)
		b := g.start("b")
		time.Sleep(24 * time.Second)
		synctest.Wait()
		require.Len(t, asked, 32)
		require.Len(t, a.Stats().Slices, 64)
		time.Sleep(5 * time.Second)
		require.Equal(t, asked, b.Stats().Slices)
		require.Len(t, a.Stats().Slices, 32)
	})
}

// TestRequestsForCoordination counts what a group asks for while nothing happens.
func TestRequestsForCoordination(t *testing.T) {
	sizes := []int{3, 10, 50}
	if raceEnabled {
		sizes = sizes[:2]
	}
	for _, n := range sizes {
		inGroup(t, func(o *Options) { o.Slices = 256 }, func(g *testGroup) {
			for i := range n {
				g.start(fmt.Sprintf("pod-%d", i))
			}
			time.Sleep(20 * time.Second)
			g.shares()
			start := uint64(0)
			for _, m := range g.members {
				start += m.Stats().Requests
			}
			const length = 20 * time.Second
			time.Sleep(length)
			requests := -start
			for _, m := range g.members {
				requests += m.Stats().Requests
			}
			rate := float64(requests) / length.Seconds()
			t.Logf("%d replicas: %.2f requests a second in all (the first 20 s took %d)", n, rate, start)
			require.LessOrEqual(t, rate, 1.1*float64(n)/2, "one renewal of each replica in a RetryPeriod")
		})
	}
}
