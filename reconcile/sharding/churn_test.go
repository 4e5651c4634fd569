package sharding

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A churn has a fleet of about twenty Managers, which make hundreds of runs a second and come and go. Some keys are
// counted, as by other fleets. The table at the server says who owns a slice: a run by anybody else is wrong, as are
// runs of one slice in two replicas, and a key that is not run. Each second Manager has caches of a share, which take
// slowList for each list.
type churn struct {
	*fleet
	churnSize
	ships   map[string]*ship // that are alive and can reach the server
	ended   lifecycle.Group  // of those that were stopped or cut off
	began   int              // how many there were
	changes map[string]int
	keysIn  []int    // of each slice
	even    evenness // the worst that was seen

	// Guarded by the fleet's mu.
	table  *table              // as it was last seen
	owners []string            // the Lease of each slice's owner in it
	inside map[int]*occupation // slices that are worked on
	due    []time.Time         // of each key, when it runs next; zero: it has not run
	late   time.Duration       // the most that a run was later than it was due
	runs   int
}

const slowList = 2 * time.Second

// A churnSize is how long it goes on, how many keys there are, and how often each runs.
type churnSize struct {
	length  time.Duration
	keys    int
	every   time.Duration
	counted int // each key is, whose number can be divided by this
	calm    int // times five seconds, at least, from one change to the next; at most twice that
}

// evenness is how even the shares were when nothing was about to move.
type evenness struct {
	slices, keys float64 // the largest share, of the mean
	moved        float64 // by a join: of the share that is due to the new replica
	joins        int     // that were looked at
}

// An occupation is who runs keys of a slice, and how many.
type occupation struct {
	by string // its Lease
	n  int
}

// TestChurn takes a minute or two of virtual time. A day of it, with 150,000 keys and 500 runs a second, takes some
// hours of a processor and gigabytes:
//
//	THERMOSTAT_SOAK=24h go test -run TestChurn -v -timeout 12h ./reconcile/sharding
func TestChurn(t *testing.T) {
	size := churnSize{2 * time.Minute, 1000, 5 * time.Second, 10, 4}
	given, err := time.ParseDuration(os.Getenv("THERMOSTAT_SOAK"))
	switch {
	case err == nil:
		size = churnSize{given, 150_000, 300 * time.Second, 100, 12}
	case soak():
		size.length = 5 * time.Minute
	case raceEnabled:
		size.length, size.keys, size.every = time.Minute, 300, 3*time.Second
	}
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	inFleet(t, size.keys, func(f *fleet) {
		c := newChurn(f, size)
		leases := kubernetes.NewForConfigOrDie(f.server.Config()).CoordinationV1().Leases("default")
		ctx, stop := context.WithCancel(quiet)
		var watching lifecycle.Group
		watching.Go("table", func() { c.watch(ctx, leases) })
		defer func() {
			for name := range c.ships {
				c.end(name)
			}
			<-c.ended.Done()
			stop()
			<-watching.Done()
		}()
		for range 20 {
			c.join()
		}
		time.Sleep(40 * time.Second)
		began := time.Now()
		for n := 0; time.Since(began) < c.length; n++ {
			before := c.seen()
			kind := c.change(random, n)
			for range c.calm + random.IntN(c.calm) {
				time.Sleep(5 * time.Second)
				c.check()
			}
			c.look(kind, before)
			t.Logf("%v: one %s; %d runs, at most %v late", time.Since(began), kind, c.runs, c.late)
		}
		t.Logf("%v, %d keys, about 20 replicas: %v; %d runs, %.0f a second; no run was later than %v",
			time.Since(began), c.keys, c.changes, c.runs, float64(c.runs)/time.Since(began).Seconds(), c.late)
		t.Logf("the largest share was at most %.3f of the mean in slices, and %.3f in keys; one of %d joins moved at "+
			"most %.3f of what is due to one of all", c.even.slices, c.even.keys, c.even.joins, c.even.moved)
		c.mu.Lock()
		written := len(c.written)
		c.mu.Unlock()
		require.Equal(t, (c.keys+c.counted-1)/c.counted, written)
		require.NotZero(t, c.even.joins)
	})
}

func newChurn(f *fleet, size churnSize) *churn {
	f.slices, f.workers = 256, 30
	c := &churn{fleet: f, churnSize: size, ships: map[string]*ship{}, owners: make([]string, f.slices),
		inside: map[int]*occupation{}, due: make([]time.Time, size.keys), changes: map[string]int{},
		keysIn: make([]int, f.slices)}
	for i := range c.keys {
		c.keysIn[sliceOf(ByKey(reconcile.Key{Namespace: "default", Name: fmt.Sprint("key-", i)}), f.slices)]++
	}
	return c
}

// check looks whether all slices are led, and all keys are run.
func (c *churn) check() {
	for name, s := range c.ships {
		require.NoError(c, s.shards.Health(), name)
	}
	c.mu.Lock()
	first := c.due[0]
	for _, due := range c.due {
		if due.Before(first) {
			first = due
		}
	}
	c.late = max(c.late, time.Since(first))
	late, broken := c.late, slices.Clone(c.broken)
	c.mu.Unlock()
	require.Empty(c, broken)
	require.Less(c, late, 15*time.Second+2*slowList, "LeaseDuration, and the lists for the slices of a dead owner; "+
		"a key that has never run is due for ever")
}

// seen returns the table.
func (c *churn) seen() *table {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table
}

// look compares the shares, unless some slices are about to move, and how many of them a join has moved.
func (c *churn) look(kind string, before *table) {
	now := c.seen()
	if !calm(now) {
		return
	}
	mean, most := float64(c.slices)/float64(len(now.Members)), 0
	keys := map[int]int{}
	for slice, owner := range now.Owners {
		keys[owner] += c.keysIn[slice]
	}
	for _, n := range now.counts() {
		most = max(most, n)
	}
	largest := float64(most) / mean
	c.even.slices = max(c.even.slices, largest)
	require.LessOrEqual(c, largest, 1.15)
	largest = float64(slices.Max(slices.Collect(maps.Values(keys)))) * float64(len(now.Members)) / float64(c.keys)
	c.even.keys = max(c.even.keys, largest)
	if c.keys >= 100_000 { // of few keys a slice has by chance more than another one
		require.LessOrEqual(c, largest, 1.15)
	}
	gone := slices.ContainsFunc(before.Members, func(m member) bool { _, ok := now.member(m.Name); return !ok })
	if kind != "joins" || gone || len(now.Members) != len(before.Members)+1 || !calm(before) {
		return
	}
	moved := float64(moves(before, now)) / mean
	require.LessOrEqual(c, moved, 1.05, "of 1 of %d", len(now.Members))
	c.even.moved = max(c.even.moved, moved)
	c.even.joins++
}

// calm reports whether each slice of a table is where it should be.
func calm(t *table) bool { return t.Open && len(t.Next) == 0 && slices.Equal(t.targets(), t.Owners) }

// change lets a replica join, leave, be cut off for a while, or for good, or two leave at once.
func (c *churn) change(random *rand.Rand, n int) (kind string) {
	names := slices.Sorted(maps.Keys(c.ships))
	name := names[random.IntN(len(names))]
	kinds := []string{"joins", "and another one leave", "is cut off for good", "is cut off for a while", "joins",
		"leaves", "joins", "leaves"}
	kind = kinds[n%len(kinds)]
	if n >= len(kinds) {
		kind = kinds[random.IntN(len(kinds))]
		if len(names) <= 15 {
			kind = "joins"
		} else if len(names) >= 25 {
			kind = "leaves"
		}
	}
	c.changes[kind]++
	switch kind {
	case "joins":
		c.join()
	case "leaves":
		c.end(name)
	case "and another one leave":
		c.end(name)
		c.end(slices.Sorted(maps.Keys(c.ships))[0])
	case "is cut off for good":
		c.cut(name)
		s := c.ships[name]
		delete(c.ships, name)
		c.ended.Go(name, func() {
			time.Sleep(time.Minute) // it goes on by itself, and has to notice
			s.stop()
			<-s.group.Done()
		})
	case "is cut off for a while":
		c.cut(name)
		time.Sleep(time.Duration(random.IntN(25_000)) * time.Millisecond)
		c.connect(c.ships[name])
		time.Sleep(5 * time.Second)
	}
	return kind
}

// cut keeps all requests of a replica from the server.
func (c *churn) cut(name string) {
	link := c.ships[name].link
	link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Refuse(errCut) })
	link.CutWatches()
}

// connect lets a replica reach the server.
func (c *churn) connect(s *ship) {
	if s.shared {
		s.link.Inject(slowLists(slowList))
	} else {
		s.link.Inject(nil)
	}
}

// join starts a replica.
func (c *churn) join() {
	c.began++
	c.shared = c.began%2 == 0
	name := fmt.Sprint("r", c.began)
	s := c.build(name, func(shards *Shards) reconcile.Elector { return shards }, c.run)
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	s.stop = stop
	c.connect(s)
	s.group.Go("manager", func() { s.err = s.Run(ctx) })
	c.ships[name] = s
}

// end stops a replica.
func (c *churn) end(name string) {
	s := c.ships[name]
	delete(c.ships, name)
	c.ended.Go(name, func() {
		s.stop()
		<-s.group.Done()
		if s.err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.broken = append(c.broken, fmt.Sprintf("%s ends with %v", name, s.err))
		}
	})
}

// run is a run of a key, which waits for 20 ms of something else. Some are counted meanwhile. The second run of each
// comes after a part of the period, so that they are spread over it.
func (c *churn) run(ctx context.Context, s *ship, key reconcile.Key) (reconcile.Result, error) {
	name, slice := s.lease(), s.shards.Slice(key)
	number, err := strconv.Atoi(strings.TrimPrefix(key.Name, "key-"))
	require.NoError(c, err)
	in, first := c.enters(name, slice, number)
	if number%c.counted == 0 {
		err = c.count(ctx, s, name, s.api, key)
	} else {
		lifecycle.Sleep(ctx, c.pause)
	}
	after := c.churnSize.every
	if first {
		after = time.Duration(number+1) * after / time.Duration(c.keys)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in.n--
	c.ownsLocked(name, slice)
	c.due[number] = time.Now().Add(after)
	return reconcile.Result{RequeueAfter: after}, err
}

// enters notes that a run begins, and reports whether it is the key's first.
func (c *churn) enters(name string, slice, number int) (in *occupation, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	in = c.inside[slice]
	if in == nil {
		in = &occupation{}
		c.inside[slice] = in
	}
	if in.n > 0 && in.by != name {
		c.broken = append(c.broken, fmt.Sprintf("%s runs key %d of slice %d, and %s is at work there", name, number,
			slice, in.by))
	}
	in.by = name
	in.n++
	c.ownsLocked(name, slice)
	due := c.due[number]
	if !due.IsZero() {
		c.late = max(c.late, time.Since(due))
	}
	return in, due.IsZero()
}

// lease returns the name of a ship's Lease in its present tenure: work that outlives one is that of another replica.
func (s *ship) lease() string {
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if s.shards.r == nil {
		return "no tenure"
	}
	return s.shards.r.name
}

// ownsLocked notes who works on a slice of another one. The watch may be about to show a newer table, so a replica that
// is not the owner there is looked up in the newest.
func (c *churn) ownsLocked(name string, slice int) {
	if c.owners[slice] == name {
		return
	}
	table, ok := reconciletest.Get[*coordinationv1.Lease](c.server, "leases.coordination.k8s.io", "default", "shards")
	if ok {
		c.seeLocked(table)
	}
	if c.owners[slice] != name {
		c.broken = append(c.broken, fmt.Sprintf("%s works on slice %d, which is that of %q", name, slice,
			c.owners[slice]))
	}
}

// seeLocked takes the owners from the table.
func (c *churn) seeLocked(lease *coordinationv1.Lease) {
	t, err := decodeTable(lease.Annotations[tableAnnotation])
	if err != nil {
		c.broken = append(c.broken, err.Error())
		return
	}
	c.table = t
	names := map[int]string{}
	for _, m := range t.Members {
		names[m.Number] = m.Name
	}
	for slice, owner := range t.Owners {
		c.owners[slice] = names[owner]
	}
}

// watch follows the table until ctx ends.
func (c *churn) watch(ctx context.Context, leases typedcoordinationv1.LeaseInterface) {
	for ctx.Err() == nil {
		w, err := leases.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=shards"})
		if err != nil {
			lifecycle.Sleep(ctx, time.Second)
			continue
		}
		for event := range w.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				c.mu.Lock()
				c.seeLocked(lease)
				c.mu.Unlock()
			}
		}
		w.Stop()
	}
}
