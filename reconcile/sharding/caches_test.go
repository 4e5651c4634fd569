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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// lists returns how many lists of objects the two caches of a ship have begun.
func (s *ship) lists() (n int) {
	for _, r := range s.link.Requests() {
		if r.Resource.Resource != "leases" && r.Verb == "list" {
			n++
		}
	}
	return n
}

// slowLists makes each list of what the caches have take a while.
func slowLists(takes time.Duration) func(reconciletest.Request) reconciletest.Fault {
	return func(r reconciletest.Request) reconciletest.Fault {
		if r.Resource.Resource == "leases" || r.Verb != "list" {
			return nil
		}
		return func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
			time.Sleep(takes)
			return next()
		}
	}
}

// TestAFourthReplicaJoins whose caches keep a share, and leaves: each list that is needed takes 3 s, and no key waits
// for it.
func TestAFourthReplicaJoins(t *testing.T) {
	const keys = 32
	inFleet(t, keys, func(f *fleet) {
		f.shared = true
		three := map[string]*ship{"a": f.launch("a"), "b": f.launch("b"), "c": f.launch("c")}
		time.Sleep(40 * time.Second)
		require.Equal(t, keys, total(f.shares(time.Second)))
		before := map[string]int{}
		held := 0
		for name, s := range three {
			before[name] = s.lists()
			held += s.parents.Len()
			require.LessOrEqual(t, s.parents.Len(), keys/2)
			require.Equal(t, s.parents.Len(), s.secrets.Len())
			require.Equal(t, len(s.shards.Stats().Slices), s.parents.Health().Slices)
			t.Logf("%s keeps %d of %d objects in %d slices, after %d lists of 2 caches", name, s.parents.Len(), keys,
				s.parents.Health().Slices, before[name])
		}
		require.Equal(t, keys, held)

		f.longest()
		d := f.build("d", func(shards *Shards) reconcile.Elector { return shards }, nil)
		d.link.Inject(slowLists(3 * time.Second))
		f.start(d)
		time.Sleep(60 * time.Second)
		join := f.longest()
		require.Equal(t, keys, total(f.shares(time.Second)))
		require.Len(t, f.shares(time.Second), 4)
		require.NotZero(t, d.parents.Len())
		t.Logf("a join: no key waited for longer than %v; the new one has begun %d lists of 2 caches", join, d.lists())
		require.Less(t, join, f.every+f.pause+time.Second)
		for name, s := range three {
			require.Equal(t, before[name], s.lists(), "%s lists for nobody", name)
			require.Equal(t, s.parents.Len(), s.owned(keys), "what it has given away has left")
		}

		for _, s := range three {
			s.link.Inject(slowLists(3 * time.Second))
		}
		told := time.Now()
		d.stop()
		time.Sleep(time.Second)
		led := d.owned(keys)
		require.NotZero(t, led)
		standby := 0
		for _, key := range d.InspectKeys() {
			if key.State == status.KeyStandby {
				standby++
			} else {
				why := d.Why(reconcile.Key{Namespace: key.Namespace, Name: key.Name})
				require.NotContains(t, why, "no new run begins")
			}
		}
		require.Equal(t, d.parents.Len()-led, standby, "all keys of its slices run as before")
		<-d.group.Done()
		require.NoError(t, d.err)
		took := time.Since(told)
		time.Sleep(10 * time.Second)
		require.Equal(t, keys, total(f.shares(time.Second)))
		leave := f.longest()
		t.Logf("a leave of %v: no key waited for longer than %v", took, leave)
		require.Greater(t, took, 3*time.Second, "it works on while the others list")
		require.Less(t, took, 10*time.Second)
		require.Less(t, leave, f.every+f.pause+time.Second)
		for name, s := range three {
			t.Logf("%s has begun %d lists more", name, s.lists()-before[name])
			require.Equal(t, before[name]+2, s.lists(), "one for each cache")
			require.Equal(t, s.parents.Len(), s.owned(keys))
		}
	})
}

// TestALeaverEndsWhileOthersList: they go on listing what they have begun to, also for a slice that comes later than
// the others, when its last call has ended.
func TestALeaverEndsWhileOthersList(t *testing.T) {
	const keys = 32
	inFleet(t, keys, func(f *fleet) {
		f.shared = true
		f.slices = 32
		ships := map[string]*ship{"a": f.launch("a"), "b": f.launch("b")}
		time.Sleep(40 * time.Second)
		slow := reconcile.Key{Namespace: "default", Name: "key-0"}
		_, owner, _ := ships["a"].shards.Leader(slow)
		leaver, heir := ships[owner], ships["b"]
		if owner == "b" {
			heir = ships["a"]
		}
		heir.link.Inject(slowLists(20 * time.Second))
		f.slow.Store(&slow)
		time.Sleep(7 * time.Second)
		f.slow.Store(nil) // the run that goes on takes 18 s more
		before := heir.lists()
		f.longest()
		leaver.stop()
		<-leaver.group.Done()
		require.NoError(t, leaver.err)
		time.Sleep(40 * time.Second)
		longest := f.longest()
		require.Equal(t, keys, total(f.shares(time.Second)))
		t.Logf("the key with the call that takes 25 s waited for %v from one run to the next", longest)
		require.Less(t, longest, 30*time.Second)
		require.Equal(t, before+2, heir.lists(), "one for each cache")
	})
}

// TestASliceWaitsForItsObjects if its owner has left, as long as they cannot be listed: no run takes them for deleted.
// The keys of other slices go on.
func TestASliceWaitsForItsObjects(t *testing.T) {
	inFleet(t, 16, func(f *fleet) {
		f.shared = true
		a, b := f.launch("a"), f.launch("b")
		time.Sleep(40 * time.Second)
		require.Len(t, f.shares(time.Second), 2)
		b.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource == "secrets" && r.Verb == "list" {
				return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
					return nil, fmt.Errorf("not now")
				}
			}
			return nil
		})
		a.stop()
		<-a.group.Done()
		require.NoError(t, a.err)
		time.Sleep(time.Minute)
		require.Less(t, b.owned(16), 16, "those of a wait")
		require.Equal(t, b.owned(16), total(f.shares(time.Second)), "and no others")
		err := b.shards.Health()
		require.ErrorContains(t, err, "of this replica have waited for longer than 15s")
		require.ErrorContains(t, err, "informer *v1.Secret")
		require.ErrorContains(t, err, "not now")
		b.link.Inject(nil)
		time.Sleep(40 * time.Second)
		require.NoError(t, b.shards.Health())
		require.Equal(t, map[string]int{"b": 16}, f.shares(time.Second))
	})
}

// TestAManagerThatFailsEndsAtOnce, although the others are not prepared for its slices: its caches may have ended. It
// may fail while it leaves.
func TestAManagerThatFailsEndsAtOnce(t *testing.T) {
	for name, leaves := range map[string]bool{"at work": false, "leaving": true} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 40, func(f *fleet) {
				f.shared = true
				a := f.launch("a")
				broken, fails := errors.New("no more"), make(chan struct{})
				f.beside = map[string]func(context.Context) error{"fails": func(context.Context) error {
					<-fails
					return broken
				}}
				b := f.launch("b")
				time.Sleep(40 * time.Second)
				require.Len(f, f.shares(time.Second), 2)
				a.link.Inject(slowLists(3 * time.Second))
				if leaves {
					b.stop()
					time.Sleep(time.Second)
					require.Len(f, f.shares(time.Second), 2)
				}
				told := time.Now()
				close(fails)
				<-b.group.Done()
				require.ErrorIs(f, b.err, broken)
				require.Less(f, time.Since(told), time.Second)
				time.Sleep(10 * time.Second)
				require.Equal(f, map[string]int{"a": 40}, f.shares(time.Second))
			})
		})
	}
}

// TestARefusedCacheHoldsUpMoves: an owner that stays keeps what another one cannot list, and one that leaves does not
// wait for that without end. What it gives away then is not run on without its objects, and the right that is missing
// is told until it is there again.
func TestARefusedCacheHoldsUpMoves(t *testing.T) {
	inFleet(t, 40, func(f *fleet) {
		f.shared = true
		a, b := f.launch("a"), f.launch("b")
		time.Sleep(40 * time.Second)
		require.Len(t, f.shares(time.Second), 2)
		refused := func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource != "secrets" || r.Verb != "list" {
				return nil
			}
			return reconciletest.Refuse(apierrors.NewForbidden(r.Resource.GroupResource(), "", nil))
		}
		a.link.Inject(refused)
		b.link.Inject(refused)
		c := f.launch("c")
		time.Sleep(5 * time.Second)
		c.link.Inject(refused)
		time.Sleep(time.Minute)
		require.Len(t, f.shares(time.Second), 2, "who stays works on what c cannot list")
		require.ErrorContains(t, c.shards.Health(), "this replica cannot ask for 5 slices")
		require.ErrorContains(t, c.shards.Health(), "forbidden")
		require.NoError(t, a.shards.Health())
		c.stop()
		<-c.group.Done()

		had := a.owned(40)
		told := time.Now()
		a.stop()
		time.Sleep(14 * time.Second)
		require.Equal(t, 40, total(f.shares(time.Second)), "it works on, as nobody is prepared")
		<-a.group.Done()
		require.NoError(t, a.err)
		require.Less(t, time.Since(told), 20*time.Second)
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"b": 40 - had}, f.shares(time.Second))
		require.ErrorContains(t, b.shards.Health(), "forbidden")
		b.link.Inject(nil)
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"b": 40}, f.shares(time.Second))
		require.NoError(t, b.shards.Health())
	})
}

// TestAJoinThatCannotList asks for nothing, and says so.
func TestAJoinThatCannotList(t *testing.T) {
	inFleet(t, 16, func(f *fleet) {
		f.shared = true
		f.launch("a")
		time.Sleep(30 * time.Second)
		b := f.launch("b")
		time.Sleep(5 * time.Second)
		b.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource == "secrets" && r.Verb == "list" {
				return reconciletest.Refuse(errCut)
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int{"a": 16}, f.shares(time.Second))
		err := b.shards.Health()
		require.ErrorContains(t, err, "this replica cannot ask for 8 slices")
		require.ErrorContains(t, err, "informer *v1.Secret")
		b.link.Inject(nil)
		time.Sleep(40 * time.Second)
		require.Len(t, f.shares(time.Second), 2)
		require.NoError(t, b.shards.Health())
	})
}

// TestALateCacheHasTheOpenSlices by its first list, and the replica is prepared for nothing without it.
func TestALateCacheHasTheOpenSlices(t *testing.T) {
	inFleet(t, 16, func(f *fleet) {
		a := f.launch("a")
		time.Sleep(40 * time.Second)
		require.Equal(t, 16, total(f.shares(time.Second)))
		late, err := informer.New[*corev1.ConfigMap](
			kubernetes.NewForConfigOrDie(a.link.Config()).CoreV1().ConfigMaps("default"),
			informer.Options[*corev1.ConfigMap]{Shard: Keys(a.shards)})
		require.NoError(t, err)
		f.runs(late)
		<-late.Synced()
		require.Equal(t, 16, late.Len())
	})
}

// runs runs an informer until the test ends.
func (f *fleet) runs(inf *informer.SharedIndexInformer[*corev1.ConfigMap]) {
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	var group lifecycle.Group
	group.Go("informer", func() { require.NoError(f, inf.Run(ctx)) })
	f.Cleanup(func() { stop(); <-group.Done() })
}

// cacheOfTest has the objects of some slices.
type cacheOfTest struct {
	mu  sync.Mutex
	has map[int]bool
}

func (c *cacheOfTest) Name() string    { return "test" }
func (c *cacheOfTest) Keep(int, []int) {}
func (c *cacheOfTest) Wait(ctx context.Context, slices []int) error {
	for {
		c.mu.Lock()
		all := true
		for _, slice := range slices {
			all = all && c.has[slice]
		}
		c.mu.Unlock()
		if all {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestASliceThatIsHereDoesNotWait for another one whose objects cannot be listed.
func TestASliceThatIsHereDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGroup(t, func(o *Options) { o.Slices = 4 })
		m := g.alone("a")
		cache := &cacheOfTest{has: map[int]bool{0: true, 1: true, 2: true}}
		defer Keys(m.Shards).Join(cache)()
		ctx, cancel := context.WithCancel(quiet)
		var opened []int
		m.works.Go("run", func() {
			m.err = m.Run(ctx, func(tenure context.Context) error {
				m.Inherit(tenure, func(context.Context, []string, bool) {}, func(slices []int) {
					opened = append(opened, slices...)
				})
				return nil
			})
		})
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2}, opened)
		require.ErrorContains(t, m.Health(), "the keys of 1 slices [3] of this replica have waited")
		m.mu.Lock()
		r := m.r
		m.mu.Unlock()
		m.caches.prepared(m.Shards, r, []int{2, 3})
		require.Equal(t, map[int]bool{2: true}, r.ready, "it is not prepared for what the cache lacks")
		cache.mu.Lock()
		cache.has[3] = true
		cache.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, opened)
		require.NoError(t, m.Health())
		cancel()
		<-m.works.Done()
		require.NoError(t, m.err)
	})
}

// TestASliceThatIsGivenAwayNamesNoKey, and is no deletion for anybody.
func TestASliceThatIsGivenAwayNamesNoKey(t *testing.T) {
	inFleet(t, 40, func(f *fleet) {
		f.shared = true
		ships, ran := map[string]*ship{}, map[string]int{}
		for _, name := range []string{"a", "b"} {
			ships[name] = f.build(name, func(shards *Shards) reconcile.Elector { return shards },
				func(context.Context, *ship, reconcile.Key) (reconcile.Result, error) {
					f.mu.Lock()
					defer f.mu.Unlock()
					ran[name]++
					return reconcile.Result{}, nil
				})
		}
		a, b := ships["a"], ships["b"]
		f.start(a)
		runs := func(name string) int {
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			return ran[name]
		}
		time.Sleep(40 * time.Second)
		before := runs("a") // a key that waits when its slice opens is named once more
		require.GreaterOrEqual(t, before, 40)
		var left, deleted int
		_, err := a.parents.AddHandler(func(e informer.Event[*corev1.ConfigMap]) {
			switch {
			case e.Left:
				left++
			case e.Type == informer.Deleted:
				deleted++
			}
		}, informer.HandlerOptions{Inline: true})
		require.NoError(t, err)
		adds := a.Stats().Queue.Adds
		f.start(b)
		time.Sleep(40 * time.Second)
		require.GreaterOrEqual(t, runs("b"), b.owned(40), "each once more, where it has come to")
		require.Equal(t, before, runs("a"))
		require.Equal(t, b.owned(40), left)
		require.NotZero(t, left)
		require.Zero(t, deleted)
		require.Equal(t, adds, a.Stats().Queue.Adds, "not even queued")
		require.Empty(t, a.Manager.Inspect().NotReady)
	})
}

// TestAWriteOutsideOfTheShareIsNotWaitedFor: the cache never shows it, and so it is not undone either. One in the share
// is, as with a whole cache: see the count of a fleet.
func TestAWriteOutsideOfTheShareIsNotWaitedFor(t *testing.T) {
	inFleet(t, 16, func(f *fleet) {
		f.shared = true
		f.launch("other")
		ran := map[reconcile.Key]int{}
		a := f.build("a", func(shards *Shards) reconcile.Elector { return shards },
			func(ctx context.Context, s *ship, key reconcile.Key) (reconcile.Result, error) {
				f.mu.Lock()
				ran[key]++
				n := map[string]string{"n": fmt.Sprint(ran[key])}
				f.mu.Unlock()
				cfg, err := reconcile.ClientConfig(s.link.Config(), s.shards)
				require.NoError(t, err)
				secrets := kubernetes.NewForConfigOrDie(cfg).CoreV1().Secrets("default")
				for i := range 3 { // some are in its share, and some are not
					o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(key.Name, "-", i),
						Annotations: n}}
					if _, err = secrets.Create(ctx, o, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
						_, err = secrets.Update(ctx, o, metav1.UpdateOptions{})
					}
					if err != nil {
						return reconcile.Result{}, err
					}
				}
				return reconcile.Result{}, nil
			})
		f.start(a)
		time.Sleep(time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.NotEmpty(t, ran)
		for key, n := range ran {
			require.LessOrEqual(t, n, 2, key)
		}
		require.Zero(t, a.Stats().Parked)
		require.Equal(t, 2, a.secrets.Health().Lists, "the first, and one when the first table opens")
	})
}

// TestAShareNeedsShards: without them nothing would say what it is, and the cache would be empty.
func TestAShareNeedsShards(t *testing.T) {
	inFleet(t, 0, func(f *fleet) {
		f.shared = true
		s := f.build("a", func(shards *Shards) reconcile.Elector { return shards }, nil)
		c, err := reconcile.NewController("c", reconcile.Func(
			func(context.Context, reconcile.Key) (reconcile.Result, error) { return reconcile.Result{}, nil }),
			reconcile.Options{})
		require.NoError(t, err)
		children, err := informer.New[*corev1.Secret](s.api, informer.Options[*corev1.Secret]{Shard: Keys(s.shards),
			Name: "children"})
		require.NoError(t, err)
		reconcile.For(c, s.secrets)
		reconcile.Owns(c, children, corev1.SchemeGroupVersion.WithKind("Secret"))
		_, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			Informers: []reconcile.Informer{s.parents}})
		require.ErrorContains(t, err, "informer children has Options.Shard")
		require.ErrorContains(t, err, "informer *v1.Secret has Options.Shard")
		require.ErrorContains(t, err, "informer *v1.ConfigMap has Options.Shard")
	})
}

// TestKeysThatAreCutNeedTheirOwnersSlice: the child of a key is in the slice of that key, wherever it is cut by key.
func TestKeysThatAreCutNeedTheirOwnersSlice(t *testing.T) {
	byLetter := func(key types.NamespacedName) string { return key.Name[:1] }
	for name, c := range map[string]struct {
		by      func(types.NamespacedName) string
		in      []string
		refused bool
	}{
		"ByNamespace": {}, "ByKeyIn": {in: []string{"big"}, refused: true}, "ByKey": {by: ByKey, refused: true},
		"by a prefix": {by: byLetter},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 0, func(f *fleet) {
				f.shared = true
				f.options = func(o *Options) { o.By, o.ByKeyIn = c.by, c.in }
				s := f.build("a", func(shards *Shards) reconcile.Elector { return shards }, nil)
				build := func(shard informer.Shard) error {
					children, err := informer.New[*corev1.Secret](s.api, informer.Options[*corev1.Secret]{Shard: shard})
					require.NoError(f, err)
					owner, err := reconcile.NewController("owner", reconcile.Func(
						func(context.Context, reconcile.Key) (reconcile.Result, error) {
							return reconcile.Result{}, nil
						}), reconcile.Options{})
					require.NoError(f, err)
					reconcile.For(owner, s.parents)
					reconcile.DependsOn(owner, s.secrets) // may have the name of the key
					reconcile.Owns(owner, children, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
					_, err = reconcile.NewManager(reconcile.ManagerOptions{Elector: s.shards,
						Controllers: []*reconcile.Controller{owner}})
					return err
				}
				require.NoError(f, build(Owned(s.shards)))
				require.NoError(f, build(nil))
				if !c.refused {
					require.NoError(f, build(Keys(s.shards)))
					return
				}
				require.ErrorContains(f, build(Keys(s.shards)), `controller "owner": Owns *v1.Secret: the `+
					"informer keeps objects by their own keys (sharding.Keys), and default/shards has slices that are "+
					"cut by key")
			})
		})
	}
}

// TestWhereAnObjectBelongs by each of the functions.
func TestWhereAnObjectBelongs(t *testing.T) {
	s := newTestGroup(t, nil).alone("a").Shards
	yes := true
	child := &metav1.ObjectMeta{Namespace: "n", Name: "child", OwnerReferences: []metav1.OwnerReference{{Name: "x"},
		{Name: "parent", Controller: &yes}}}
	hash := func(shard informer.Shard, o *metav1.ObjectMeta) uint64 {
		h, ok := shard.Hash(o)
		require.True(t, ok)
		return h
	}
	parent := hash(Keys(s), &metav1.ObjectMeta{Namespace: "n", Name: "parent"})
	require.Equal(t, parent, hash(Owned(s), child))
	require.EqualValues(t, s.Slice(types.NamespacedName{Namespace: "n", Name: "parent"}), parent%uint64(s.count()))
	_, ok := Owned(s).Hash(&metav1.ObjectMeta{Namespace: "n", Name: "orphan"})
	require.False(t, ok)
	require.Equal(t, parent, hash(Of(s, func(*metav1.ObjectMeta) (types.NamespacedName, bool) {
		return types.NamespacedName{Namespace: "n", Name: "parent"}, true
	}), child))
	_, ok = Of(s, func(*metav1.ObjectMeta) (types.NamespacedName, bool) { panic("no") }).Hash(child)
	require.False(t, ok, "nobody can say")
	require.True(t, Keys(s).KeyOnly())
	require.False(t, Owned(s).KeyOnly())
}
