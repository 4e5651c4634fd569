package sharding

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
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

// A day has a fleet of about twenty Managers, which make 500 runs a second and come and go. The table at the server
// says who owns a slice: a run by anybody else is wrong, as are runs of one slice in two replicas.
type day struct {
	*fleet
	ships map[string]*ship // that are alive and can reach the server
	ended lifecycle.Group  // of those that were stopped or cut off
	began int              // how many there were

	// Guarded by the fleet's mu.
	owners  []string            // of each slice, as the table was last seen
	inside  map[int]*occupation // slices that are worked on
	due     map[reconcile.Key]time.Time
	late    time.Duration // the most that a run was later than it was due
	runs    int
	changes map[string]int
}

// An occupation is who runs keys of a slice, and how many.
type occupation struct {
	by string
	n  int
}

// TestADayOfJoinsAndLeaves takes some minutes of virtual time. THERMOSTAT_SOAK=24h makes it a day, with more keys.
func TestADayOfJoinsAndLeaves(t *testing.T) {
	length, keys := 3*time.Minute, 2000
	given, err := time.ParseDuration(os.Getenv("THERMOSTAT_SOAK"))
	switch {
	case err == nil:
		length, keys = given, 10_000
	case soak():
		length = 20 * time.Minute
	case raceEnabled:
		length, keys = time.Minute, 500
	}
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	inFleet(t, keys, func(f *fleet) {
		f.every, f.slices = time.Duration(keys)*time.Second/500, 256
		d := &day{fleet: f, ships: map[string]*ship{}, owners: make([]string, f.slices), inside: map[int]*occupation{},
			due: map[reconcile.Key]time.Time{}, changes: map[string]int{}}
		leases := kubernetes.NewForConfigOrDie(f.server.Config()).CoordinationV1().Leases("default")
		ctx, stop := context.WithCancel(quiet)
		var watching lifecycle.Group
		watching.Go("table", func() { d.watch(ctx, leases) })
		for range 20 {
			d.join()
		}
		time.Sleep(20 * time.Second)
		began := time.Now()
		for n := 0; time.Since(began) < length; n++ {
			d.change(random, n)
			for range 4 + random.IntN(4) {
				time.Sleep(5 * time.Second)
				for name, s := range d.ships {
					require.NoError(t, s.shards.Health(), name)
				}
			}
		}
		d.mu.Lock()
		t.Logf("%v, %d keys, about 20 replicas: %v; %d runs, %.0f a second, by others than the owner %d; no run was "+
			"later than %v", time.Since(began), keys, d.changes, d.runs, float64(d.runs)/time.Since(began).Seconds(),
			len(d.broken), d.late)
		require.Less(t, d.late, 15*time.Second, "LeaseDuration")
		d.mu.Unlock()
		for name := range d.ships {
			d.end(name)
		}
		<-d.ended.Done()
		stop()
		<-watching.Done()
	})
}

// change lets a replica join, leave, be cut off for a while, or for good.
func (d *day) change(random *rand.Rand, n int) {
	names := slices.Sorted(maps.Keys(d.ships))
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
	d.changes[kind]++
	switch kind {
	case "joins":
		d.join()
	case "leaves":
		d.end(name)
	case "is cut off for good":
		d.cut(name)
		s := d.ships[name]
		delete(d.ships, name)
		d.ended.Go(name, func() {
			time.Sleep(time.Minute) // it goes on by itself, and has to notice
			s.stop()
			<-s.group.Done()
		})
	case "is cut off for a while":
		d.cut(name)
		time.Sleep(time.Duration(random.IntN(25_000)) * time.Millisecond)
		d.ships[name].link.Inject(nil)
		time.Sleep(5 * time.Second)
	}
}

// cut keeps all requests of a replica from the server.
func (d *day) cut(name string) {
	link := d.ships[name].link
	link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Refuse(errCut) })
	link.CutWatches()
}

// join starts a replica.
func (d *day) join() {
	d.began++
	name := fmt.Sprint("r", d.began)
	s := d.build(name, func(shards *Shards) reconcile.Elector { return shards }, d.run)
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	s.stop = stop
	s.group.Go("manager", func() { s.err = s.Run(ctx) })
	d.ships[name] = s
}

// end stops a replica.
func (d *day) end(name string) {
	s := d.ships[name]
	delete(d.ships, name)
	d.ended.Go(name, func() {
		s.stop()
		<-s.group.Done()
		require.NoError(d, s.err)
	})
}

// run is a run of a key, which waits for 20 ms of something else.
func (d *day) run(ctx context.Context, s *ship, key reconcile.Key) (reconcile.Result, error) {
	name, slice := s.shards.Identity(), s.shards.Slice(key)
	d.mu.Lock()
	d.runs++
	in := d.inside[slice]
	if in == nil {
		in = &occupation{}
		d.inside[slice] = in
	}
	if in.n > 0 && in.by != name {
		d.broken = append(d.broken, fmt.Sprintf("%s runs %s of slice %d, and %s is at work there", name, key, slice,
			in.by))
	}
	in.by = name
	in.n++
	d.ownsLocked(name, slice)
	if due, ok := d.due[key]; ok {
		d.late = max(d.late, time.Since(due))
	}
	d.mu.Unlock()
	lifecycle.Sleep(ctx, d.pause)
	d.mu.Lock()
	defer d.mu.Unlock()
	in.n--
	d.ownsLocked(name, slice)
	d.due[key] = time.Now().Add(d.every)
	return reconcile.Result{RequeueAfter: d.every}, nil
}

// ownsLocked notes who works on a slice of another one. The watch may be about to show a newer table, so a replica that
// is not the owner there is looked up in the newest.
func (d *day) ownsLocked(name string, slice int) {
	if d.owners[slice] == name {
		return
	}
	table, ok := reconciletest.Get[*coordinationv1.Lease](d.server, "leases.coordination.k8s.io", "default", "shards")
	if ok {
		d.seeLocked(table)
	}
	if d.owners[slice] != name {
		d.broken = append(d.broken, fmt.Sprintf("%s works on slice %d, which is that of %q", name, slice,
			d.owners[slice]))
	}
}

// seeLocked takes the owners from the table.
func (d *day) seeLocked(lease *coordinationv1.Lease) {
	t, err := decodeTable(lease.Annotations[tableAnnotation])
	require.NoError(d, err)
	seats := map[int]string{}
	for _, m := range t.Members {
		seats[m.Number] = m.Seat
	}
	for slice, owner := range t.Owners {
		d.owners[slice] = seats[owner]
	}
}

// watch follows the table until ctx ends.
func (d *day) watch(ctx context.Context, leases typedcoordinationv1.LeaseInterface) {
	for ctx.Err() == nil {
		w, err := leases.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=shards"})
		if err != nil {
			lifecycle.Sleep(ctx, time.Second)
			continue
		}
		for event := range w.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				d.mu.Lock()
				d.seeLocked(lease)
				d.mu.Unlock()
			}
		}
		w.Stop()
	}
}
