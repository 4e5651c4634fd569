package naming

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
)

// thing is an object that names keys.
type thing struct {
	names  []Key
	broken bool // the function panics on it
}

// noCache is a cache that nobody asks for anything, as there are no debts.
type noCache struct{ debts.Informer }

func key(n int) Key { return Key{Namespace: "default", Name: fmt.Sprint(n)} }

// newNamer makes a Namer of things, and a function that returns which keys have been added since its last call.
func newNamer(t *testing.T) (n *Namer[*thing], added func() map[Key]bool) {
	klog.SetLogger(logr.Discard()) // each panic is logged with its stack
	t.Cleanup(klog.ClearLogger)
	table := keys.New(true, 10, func(*url.URL) string { return "" })
	ledger := debts.New(table, nil, nil)
	since := map[Key]bool{}
	n = &Namer[*thing]{Cause: "things", Controller: t.Name(), Table: table, Ledger: ledger,
		Cache: ledger.CacheOf(noCache{}), Add: func(key Key, _ bool) { since[key] = true }, Invalid: new(Invalid)}
	n.Keys = func(o *thing) []Key {
		if o.broken {
			panic("broken")
		}
		return o.names
	}
	return n, func() map[Key]bool {
		was := maps.Clone(since)
		clear(since)
		return was
	}
}

// TestNoKeyIsLost compares random histories of objects, on some states of which the function panics for a while, with a
// model: a change of an object names all keys of its last state that could be asked, and those of its new one as soon
// as that can be asked.
func TestNoKeyIsLost(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			noKeyIsLost(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func noKeyIsLost(t *testing.T, random *rand.Rand) {
	n, added := newNamer(t)
	// Of each object: the state that exists, and the keys of the last one that could be asked.
	exists, named := map[Key]*thing{}, map[Key]map[Key]bool{}
	wants := func(object Key, now *thing) map[Key]bool {
		want := maps.Clone(named[object])
		if want == nil {
			want = map[Key]bool{}
		}
		if now == nil {
			delete(named, object)
			return want
		}
		if !now.broken {
			named[object] = map[Key]bool{}
			for _, k := range now.names {
				want[k], named[object][k] = true, true
			}
		}
		return want
	}
	for version := range 60 {
		object := key(random.IntN(3))
		e := informer.Event[*thing]{Key: object, ResourceVersion: fmt.Sprint(version), Old: exists[object],
			Resync: random.IntN(8) == 0}
		next := &thing{broken: random.IntN(3) == 0}
		for range random.IntN(3) {
			next.names = append(next.names, key(100+random.IntN(5)))
		}
		switch old := exists[object]; {
		case old == nil:
			e.Type, e.New, e.Resync = informer.Added, next, false
		case e.Resync:
			e.Type, e.New, next = informer.Updated, old, old
		case random.IntN(4) == 0:
			e.Type, next = informer.Deleted, nil
		default:
			e.Type, e.New = informer.Updated, next
		}
		n.Handle(e)
		if exists[object] = next; next == nil {
			delete(exists, object)
		}
		require.Subset(t, added(), wants(object, next), "the change %d of %s, to %+v", version, object, next)
		if next != nil && next.broken {
			require.Error(t, n.Invalid.Of(object))
		}
		if random.IntN(10) == 0 { // the function mends itself, and is asked again in time
			time.Sleep(lastAskAgain)
			want := map[Key]bool{}
			for object, o := range exists {
				if o.broken {
					o.broken = false
					maps.Copy(want, wants(object, o))
				}
			}
			n.AskAgain()
			require.Subset(t, added(), want)
			for object := range exists {
				require.NoError(t, n.Invalid.Of(object))
			}
		}
	}
}

// TestPausesGrow asks an object that is gone a few times, less and less often, and then forgets it.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := newNamer(t)
		asked := 0
		n.Keys = func(*thing) []Key {
			asked++
			panic("broken")
		}
		n.Handle(informer.Event[*thing]{Type: informer.Deleted, Key: key(1), Old: &thing{}})
		require.Equal(t, 1, asked)
		n.AskAgain()
		require.Equal(t, 1, asked, "not before a second has passed")
		began := time.Now()
		for range 24 * 3600 {
			time.Sleep(time.Second)
			n.AskAgain()
			if n.Invalid.Len() == 0 {
				break
			}
		}
		require.Equal(t, 1+mostAskAgain+1, asked)
		require.Greater(t, time.Since(began), 10*time.Minute)
		_, left := n.Invalid.Example()
		require.Zero(t, left)
	})
}

// TestAnotherObjectOfTheName is not held to be invalid because of one that is gone, whose keys are named nevertheless,
// whatever happens to the other one.
func TestAnotherObjectOfTheName(t *testing.T) {
	for _, broken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, added := newNamer(t)
			before := &thing{broken: true, names: []Key{key(7)}}
			n.Handle(informer.Event[*thing]{Type: informer.Deleted, Key: key(1), Old: before})
			require.Error(t, n.Invalid.Of(key(1)))
			require.Empty(t, added())
			now := &thing{names: []Key{key(2)}, broken: broken}
			n.Handle(informer.Event[*thing]{Type: informer.Added, Key: key(1), New: now})
			require.Equal(t, broken, n.Invalid.Of(key(1)) != nil)
			for range 2 * mostAskAgain { // changes at once are no tries
				next := &thing{names: []Key{key(2)}, broken: broken}
				n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(1), Old: now, New: next})
				now = next
				n.AskAgain()
			}
			require.NotContains(t, added(), key(7))
			before.broken = false
			if !broken {
				n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(1), Old: now, New: now})
			} else {
				time.Sleep(firstAskAgain)
				n.AskAgain()
			}
			require.Contains(t, added(), key(7))
			require.Equal(t, broken, n.Invalid.Of(key(1)) != nil)
			require.Empty(t, n.gone)
		})
	}
}

// TestAStateBetweenIsRemembered: the function depends on more than the object, and no longer returns for a state that
// it has been asked about. The keys of a later one, for which it does, are named by the changes that follow.
func TestAStateBetweenIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, added := newNamer(t)
		first, second := &thing{names: []Key{key(1)}}, &thing{names: []Key{key(2)}}
		third := &thing{names: []Key{key(3)}, broken: true}
		update := func(old, now *thing) map[Key]bool {
			n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(9), Old: old, New: now})
			return added()
		}
		first.broken = true
		require.Equal(t, map[Key]bool{key(2): true}, update(first, second))
		for range 2 {
			require.Equal(t, map[Key]bool{key(2): true}, update(second, third))
		}
		time.Sleep(firstAskAgain)
		n.AskAgain()
		require.Empty(t, added(), "nothing is new")
		first.broken = false
		time.Sleep(lastAskAgain)
		n.AskAgain()
		require.Equal(t, map[Key]bool{key(1): true, key(2): true}, added())
		third.broken = false
		time.Sleep(lastAskAgain)
		n.AskAgain()
		require.Equal(t, map[Key]bool{key(1): true, key(2): true, key(3): true}, added())
		require.NoError(t, n.Invalid.Of(key(9)))
	})
}

// TestManyObjectsOfOneNameThatAreGone are not all kept.
func TestManyObjectsOfOneNameThatAreGone(t *testing.T) {
	n, _ := newNamer(t)
	for range 3 * mostGone {
		n.Handle(informer.Event[*thing]{Type: informer.Deleted, Key: key(1), Old: &thing{broken: true}})
		n.Handle(informer.Event[*thing]{Type: informer.Deleted, Key: key(2), Old: &thing{broken: true}})
	}
	require.Len(t, n.gone, 2*mostGone)
}

// TestAnUpdateThatNobodyWants names nothing, but when the states between were not asked.
func TestAnUpdateThatNobodyWants(t *testing.T) {
	n, added := newNamer(t)
	n.Wants = func(old, now *thing) bool { return len(old.names) != len(now.names) }
	one, same, two := &thing{names: []Key{key(1)}}, &thing{names: []Key{key(2)}}, &thing{names: []Key{key(1), key(2)}}
	n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(9), Old: one, New: same})
	require.Empty(t, added())
	n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(9), Old: one, New: two})
	require.Equal(t, map[Key]bool{key(1): true, key(2): true}, added())
	broken := &thing{broken: true, names: []Key{key(3)}}
	n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(9), Old: one, New: broken})
	require.Empty(t, added(), "the length is the same, and so the function is not asked")
	n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(9), Old: two, New: broken})
	require.Equal(t, map[Key]bool{key(1): true, key(2): true}, added())
	n.Handle(informer.Event[*thing]{Type: informer.Updated, Key: key(9), Old: broken, New: two})
	require.Equal(t, map[Key]bool{key(1): true, key(2): true}, added(), "it is as it was, but was not asked meanwhile")
}

// TestWhatCannotBeTaken names the keys of both states once each.
func TestWhatCannotBeTaken(t *testing.T) {
	n, _ := newNamer(t)
	var order []Key
	n.Add = func(key Key, background bool) {
		require.False(t, background)
		order = append(order, key)
	}
	n.NameInvalid = func(o *metav1.PartialObjectMetadata, named []Key) []Key {
		for _, finalizer := range o.Finalizers {
			named = append(named, Key{Name: finalizer})
		}
		return named
	}
	invalid := func(names ...string) *informer.InvalidError {
		return &informer.InvalidError{Object: &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Finalizers: names}}}
	}
	n.HandleInvalid(key(1), invalid("a", "b"), invalid("b", "c"))
	n.HandleInvalid(key(1), invalid("d"), nil)
	require.Equal(t, []Key{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}, order)
}
