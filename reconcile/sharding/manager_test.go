package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A fleet is Managers that share the keys of ConfigMaps. A run of a key counts, in a Secret of its name: it reads the
// last number from its cache, and writes the next one. Only the key's own runs write the Secret, so each of them has to
// see the number that the run before it has written, wherever that was.
type fleet struct {
	*testing.T
	server    *reconciletest.Server // nil: replicas use base
	base      *rest.Config
	namespace string                        // of Leases and keys
	options   func(*Options)                // changes those of each replica
	every     time.Duration                 // each key runs
	pause     time.Duration                 // of a run, between read and write
	slices    int                           // that the keys are cut into
	workers   int                           // of each replica
	slow      atomic.Pointer[reconcile.Key] // whose runs take 25 s instead
	// forbidden says that who starts may not have a Lease.
	forbidden bool
	shared    bool // caches keep a share
	// beside is ManagerOptions.Beside of who is built; nil: there is none.
	beside map[string]func(context.Context) error

	mu      sync.Mutex
	running map[reconcile.Key]string // the replica that runs the key
	written map[reconcile.Key]int    // by the last run that has ended
	ran     map[reconcile.Key]time.Time
	by      map[reconcile.Key]string // who did
	waited  time.Duration            // the longest time between two runs of a key
	broken  []string
}

// A ship is one of its Managers.
type ship struct {
	*reconcile.Manager
	*reconcile.Controller
	shards  *Shards
	link    *reconciletest.Link
	parents *informer.SharedIndexInformer[*corev1.ConfigMap]
	secrets *informer.SharedIndexInformer[*corev1.Secret]
	api     typedcorev1.SecretInterface
	stop    context.CancelFunc
	group   lifecycle.Group
	err     error
	shared  bool // its caches keep a share
	dead    bool // guarded by mu of the fleet
}

func emptyFleet(t *testing.T) *fleet {
	return &fleet{T: t, namespace: "default", options: func(*Options) {}, every: 500 * time.Millisecond,
		pause: 20 * time.Millisecond, slices: 16, workers: 10, running: map[reconcile.Key]string{},
		written: map[reconcile.Key]int{}, ran: map[reconcile.Key]time.Time{}, by: map[reconcile.Key]string{}}
}

func newFleet(t *testing.T, keys int) *fleet {
	// Nothing here is garbage, and to look for it after each write takes longer than all else.
	f := emptyFleet(t)
	f.server = reconciletest.NewServer(t, reconciletest.Options{CollectAfter: 10 * time.Minute})
	maps := kubernetes.NewForConfigOrDie(f.server.Config()).CoreV1().ConfigMaps("default")
	for i := range keys {
		_, err := maps.Create(quiet, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("key-", i)}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return f
}

// inFleet runs a test in a bubble.
func inFleet(t *testing.T, keys int, test func(f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, keys)
		test(f)
		require.Empty(t, f.broken)
	})
}

// launch starts a replica.
func (f *fleet) launch(name string) *ship {
	s := f.build(name, func(shards *Shards) reconcile.Elector { return shards }, nil)
	f.start(s)
	return s
}

func (f *fleet) start(s *ship) {
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	s.stop = stop
	s.group.Go("manager", func() { s.err = s.Run(ctx) })
	f.Cleanup(func() { s.stop(); <-s.group.Done() })
}

// build makes one. Without a function of its own it counts.
func (f *fleet) build(name string, wrap func(*Shards) reconcile.Elector,
	run func(context.Context, *ship, reconcile.Key) (reconcile.Result, error)) *ship {
	s, base := &ship{shared: f.shared}, f.base
	if f.server != nil {
		s.link = f.server.Link()
		base = s.link.Config()
	}
	if f.forbidden {
		s.link.Inject(leasesAreCut)
	}
	opts := Options{REST: base, Namespace: f.namespace, Name: "shards", Identity: name, By: ByKey, Slices: f.slices}
	f.options(&opts)
	var err error
	s.shards, err = New(opts)
	require.NoError(f, err)
	cfg, err := reconcile.ClientConfig(base, s.shards)
	require.NoError(f, err)
	api := kubernetes.NewForConfigOrDie(cfg).CoreV1()
	share := func() informer.Shard {
		if !f.shared {
			return nil
		}
		return Keys(s.shards)
	}
	s.parents, err = informer.New[*corev1.ConfigMap](api.ConfigMaps(f.namespace),
		informer.Options[*corev1.ConfigMap]{Shard: share()})
	require.NoError(f, err)
	s.api = api.Secrets(f.namespace)
	s.secrets, err = informer.New[*corev1.Secret](s.api,
		informer.Options[*corev1.Secret]{Shard: share()})
	require.NoError(f, err)
	s.Controller, err = reconcile.NewController("counts", reconcile.Func(
		func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			if run != nil {
				return run(ctx, s, key)
			}
			if _, exists := s.parents.Get(key); !exists {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{RequeueAfter: f.every}, f.count(ctx, s, name, s.api, key)
		}), reconcile.Options{Workers: f.workers})
	require.NoError(f, err)
	reconcile.For(s.Controller, s.parents)
	reconcile.DependsOn(s.Controller, s.secrets)
	s.Manager, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{s.Controller},
		Elector: wrap(s.shards), Beside: f.beside})
	require.NoError(f, err)
	return s
}

// count is a run of a key.
func (f *fleet) count(ctx context.Context, s *ship, name string, api typedcorev1.SecretInterface,
	key reconcile.Key) error {
	n := 0
	cached, exists := s.secrets.Get(key)
	if exists {
		n, _ = strconv.Atoi(cached.Annotations["n"])
	}
	f.mu.Lock()
	if s.dead {
		f.mu.Unlock()
		return errors.New("nobody sees what a dead process does")
	}
	if other, runs := f.running[key]; runs {
		f.broken = append(f.broken, fmt.Sprintf("%s runs %s, and %s does", name, key.Name, other))
	}
	if n < f.written[key] {
		f.broken = append(f.broken, fmt.Sprintf("%s sees %d of %s, and %s has written %d", name, n, key.Name, f.by[key],
			f.written[key]))
	}
	if last, ok := f.ran[key]; ok {
		f.waited = max(f.waited, time.Since(last))
	}
	f.running[key], f.ran[key], f.by[key] = name, time.Now(), name
	f.mu.Unlock()
	if slow := f.slow.Load(); slow != nil && *slow == key {
		lifecycle.Sleep(ctx, 25*time.Second)
	} else {
		lifecycle.Sleep(ctx, f.pause)
	}
	next := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: key.Name,
		Annotations: map[string]string{"n": strconv.Itoa(n + 1)}}}
	var err error
	if exists {
		_, err = api.Update(ctx, next, metav1.UpdateOptions{}) // whatever its version is
	} else {
		_, err = api.Create(ctx, next, metav1.CreateOptions{})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.dead {
		return err
	}
	delete(f.running, key)
	if err == nil {
		f.written[key] = n + 1
	} else if apierrors.IsAlreadyExists(err) {
		f.broken = append(f.broken, fmt.Sprintf("%s creates %s once more", name, key.Name))
	}
	return err
}

// works returns how many slices the shards of a ship have, open or not.
func (s *ship) works() int {
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	return len(s.shards.works)
}

// kill is kill -9, as far as others can see.
func (f *fleet) kill(s *ship, name string) {
	s.link.Close()
	f.mu.Lock()
	s.dead = true
	maps.DeleteFunc(f.running, func(_ reconcile.Key, by string) bool { return by == name })
	f.mu.Unlock()
	s.stop()
}

// shares returns how many keys each replica has run in the last time.
func (f *fleet) shares(last time.Duration) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]int{}
	for key, at := range f.ran {
		if time.Since(at) <= last {
			all[f.by[key]]++
		}
	}
	return all
}

// longest returns the longest time that a key has waited for a run since the last call.
func (f *fleet) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	longest := f.waited
	for _, at := range f.ran {
		longest = max(longest, time.Since(at))
	}
	f.waited = 0
	return longest
}

// TestEachKeyRunsInOneReplica while they join, leave and are killed, and each run sees what the one before it wrote.
func TestEachKeyRunsInOneReplica(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("caches of a share: ", shared), func(t *testing.T) { eachKeyRunsInOneReplica(t, shared) })
	}
}

func eachKeyRunsInOneReplica(t *testing.T, shared bool) {
	inFleet(t, 24, func(f *fleet) {
		f.shared = shared
		a, b := f.launch("a"), f.launch("b")
		time.Sleep(20 * time.Second)
		shares := f.shares(time.Second)
		require.Equal(t, 24, total(shares), "%v", shares)
		require.Len(t, shares, 2)

		f.longest()
		c := f.launch("c")
		time.Sleep(20 * time.Second)
		require.Len(t, f.shares(time.Second), 3)
		require.Equal(t, 24, total(f.shares(time.Second)))
		t.Logf("a join: no key waited for longer than %v", f.longest())

		b.stop()
		<-b.group.Done()
		require.NoError(t, b.err)
		time.Sleep(5 * time.Second)
		require.Len(t, f.shares(time.Second), 2)
		require.Equal(t, 24, total(f.shares(time.Second)))
		leave := f.longest()
		t.Logf("a leave: no key waited for longer than %v", leave)
		require.Less(t, leave, 2*time.Second)

		f.kill(a, "a")
		time.Sleep(25 * time.Second)
		require.Equal(t, map[string]int{"c": 24}, f.shares(time.Second))
		killed := f.longest()
		t.Logf("a kill: no key waited for longer than %v", killed)
		require.Less(t, killed, c.shards.opts.LeaseDuration+2*time.Second)
		require.NoError(t, c.shards.Health())
	})
}

// TestANewOwnerSeesWhatTheLastOneWrote although its watches are late.
func TestANewOwnerSeesWhatTheLastOneWrote(t *testing.T) {
	inFleet(t, 20, func(f *fleet) {
		f.launch("a")
		time.Sleep(20 * time.Second)
		b := f.launch("b")
		b.link.DelayWatches("secrets", 3*time.Second)
		time.Sleep(60 * time.Second)
		require.Len(t, f.shares(10*time.Second), 2)
		require.Equal(t, 20, total(f.shares(10*time.Second)))
		b.stop()
		<-b.group.Done()
		require.NoError(t, b.err)
		time.Sleep(5 * time.Second)
		require.Equal(t, map[string]int{"a": 20}, f.shares(time.Second))
	})
}

// TestTheServerIsAway for all replicas, and nobody works. When it is back they go on, and wait for nothing that has
// become longer meanwhile, even if one of them has crashed.
func TestTheServerIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		away  time.Duration
		crash bool
	}{
		"short":              {12 * time.Second, false},
		"short, and a crash": {12 * time.Second, true},
		"long":               {10 * time.Minute, false},
		"long, and a crash":  {10 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 30, func(f *fleet) {
				f.shared = test.crash
				ships := map[string]*ship{"a": f.launch("a"), "b": f.launch("b"), "c": f.launch("c")}
				time.Sleep(41 * time.Second) // no renewal is under way, which would be seen at the end only
				require.Equal(t, 30, total(f.shares(time.Second)))
				f.longest()
				for _, s := range ships {
					s.link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Reset })
					s.link.CutWatches()
				}
				if test.crash {
					f.kill(ships["c"], "c")
					delete(ships, "c")
				}
				time.Sleep(test.away)
				for _, s := range ships {
					s.link.Inject(nil)
				}
				time.Sleep(40 * time.Second)
				require.Equal(t, 30, total(f.shares(time.Second)))
				longest := f.longest()
				t.Logf("no key waited for longer than %v", longest)
				require.Less(t, longest, test.away+5*time.Second)
			})
		})
	}
}

func total(shares map[string]int) (n int) {
	for _, share := range shares {
		n += share
	}
	return n
}

// leasesAreCut keeps a replica from renewing its Lease, and from nothing else.
func leasesAreCut(r reconciletest.Request) reconciletest.Fault {
	if r.Resource.Resource == "leases" {
		return reconciletest.Refuse(errCut)
	}
	return nil
}

// TestAFrozenReplicaWritesNothing when its tenure is over, with any ctx, although the server would take it.
func TestAFrozenReplicaWritesNothing(t *testing.T) {
	inFleet(t, 0, func(f *fleet) {
		s := f.launch("a")
		cfg, err := reconcile.ClientConfig(s.link.Config(), s.shards)
		require.NoError(t, err)
		secrets := kubernetes.NewForConfigOrDie(cfg).CoreV1().Secrets("default")
		time.Sleep(20 * time.Second)
		frozen, leave, err := s.shards.Enter(quiet, reconcile.Key{Namespace: "default", Name: "x"})
		require.NoError(t, err)
		write := func(ctx context.Context, name string) error {
			_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			return err
		}
		require.NoError(t, write(frozen, "in-time"))
		s.link.Inject(leasesAreCut)
		time.Sleep(11 * time.Second)
		for name, ctx := range map[string]context.Context{"run": context.WithoutCancel(frozen), "other": quiet} {
			require.ErrorIs(t, write(ctx, name), ErrNotOwned, name)
		}
		leave()
		s.link.Inject(nil)
	})
}

// TestWhyNamesTheLeader of a key that another replica reconciles.
func TestWhyNamesTheLeader(t *testing.T) {
	inFleet(t, 20, func(f *fleet) {
		all := map[string]*ship{"a": f.launch("a"), "b": f.launch("b")}
		key := reconcile.Key{Namespace: "default", Name: "key-0"}
		time.Sleep(5 * time.Second)
		require.Contains(t, all["a"].Why(key), "is led by nobody, as far as this process has seen")
		time.Sleep(20 * time.Second)
		leader, other := all["a"], all["b"]
		if !leader.shards.Owns(key) {
			leader, other = other, leader
		}
		name := leader.shards.Identity()
		in := other.InspectKey(key)
		require.Regexp(t, `^default/key-0 is led by replica `+name+` since \d\d:\d\d:\d\d: it is in slice \d+, and is `+
			`reconciled there\.$`, in.Why)
		require.Equal(t, status.KeyStandby, in.State)
		require.Equal(t, name, in.Shard.Leader)
		require.False(t, in.Shard.Here)
		require.Contains(t, leader.Why(key), "the next look is in")
		require.True(t, leader.InspectKey(key).Shard.Here)
		standby := slices.DeleteFunc(other.InspectKeys(), func(k status.KeySummary) bool {
			return k.State != status.KeyStandby
		})
		require.Len(t, standby, leader.owned(20))
		require.Equal(t, "default/shards", other.Manager.Inspect().Leadership.Lease)
	})
}

// owned counts the first keys that a replica owns, of so many.
func (s *ship) owned(of int) (n int) {
	for i := range of {
		if s.shards.Owns(types.NamespacedName{Namespace: "default", Name: fmt.Sprint("key-", i)}) {
			n++
		}
	}
	return n
}

// TestWhileLeadingNeedsALeader of all.
func TestWhileLeadingNeedsALeader(t *testing.T) {
	s := newTestGroup(t, nil).alone("a")
	_, err := reconcile.NewManager(reconcile.ManagerOptions{Elector: s.Shards,
		WhileLeading: map[string]func(context.Context) error{"f": func(context.Context) error { return nil }}})
	require.ErrorContains(t, err, "with the shards default/shards no process leads all of them")
}

// TestALongRunKeepsItsSliceOnly when its Manager is told to stop: the others go at once, and none comes.
func TestALongRunKeepsItsSliceOnly(t *testing.T) {
	inFleet(t, 20, func(f *fleet) {
		ships := map[string]*ship{"a": f.launch("a"), "b": f.launch("b"), "c": f.launch("c")}
		time.Sleep(20 * time.Second)
		slow := reconcile.Key{Namespace: "default", Name: "key-0"}
		f.slow.Store(&slow)
		time.Sleep(time.Second)
		_, owner, _ := ships["a"].shards.Leader(slow)
		in := ships["a"].shards.Slice(slow)
		others := 0 // keys of other slices
		for i := range 20 {
			if ships["a"].shards.Slice(reconcile.Key{Namespace: "default", Name: fmt.Sprint("key-", i)}) != in {
				others++
			}
		}
		ships[owner].stop()
		time.Sleep(3 * time.Second)
		shares := f.shares(time.Second)
		require.Zero(t, shares[owner], "%v", shares)
		require.Equal(t, others, total(shares), "%v", shares)
		var next *ship
		for name, s := range ships {
			if name != owner {
				next = s
			}
		}
		next.stop() // while the first one goes on
		<-next.group.Done()
		require.NoError(t, next.err)
		time.Sleep(2 * time.Second)
		shares = f.shares(time.Second)
		require.Zero(t, shares[owner], "%v", shares)
		require.Equal(t, others, total(shares), "it went to the last one: %v", shares)
		f.slow.Store(nil)
		<-ships[owner].group.Done()
		require.NoError(t, ships[owner].err)
		time.Sleep(2 * time.Second)
		require.Equal(t, 20, total(f.shares(time.Second)))
	})
}

// TestAReplicaThatMayHaveNoLeaseIsNotReady, and takes part as soon as it may.
func TestAReplicaThatMayHaveNoLeaseIsNotReady(t *testing.T) {
	inFleet(t, 3, func(f *fleet) {
		f.forbidden = true
		a := f.launch("a")
		time.Sleep(20 * time.Second)
		require.ErrorContains(t, a.shards.Ready(), "create leases.coordination.k8s.io default/shards-")
		require.Contains(t, fmt.Sprint(a.Manager.Inspect().NotReady), "could not lead")
		require.Contains(t, a.Why(reconcile.Key{Namespace: "default", Name: "key-0"}),
			"it has no Lease in the group of the table default/shards")
		a.link.Inject(nil)
		time.Sleep(20 * time.Second)
		require.NoError(t, a.shards.Ready())
		require.Empty(t, a.Manager.Inspect().NotReady)
		require.Equal(t, map[string]int{"a": 3}, f.shares(time.Second))
	})
}

// TestAWrapperThatHidesTheSlicesIsRefused: with it every replica would reconcile every key.
func TestAWrapperThatHidesTheSlicesIsRefused(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		type hides struct{ reconcile.Elector }
		type passesOn struct{ *Shards }
		var ran atomic.Int32
		for name, test := range map[string]struct {
			wrap func(*Shards) reconcile.Elector
			want string
		}{
			"hides":    {func(s *Shards) reconcile.Elector { return hides{s} }, "Give the Manager the *sharding.Sh"},
			"passesOn": {func(s *Shards) reconcile.Elector { return passesOn{s} }, ""},
		} {
			ran.Store(0)
			s := f.build(name, test.wrap, func(context.Context, *ship, reconcile.Key) (reconcile.Result, error) {
				ran.Add(1)
				return reconcile.Result{}, nil
			})
			ctx, cancel := context.WithTimeout(quiet, time.Minute)
			err := s.Run(ctx)
			cancel()
			if test.want == "" {
				require.NoError(t, err)
				require.NotZero(t, ran.Load())
				continue
			}
			require.ErrorContains(t, err, test.want)
			require.Zero(t, ran.Load())
		}
	})
}
