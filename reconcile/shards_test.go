package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// slicesOfTest are the shards of a test: it says which slices this process leads. The slice of a key is the length of
// its name.
type slicesOfTest struct {
	mu      sync.Mutex
	led     map[int]context.CancelFunc // guarded by mu; ends what goes on in a slice
	ctx     map[int]context.Context    // guarded by mu
	come    chan int
	entered int // guarded by mu; minus those that have left
}

var errElsewhere = errors.New("elsewhere")

func newSlices() *slicesOfTest {
	return &slicesOfTest{led: map[int]context.CancelFunc{}, ctx: map[int]context.Context{}, come: make(chan int)}
}

func (s *slicesOfTest) Run(ctx context.Context, lead func(context.Context) error) error {
	return lead(ctx)
}

func (s *slicesOfTest) Enter(ctx context.Context, key reconcile.Key) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slice, ok := s.ctx[s.Slice(key)]
	if !ok {
		return nil, nil, errElsewhere
	}
	s.entered++
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(slice, cancel)
	return ctx, func() {
		unhook()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.entered--
	}, nil
}

func (s *slicesOfTest) Inherit(ctx context.Context, settle func(context.Context, []string, bool), opened func([]int)) {
	for {
		select {
		case slice := <-s.come:
			settle(ctx, nil, false)
			s.mu.Lock()
			s.ctx[slice], s.led[slice] = context.WithCancel(context.Background())
			s.mu.Unlock()
			opened([]int{slice})
		case <-ctx.Done():
			return
		}
	}
}

func (s *slicesOfTest) gain(slice int) {
	s.come <- slice
	synctest.Wait()
}

func (s *slicesOfTest) lose(slice int) {
	s.mu.Lock()
	s.led[slice]()
	delete(s.ctx, slice)
	delete(s.led, slice)
	s.mu.Unlock()
	synctest.Wait()
}

func (s *slicesOfTest) Leave(context.Context)         {}
func (s *slicesOfTest) LeaveWords(func([]int) string) {}

func (s *slicesOfTest) Owns(key reconcile.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx[s.Slice(key)] != nil
}

func (s *slicesOfTest) Leader(key reconcile.Key) (int, string, time.Time) {
	return s.Slice(key), "b", time.Time{}
}
func (s *slicesOfTest) Slice(key reconcile.Key) int { return len(key.Name) }
func (s *slicesOfTest) CutsByKey() bool             { return true }
func (s *slicesOfTest) String() string              { return "default/test" }
func (s *slicesOfTest) Identity() string            { return "a" }
func (s *slicesOfTest) Health() error               { return nil }

// TestKeysOfOtherProcessesLeaveNothingBehind in the queue and the table, however often they are named, and run when
// their slice comes, after a list.
func TestKeysOfOtherProcessesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shards, log := newMapAPI(), newSlices(), &journal{}
		for i := range 20 {
			api.Create(configMap(fmt.Sprint("key-", i)))
		}
		maps := newMaps(t, api)
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			causes, _ := reconcile.Causes(ctx)
			log.note("%s after %d lists by %s", key.Name, maps.Health().Lists, causes[0].Source)
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, maps)
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: shards})
		synctest.Wait()
		api.Update("default", "key-3", func(o *corev1.ConfigMap) { o.Data = map[string]string{"a": "b"} })
		synctest.Wait()
		require.Empty(t, taken(log))
		require.Zero(t, c.Busy())
		require.Zero(t, c.Queue().Stats().Ready+c.Queue().Stats().Delayed)
		require.Empty(t, c.Gone())
		shards.gain(len("key-0"))
		lines := taken(log)
		require.Len(t, lines, 10)
		require.Equal(t, "key-0 after 2 lists by a slice that has come", lines[0])
		shards.lose(len("key-0"))
		api.Update("default", "key-3", func(o *corev1.ConfigMap) { o.Data = map[string]string{"a": "b"} })
		api.Update("default", "key-13", func(o *corev1.ConfigMap) { o.Data = map[string]string{"a": "b"} })
		require.Empty(t, taken(log))
		shards.gain(len("key-10"))
		require.Len(t, taken(log), 10)
		require.NoError(t, stop())
		require.Zero(t, shards.entered)
	})
}

// TestASliceBringsAllKeysThatASourceNames and those that no cache has any more.
func TestASliceBringsAllKeysThatASourceNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shards, log := newMapAPI(), newSlices(), &journal{}
		child := configMap("child")
		child.OwnerReferences = controlledBy("example.com/v1", "Website", "owner")
		api.Create(child)
		label := configMap("labelled")
		label.Labels = map[string]string{"for": "watch"}
		api.Create(label)
		api.Create(configMap("lasts"))
		maps, owned := newMaps(t, api), newMaps(t, api)
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.For(c, maps)
		reconcile.Owns(c, owned, schema.GroupVersionKind{Group: "example.com", Kind: "Website"})
		reconcile.Watches(c, owned, func(o *corev1.ConfigMap) []reconcile.Key {
			if name := o.Labels["for"]; name != "" {
				return []reconcile.Key{{Namespace: "default", Name: name}}
			}
			return nil
		})
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: shards})
		synctest.Wait()
		require.Equal(t, []reconcile.Key{{Namespace: "default", Name: "watch"}}, c.Gone(),
			"owner has no object, but another names it; the function may name something else later")
		api.Delete("default", "lasts")
		c.Enqueue(reconcile.Key{Namespace: "default", Name: "asked"})
		time.Sleep(2 * debts.LeftFor)
		require.Empty(t, taken(log))
		require.Zero(t, c.Busy())
		require.Len(t, c.Gone(), 3)
		shards.gain(5)
		require.Equal(t, []string{"default/asked", "default/child", "default/lasts", "default/owner", "default/watch"},
			taken(log))
		require.NoError(t, stop())
	})
}

// TestKeysThatNoObjectNamesAreRemembered for the time when their slice comes, and no others: those of objects that are
// deleted, or name another key now.
func TestKeysThatNoObjectNamesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shards, log := newMapAPI(), newSlices(), &journal{}
		controlled := func(by string) []metav1.OwnerReference { return controlledBy("example.com/v1", "Website", by) }
		for _, name := range []string{"stays", "moves", "goes"} {
			child := configMap(name)
			child.OwnerReferences = controlled("had-" + name)
			api.Create(child)
		}
		owned := newMaps(t, api)
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.Owns(c, owned, schema.GroupVersionKind{Group: "example.com", Kind: "Website"})
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: shards})
		synctest.Wait()
		require.Empty(t, c.Gone())
		key := func(name string) reconcile.Key { return reconcile.Key{Namespace: "default", Name: name} }
		api.Update("default", "stays", func(o *corev1.ConfigMap) { o.Data = map[string]string{"a": "b"} })
		synctest.Wait()
		require.Empty(t, c.Gone())
		api.Delete("default", "goes")
		api.Update("default", "moves", func(o *corev1.ConfigMap) { o.OwnerReferences = controlled("has-moves") })
		c.Enqueue(key("asked-for"))
		c.Enqueue(key("had-stays"))
		synctest.Wait()
		require.ElementsMatch(t, []reconcile.Key{key("had-goes"), key("had-moves"), key("has-moves"), key("asked-for"),
			key("had-stays")}, c.Gone())
		shards.gain(len("has-moves"))
		require.Equal(t, []string{"default/asked-for", "default/had-moves", "default/had-stays", "default/has-moves"},
			slices.Compact(taken(log))) // a key may come twice: its event, and the slice
		require.NoError(t, stop())
	})
}

// TestASliceThatGoesAtOnceLeavesNothingBehind: keys that it has brought, and that no worker has taken, are named by the
// objects that its next owner lists.
func TestASliceThatGoesAtOnceLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shards, log, release := newMapAPI(), newSlices(), &journal{}, make(chan struct{})
		for _, owner := range []string{"busy", "one", "two"} {
			child := configMap("child-of-" + owner)
			child.OwnerReferences = controlledBy("example.com/v1", "Website", owner)
			api.Create(child)
		}
		owned := newMaps(t, api)
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key.Name)
			<-release
			return reconcile.Result{}, nil
		}, reconcile.Options{Workers: 1})
		reconcile.Owns(c, owned, schema.GroupVersionKind{Group: "example.com", Kind: "Website"})
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: shards})
		synctest.Wait()
		shards.gain(len("busy"))
		shards.gain(len("one"))
		shards.lose(len("one"))
		close(release)
		synctest.Wait()
		require.Equal(t, []string{"busy"}, taken(log))
		require.Empty(t, c.Gone())
		shards.gain(len("one"))
		require.ElementsMatch(t, []string{"one", "two"}, taken(log))
		require.NoError(t, stop())
	})
}

// TestAFunctionThatReadsCachesMayNameNoMore what it has named: a claim was seen, and is gone when the slice comes.
func TestAFunctionThatReadsCachesMayNameNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shards, log := newMapAPI(), newSlices(), &journal{}
		api.Create(configMap("claim"))
		api.Create(configMap("object"))
		claims, objects := newMaps(t, api), newMaps(t, api)
		claim := reconcile.Key{Namespace: "default", Name: "claim"}
		named := reconcile.Key{Namespace: "default", Name: "pool"}
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.DependsOn(c, claims)
		reconcile.Watches(c, objects, func(o *corev1.ConfigMap) []reconcile.Key {
			if _, claimed := claims.Get(claim); claimed && o.Name == "object" {
				return []reconcile.Key{named}
			}
			return nil
		})
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: shards})
		synctest.Wait()
		api.Update("default", "object", func(o *corev1.ConfigMap) { o.Data = map[string]string{"a": "b"} })
		synctest.Wait()
		api.Delete("default", "claim")
		synctest.Wait()
		shards.gain(len(named.Name))
		require.Equal(t, []string{"default/pool"}, taken(log))
		require.NoError(t, stop())
	})
}

// TestARunEndsWithItsSlice and has not failed by that.
func TestARunEndsWithItsSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, shards, log := newMapAPI(), newSlices(), &journal{}
		api.Create(configMap("key"))
		maps := newMaps(t, api)
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("begins")
			<-ctx.Done()
			log.note("ends: %v", ctx.Err())
			return reconcile.Result{}, ctx.Err()
		}, reconcile.Options{})
		reconcile.For(c, maps)
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: shards})
		synctest.Wait()
		shards.gain(3)
		require.Equal(t, 1, shards.entered)
		shards.lose(3)
		require.Equal(t, []string{"begins", "ends: context canceled"}, taken(log))
		require.Zero(t, shards.entered)
		key := c.InspectKey(reconcile.Key{Namespace: "default", Name: "key"})
		require.Zero(t, key.Failures)
		require.Equal(t, status.KeyStandby, key.State)
		require.Equal(t, "stopped", key.Runs[0].Result)
		require.NoError(t, stop())
	})
}
