package reconcile_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// province is a controller of ConfigMaps, each of which gets a Secret by every run, on an API server of several
// namespaces.
type province struct {
	*testing.T
	admin   kubernetes.Interface // of somebody whose requests have no faults
	link    *reconciletest.Link  // the controller's way
	maps    *informer.SharedIndexInformer[*corev1.ConfigMap]
	secrets *informer.SharedIndexInformer[*corev1.Secret]
	*reconcile.Controller
	manager *reconcile.Manager
	elector reconcile.Elector          // nil: none
	into    func(reconcile.Key) string // the namespace that a key's Secrets are made in; nil: its own
	needs   map[string][]string        // by the names of keys, in inProvinceOfTenants
	tells   bool                       // the Reconciler tells of the Secrets that it has made
	touches int

	mu     sync.Mutex
	runs   map[reconcile.Key]int          // guarded by mu
	faults map[string]reconciletest.Fault // guarded by mu; of what is asked for Secrets, by namespace
}

// inProvince runs fn in virtual time, on a controller that follows some of the namespaces.
func inProvince(t *testing.T, namespaces []string, followed []string, fn func(t *testing.T, p *province)) {
	t.Helper()
	inProvinceWith(t, func(*province) reconcile.Options { return reconcile.Options{} }, namespaces, followed, fn)
}

// inProvinceOfTenants is inProvince with keys that say what they need.
func inProvinceOfTenants(t *testing.T, namespaces []string, followed []string, fn func(t *testing.T, p *province)) {
	t.Helper()
	inProvinceWith(t, func(p *province) reconcile.Options {
		return reconcile.Options{Namespaces: func(key reconcile.Key) []string {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Clone(p.needs[key.Name])
		}}
	}, namespaces, followed, fn)
}

func inProvinceWith(t *testing.T, options func(*province) reconcile.Options, namespaces []string, followed []string,
	fn func(t *testing.T, p *province)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: namespaces})
		p := &province{
			T: t, admin: kubernetes.NewForConfigOrDie(server.Config()), link: server.Link(),
			runs: map[reconcile.Key]int{}, faults: map[string]reconciletest.Fault{},
		}
		p.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			p.mu.Lock()
			defer p.mu.Unlock()
			if r.Resource.Resource != "secrets" || r.Writes() {
				return nil
			}
			return p.faults[r.Namespace]
		})
		config := p.link.Config()
		config.Wrap(reconcile.TrackWrites)
		clients := kubernetes.NewForConfigOrDie(config)
		var err error
		p.maps, err = informer.NewNamespaced[*corev1.ConfigMap](clients.CoreV1().ConfigMaps, followed,
			informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		p.secrets, err = informer.NewNamespaced[*corev1.Secret](clients.CoreV1().Secrets, followed,
			informer.Options[*corev1.Secret]{})
		require.NoError(t, err)
		c, err := reconcile.NewController("province",
			reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
				namespace := key.Namespace
				if p.into != nil {
					namespace = p.into(key)
				}
				s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: key.Name + "-",
					Labels: map[string]string{"of": key.Name}}}
				made, err := clients.CoreV1().Secrets(namespace).Create(ctx, s, metav1.CreateOptions{})
				if err == nil && p.tells {
					err = reconcile.Wrote(ctx, p.secrets, made)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				p.runs[key]++
				return reconcile.Result{}, err
			}), options(p))
		require.NoError(t, err)
		p.Controller = c
		reconcile.For(c, p.maps)
		reconcile.DependsOn(c, p.secrets)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			Elector: p.elector})
		require.NoError(t, err)
		p.manager = m
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		t.Cleanup(func() {
			p.link.DelayWatches("secrets", 0)
			cancel()
			require.NoError(t, <-done)
		})
		synctest.Wait()
		fn(t, p)
	})
}

// touch changes the ConfigMap of that name, or makes it.
func (p *province) touch(namespace string) {
	p.Helper()
	p.touches++
	maps := p.admin.CoreV1().ConfigMaps(namespace)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Data: map[string]string{"touch": fmt.Sprint(p.touches)}}
	_, err := maps.Update(p.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(p.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(p, err)
	synctest.Wait()
}

// ran returns how often the key of a namespace's ConfigMap has been reconciled.
func (p *province) ran(namespace string) int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[reconcile.Key{Namespace: namespace, Name: "m"}]
}

func (p *province) fail(namespace string, f reconciletest.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[namespace] = f
}

// follow lets both informers follow these namespaces, the one that names no keys first.
func (p *province) follow(namespaces ...string) {
	p.Helper()
	require.NoError(p, p.secrets.Rescope(informer.Scope{Namespaces: namespaces,
		LabelSelector: p.secrets.Scope().LabelSelector}))
	require.NoError(p, p.maps.Rescope(informer.Scope{Namespaces: namespaces}))
	synctest.Wait()
}

// A write is waited for in the namespaces that the informer follows, and in no other.
func TestWritesAreWaitedForInTheNamespacesThatAreFollowed(t *testing.T) {
	inProvince(t, []string{"one", "two", "outside"}, []string{"one", "two"}, func(t *testing.T, p *province) {
		p.into = func(key reconcile.Key) string {
			if key.Namespace == "two" {
				return "outside"
			}
			return key.Namespace
		}
		p.link.DelayWatches("secrets", reconciletest.Never)
		for range 3 {
			p.touch("one")
			p.touch("two")
		}
		require.Equal(t, 1, p.ran("one"), "it is parked")
		require.Equal(t, 3, p.ran("two"), "nobody will see its Secrets")
		p.link.DelayWatches("secrets", 0)
		require.Equal(t, 2, p.ran("one"))
	})
}

func TestANamespaceThatIsAddedIsLearned(t *testing.T) {
	inProvince(t, []string{"one", "two"}, []string{"one"}, func(t *testing.T, p *province) {
		p.touch("two")
		require.Zero(t, p.ran("two"))
		p.follow("one", "two")
		require.Equal(t, 1, p.ran("two"))
		p.link.DelayWatches("secrets", reconciletest.Never)
		for range 3 {
			p.touch("two")
		}
		require.LessOrEqual(t, p.ran("two"), 2, "it is parked, unless the cache had seen the first Secret")
		before := p.ran("two")
		p.touch("two")
		require.Equal(t, before, p.ran("two"))
		p.link.DelayWatches("secrets", 0)
		require.Equal(t, before+1, p.ran("two"))
	})
}

// Nobody waits for what happens in a namespace that is no longer followed.
func TestANamespaceThatIsTakenAwayWakesItsKeys(t *testing.T) {
	inProvince(t, []string{"one", "two"}, []string{"one", "two"}, func(t *testing.T, p *province) {
		p.link.DelayWatches("secrets", reconciletest.Never)
		p.touch("one")
		p.touch("two")
		p.touch("one")
		p.touch("two")
		require.Equal(t, 1, p.ran("one"))
		require.Equal(t, 1, p.ran("two"))
		require.NoError(t, p.secrets.Rescope(informer.Scope{Namespaces: []string{"one"}}))
		require.Equal(t, 2, p.ran("two"), "at once")
		require.Equal(t, 1, p.ran("one"))
	})
}

// A key whose namespace is not complete in a cache waits for that, and others do not.
func TestNoRunBeforeItsNamespaceIsComplete(t *testing.T) {
	inProvince(t, []string{"one", "two"}, []string{"one"}, func(t *testing.T, p *province) {
		p.touch("one")
		p.touch("two")
		p.fail("two", reconciletest.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "",
			fmt.Errorf("no"))))
		p.follow("one", "two")
		time.Sleep(7 * time.Minute)
		require.Zero(t, p.ran("two"), "whether it has Secrets is not known")
		require.Equal(t, informer.Denied, p.secrets.HealthIn("two").State)
		p.touch("one")
		require.Equal(t, 2, p.ran("one"))

		p.fail("two", nil)
		asked := func() int { return p.secrets.HealthIn("two").Listed }
		for asked() == 0 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		require.Equal(t, 1, p.ran("two"), "as soon as it is")
	})
}

// A key without a namespace waits for all namespaces, and says which of them is not complete.
func TestAKeyWithoutANamespaceSaysWhichOneItWaitsFor(t *testing.T) {
	inProvince(t, []string{"one", "two"}, []string{"one"}, func(t *testing.T, p *province) {
		p.into = func(reconcile.Key) string { return "one" }
		p.fail("two", reconciletest.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "",
			fmt.Errorf("no"))))
		p.follow("one", "two")
		tenant := reconcile.Key{Name: "tenant"}
		p.Enqueue(tenant)
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Equal(t, "tenant has waited for 1 min: the cache of *v1.Secret may not be acted on in namespace two, "+
			"as it is incomplete or too old there; it has no version yet and has been Denied for 1 min because of 403 "+
			"Forbidden.", p.Why(tenant))
		d := p.InspectKey(tenant).Debts[0]
		require.Equal(t, "two", d.Namespace)
		require.Equal(t, string(informer.Denied), d.CacheState)
		p.fail("two", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, status.KeySettled, p.InspectKey(tenant).State)
	})
}

// A key waits for the namespaces that it needs, and for no others: here two is refused for half an hour.
func TestARefusedNamespaceHoldsBackThoseThatNeedIt(t *testing.T) {
	inProvinceOfTenants(t, []string{"one", "two"}, []string{}, func(t *testing.T, p *province) {
		p.into = func(reconcile.Key) string { return "one" }
		need := func(name string, namespaces ...string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.needs[name] = namespaces
		}
		p.needs = map[string][]string{}
		need("modest")
		need("other", "one")
		need("both", "one", "two")
		need("m", "two")
		p.fail("two", reconciletest.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "",
			fmt.Errorf("no"))))
		p.follow("one", "two")
		runs := map[string]int{}
		enqueue := func(name, namespace string) reconcile.Key {
			key := reconcile.Key{Namespace: namespace, Name: name}
			p.Enqueue(key)
			time.Sleep(time.Second)
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			runs[name] = p.runs[key]
			return key
		}
		for i := range 30 {
			enqueue("modest", "")
			enqueue("other", "")
			enqueue("both", "")
			enqueue("m", "one")
			require.Equal(t, map[string]int{"modest": i + 1, "other": i + 1, "both": 0, "m": 0}, runs)
			time.Sleep(time.Minute)
		}
		both := reconcile.Key{Name: "both"}
		require.Contains(t, p.Why(both), "the cache of *v1.Secret may not be acted on in namespace two")

		// What it no longer needs it no longer waits for, and it runs once for that.
		need("both", "one")
		enqueue("both", "")
		require.Equal(t, 1, runs["both"])
		require.Equal(t, status.KeySettled, p.InspectKey(both).State)
		require.Nil(t, p.InspectKey(both).Doubt)

		p.fail("two", nil)
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, p.ran("one"), "two may be acted on")
	})
}

// A key that needs no namespace still needs the caches that are of all of them.
func TestACacheOfAllNamespacesIsNeededByAllKeys(t *testing.T) {
	all := []string{metav1.NamespaceAll}
	inProvinceOfTenants(t, []string{"one"}, all, func(t *testing.T, p *province) {
		p.into = func(reconcile.Key) string { return "one" }
		p.fail("", reconciletest.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "",
			fmt.Errorf("no"))))
		require.NoError(t, p.secrets.Rescope(informer.Scope{Namespaces: all,
			LabelSelector: labels.SelectorFromSet(labels.Set{"of": "tenant"})}))
		tenant := reconcile.Key{Name: "tenant"}
		p.Enqueue(tenant)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, p.Why(tenant), "the cache of *v1.Secret may not be acted on, as")
		p.mu.Lock()
		require.Zero(t, p.runs[tenant])
		p.mu.Unlock()
		p.fail("", nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, status.KeySettled, p.InspectKey(tenant).State)
	})
}

// Where no namespace is followed nobody will see a write, so no key waits for it.
func TestWritesAreNotWaitedForWhereNothingIsFollowed(t *testing.T) {
	inProvince(t, []string{"one"}, []string{}, func(t *testing.T, p *province) {
		p.into, p.tells = func(reconcile.Key) string { return "one" }, true
		tenant := reconcile.Key{Name: "tenant"}
		for i := range 3 {
			p.Enqueue(tenant)
			time.Sleep(time.Second)
			synctest.Wait()
			p.mu.Lock()
			require.Equal(t, i+1, p.runs[tenant])
			p.mu.Unlock()
		}
	})
}

// A panic of Options.Namespaces is a failure of the key that it was asked for, and so is the end of the goroutine.
func TestNobodyKnowsWhichNamespacesAKeyNeeds(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("no spec") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			inProvinceWith(t, func(*province) reconcile.Options {
				return reconcile.Options{Namespaces: func(key reconcile.Key) []string {
					if key.Name == "poisoned" && broken.Load() {
						fail()
					}
					return []string{"one"}
				}}
			}, []string{"one"}, []string{"one"}, func(t *testing.T, p *province) {
				p.into = func(reconcile.Key) string { return "one" }
				broken.Store(true)
				poisoned := reconcile.Key{Name: "poisoned"}
				p.Enqueue(poisoned)
				p.Enqueue(reconcile.Key{Name: "other"})
				time.Sleep(time.Minute)
				synctest.Wait()
				if name == "panic" {
					require.Equal(t, status.KeyBackingOff, p.InspectKey(poisoned).State)
				}
				p.mu.Lock()
				require.Equal(t, map[reconcile.Key]int{{Name: "other"}: 1}, p.runs)
				p.mu.Unlock()
				broken.Store(false)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				p.mu.Lock()
				require.Equal(t, 1, p.runs[poisoned])
				p.mu.Unlock()
				require.Equal(t, status.KeySettled, p.InspectKey(poisoned).State)
			})
		})
	}
}

// What an informer asks for is learned anew when that changes.
func TestSelectorsThatChangeAreLearned(t *testing.T) {
	inProvince(t, []string{"one"}, []string{"one"}, func(t *testing.T, p *province) {
		none := labels.SelectorFromSet(labels.Set{"of": "nobody"})
		require.NoError(t, p.secrets.Rescope(informer.Scope{Namespaces: []string{"one"}, LabelSelector: none}))
		synctest.Wait()
		p.link.DelayWatches("secrets", reconciletest.Never)
		for range 3 {
			p.touch("one")
		}
		require.Equal(t, 3, p.ran("one"), "it does not list such Secrets any more")
		p.link.DelayWatches("secrets", 0)
		require.NoError(t, p.secrets.Rescope(informer.Scope{Namespaces: []string{"one"}}))
		require.NoError(t, p.secrets.WaitForSync(t.Context()))
		synctest.Wait()
		require.Len(t, slices.Collect(p.secrets.All()), 3)
		p.link.DelayWatches("secrets", reconciletest.Never)
		for range 3 {
			p.touch("one")
		}
		require.Equal(t, 4, p.ran("one"))
	})
}

// The same where it was followed by a list of all namespaces.
func TestANamespaceThatIsTakenOutOfAllWakesItsKeys(t *testing.T) {
	inProvince(t, []string{"one", "two"}, []string{metav1.NamespaceAll}, func(t *testing.T, p *province) {
		p.link.DelayWatches("secrets", reconciletest.Never)
		for range 2 {
			p.touch("one")
			p.touch("two")
		}
		require.Equal(t, 1, p.ran("two"))
		require.NoError(t, p.secrets.Rescope(informer.Scope{Namespaces: []string{"one"}}))
		require.Equal(t, 2, p.ran("two"), "at once")
	})
}

// What was asked for in one namespace says nothing of what is asked for in all of them.
func TestAllNamespacesAreLearnedAnew(t *testing.T) {
	inProvince(t, []string{"one"}, []string{"one"}, func(t *testing.T, p *province) {
		none := labels.SelectorFromSet(labels.Set{"of": "nobody"})
		require.NoError(t, p.secrets.Rescope(informer.Scope{Namespaces: []string{"one"}, LabelSelector: none}))
		require.NoError(t, p.secrets.WaitForSync(t.Context()))
		require.NoError(t, p.secrets.Rescope(informer.Scope{Namespaces: []string{metav1.NamespaceAll}}))
		require.NoError(t, p.secrets.WaitForSync(t.Context()))
		synctest.Wait()
		p.link.DelayWatches("secrets", reconciletest.Never)
		for range 3 {
			p.touch("one")
		}
		require.Equal(t, 1, p.ran("one"), "it is parked")
	})
}

// A namespace in which the server does not answer delays nobody who waits for another one.
func TestANamespaceThatHangsDelaysNoOther(t *testing.T) {
	inProvince(t, []string{"one", "two"}, []string{"one", "two"}, func(t *testing.T, p *province) {
		p.link.DelayWatches("secrets", reconciletest.Never)
		p.fail("one", reconciletest.Delay(time.Hour, 0))
		for range 2 {
			p.touch("one")
			p.touch("two")
		}
		require.Equal(t, 1, p.ran("two"))
		time.Sleep(15 * time.Second)
		require.Equal(t, 2, p.ran("two"), "its cache has listed anew")
		require.Equal(t, 1, p.ran("one"))
		require.Equal(t, informer.Stale, p.secrets.HealthIn("one").State)
		require.Equal(t, informer.Live, p.secrets.HealthIn("two").State)
	})
}
