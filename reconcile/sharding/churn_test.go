package sharding

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
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

// A churn has a fleet of about twenty Managers, which make hundreds of runs a second and come and go. Each tenth key
// is counted, as by other fleets. The table at the server says who owns a slice: a run by anybody else is wrong, as are
// runs of one slice in two replicas, and a key that is not run.
type churn struct {
	*fleet
	keys  int
	ships map[string]*ship // that are alive and can reach the server
	ended lifecycle.Group  // of those that were stopped or cut off
	began int              // how many there were

	// Guarded by the fleet's mu.
	owners  []string            // the Lease of each slice's owner, as the table was last seen
	inside  map[int]*occupation // slices that are worked on
	due     map[reconcile.Key]time.Time
	late    time.Duration // the most that a run was later than it was due
	runs    int
	changes map[string]int
}

// An occupation is who runs keys of a slice, and how many.
type occupation struct {
	by string // its Lease
	n  int
}

// TestChurn takes a few minutes of virtual time. THERMOSTAT_SOAK=10m makes it ten, with more keys; give it -run Churn
// and a -timeout, as other tests use the variable, and a minute takes minutes of a processor with the race detector.
func TestChurn(t *testing.T) {
	length, keys, rate := 2*time.Minute, 1000, 200
	given, err := time.ParseDuration(os.Getenv("THERMOSTAT_SOAK"))
	switch {
	case err == nil:
		length, keys, rate = given, 10_000, 500
	case soak():
		length = 5 * time.Minute
	case raceEnabled:
		length, keys = time.Minute, 300
	}
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	inFleet(t, keys, func(f *fleet) {
		f.every, f.slices = time.Duration(keys/rate)*time.Second, 256
		c := &churn{fleet: f, keys: keys, ships: map[string]*ship{}, owners: make([]string, f.slices),
			inside: map[int]*occupation{}, due: map[reconcile.Key]time.Time{}, changes: map[string]int{}}
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
		time.Sleep(20 * time.Second)
		began := time.Now()
		for n := 0; time.Since(began) < length; n++ {
			c.change(random, n)
			for range 4 + random.IntN(4) {
				time.Sleep(5 * time.Second)
				c.check()
			}
		}
		t.Logf("%v, %d keys, about 20 replicas: %v; %d runs, %.0f a second; no run was later than %v",
			time.Since(began), keys, c.changes, c.runs, float64(c.runs)/time.Since(began).Seconds(), c.late)
		c.mu.Lock()
		written := len(c.written)
		c.mu.Unlock()
		require.Equal(t, keys/10, written)
	})
}

// check looks whether all slices are led, and all keys are run.
func (c *churn) check() {
	for name, s := range c.ships {
		require.NoError(c, s.shards.Health(), name)
	}
	c.mu.Lock()
	runs := len(c.due)
	for _, due := range c.due {
		c.late = max(c.late, time.Since(due))
	}
	late, broken := c.late, slices.Clone(c.broken)
	c.mu.Unlock()
	require.Empty(c, broken)
	require.Equal(c, c.keys, runs, "keys that have run")
	require.Less(c, late, 15*time.Second, "LeaseDuration")
}

// change lets a replica join, leave, be cut off for a while, or for good.
func (c *churn) change(random *rand.Rand, n int) {
	names := slices.Sorted(maps.Keys(c.ships))
	name := names[random.IntN(len(names))]
	kinds := []string{"leaves", "is cut off for good", "is cut off for a while", "joins", "joins"}
	kind := kinds[n%len(kinds)]
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
		c.ships[name].link.Inject(nil)
		time.Sleep(5 * time.Second)
	}
}

// cut keeps all requests of a replica from the server.
func (c *churn) cut(name string) {
	link := c.ships[name].link
	link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Refuse(errCut) })
	link.CutWatches()
}

// join starts a replica.
func (c *churn) join() {
	c.began++
	name := fmt.Sprint("r", c.began)
	s := c.build(name, func(shards *Shards) reconcile.Elector { return shards }, c.run)
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	s.stop = stop
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

// run is a run of a key, which waits for 20 ms of something else. Each tenth key is counted meanwhile.
func (c *churn) run(ctx context.Context, s *ship, key reconcile.Key) (reconcile.Result, error) {
	name, slice := s.lease(), s.shards.Slice(key)
	in := c.enters(name, slice, key)
	var err error
	if strings.HasSuffix(key.Name, "0") {
		err = c.count(ctx, s, name, s.api, key)
	} else {
		lifecycle.Sleep(ctx, c.pause)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in.n--
	c.ownsLocked(name, slice)
	c.due[key] = time.Now().Add(c.every)
	return reconcile.Result{RequeueAfter: c.every}, err
}

// enters notes that a run begins.
func (c *churn) enters(name string, slice int, key reconcile.Key) *occupation {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	in := c.inside[slice]
	if in == nil {
		in = &occupation{}
		c.inside[slice] = in
	}
	if in.n > 0 && in.by != name {
		c.broken = append(c.broken, fmt.Sprintf("%s runs %s of slice %d, and %s is at work there", name, key, slice,
			in.by))
	}
	in.by = name
	in.n++
	c.ownsLocked(name, slice)
	if due, ok := c.due[key]; ok {
		c.late = max(c.late, time.Since(due))
	}
	return in
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
