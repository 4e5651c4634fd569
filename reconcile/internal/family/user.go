package family

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
)

// Key is the namespace and name of an object.
type Key = informer.Key

// User is what a family knows of a controller that uses it. Nothing in it is changed once the family runs.
type User[N comparable, T any] struct {
	// Ledger is that of the controller, which lets its keys wait.
	Ledger *debts.Ledger
	// Named reports whether an object of the controller names an informer. It calls no user code.
	Named func(N) bool
	// NamedBy returns the names that the object of a key has now. It calls user code.
	NamedBy func(Key) []N
	// Open makes an informer a source of the controller, before it runs, with the cache that the ledger has for it. It
	// calls user code, and several goroutines call it at once.
	Open func(*informer.SharedIndexInformer[T], *debts.Cache) error
	// Close undoes Open: the informer was given up, or could not be opened. It is called even if Open has not returned.
	Close func(*informer.SharedIndexInformer[T], *debts.Cache)
	// Arrived queues the keys whose objects name an informer that may be acted on, and which have run without it.
	Arrived func(N)
	// Ready is told of a cache that may be acted on, whenever a key is about to.
	Ready func(*debts.Cache)

	family *Family[N, T] // set by Use
}

// Changed is told what the object of a key named before, and what it names now. A key that waits for what its object no
// longer names goes on.
func (u *User[N, T]) Changed(key Key, before, now []N) {
	for _, name := range now {
		if !slices.Contains(before, name) && u.family.running(name) == nil {
			u.family.look(name)
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			u.family.look(name)
			u.needsNoLonger(key, name)
		}
	}
}

func (u *User[N, T]) needsNoLonger(key Key, name N) {
	if !u.Ledger.Owes() {
		return
	}
	if m := u.family.running(name); m != nil {
		u.Ledger.AwaitNoLonger(key, m.caches[u], Key{})
	}
}

// Await lets a key wait for each informer that its object names and that may not be acted on. It does not wait for one
// that cannot be made, or that the server refuses: Get says why.
func (u *User[N, T]) Await(key Key) {
	for _, name := range u.NamedBy(key) {
		for {
			m, err := u.family.member(name)
			if err != nil {
				break
			}
			switch ca := m.caches[u]; {
			case ca.Ready(metav1.NamespaceAll):
				u.Ready(ca)
			case !ca.MayPass():
				u.Ledger.AwaitReady(key, ca, Key{})
			}
			if !slices.Contains(u.NamedBy(key), name) { // or nothing would tell of a change that came before the debt
				u.needsNoLonger(key, name)
				break
			}
			if u.family.running(name) == m { // else it was given up, and came again
				break
			}
		}
	}
}

// Caches returns the caches of the informers that the object of a key names, of those that run.
func (u *User[N, T]) Caches(key Key) (list []*debts.Cache) {
	for _, name := range u.NamedBy(key) {
		if m := u.family.running(name); m != nil {
			list = append(list, m.caches[u])
		}
	}
	return list
}
