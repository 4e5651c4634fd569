package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	showing "github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// estate is a program with a controller of ConfigMaps, the tenants, each of which names namespaces. It has an informer
// of the Secrets of each namespace that is named.
type estate struct {
	*testing.T
	admin   kubernetes.Interface // of somebody whose requests have no faults
	clients kubernetes.Interface // the controller's
	link    *reconciletest.Link  // the controller's way; nil on a real cluster
	config  *rest.Config         // of the controller
	home    string               // the namespace of the tenants
	settle  func()               // waits until nothing moves any more; does nothing on a real cluster
	tenants *informer.SharedIndexInformer[*corev1.ConfigMap]
	secrets *reconcile.Dynamic[string, *corev1.Secret]
	*reconcile.Controller
	manager *reconcile.Manager
	act     func(ctx context.Context, t *corev1.ConfigMap) error // in each run, after it has read; nil: nothing
	options reconcile.Options
	plain   bool                   // Secrets are listed by plain lists
	reports bool                   // the errors of Get are not those of the runs
	make    func(namespace string) // is called before an informer is made; nil: nothing is
	elector reconcile.Elector
	made    atomic.Int64 // how many informers there have ever been
	// untracked lets informers use a client that TrackWrites does not see, and subject lets For take them; what Watches
	// is given waits for blocked if the label says so.
	untracked, subject atomic.Bool
	untrackedTenants   bool
	blocked            atomic.Pointer[chan struct{}]
	losing             atomic.Int64 // the answer to one of so many writes is lost; 0: to none
	writes             atomic.Int64
	cancel             context.CancelFunc
	done               chan error

	mu sync.Mutex
	// Guarded by mu. runs has what each run of a tenant has seen: the Secrets of the namespaces that it names, or
	// errors. faults are those of lists and watches of Secrets, by namespace.
	runs   map[string][]string
	faults map[string]reconciletest.Fault
}

const landlord = "landlord" // the namespace of the tenants

// namespacesOf returns what a tenant names.
func namespacesOf(t *corev1.ConfigMap) []string {
	return strings.FieldsFunc(t.Data["namespaces"], func(r rune) bool { return r == ',' })
}

// inEstate runs fn in virtual time, beside a program that runs.
func inEstate(t *testing.T, namespaces []string, fn func(e *estate)) {
	t.Helper()
	inEstateWith(t, namespaces, func(*estate) {}, fn)
}

// inEstateWith is inEstate for a program that is prepared before it runs.
func inEstateWith(t *testing.T, namespaces []string, prepare, fn func(e *estate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t, reconciletest.NewServer(t, reconciletest.Options{Namespaces: append(namespaces, landlord)}))
		prepare(e)
		e.start()
		fn(e)
		require.NoError(t, e.stop())
	})
}

// inEstateThatEnds is inEstate for a program that ends by itself.
func inEstateThatEnds(t *testing.T, namespaces []string, fn func(e *estate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t, reconciletest.NewServer(t, reconciletest.Options{Namespaces: append(namespaces, landlord)}))
		e.start()
		fn(e)
	})
}

// newEstate makes a program that does not run yet.
func newEstate(t *testing.T, server *reconciletest.Server) *estate {
	link := server.Link()
	e := newEstateWith(t, server.Config(), link.Config(), landlord)
	e.link, e.settle = link, synctest.Wait
	link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case r.Resource.Resource != "secrets":
			return nil
		case !r.Writes():
			return e.faults[r.Namespace]
		}
		if of := e.losing.Load(); of > 0 && e.writes.Add(1)%of == 0 {
			return reconciletest.LoseAnswer
		}
		return nil
	})
	return e
}

func newEstateWith(t *testing.T, admin, config *rest.Config, home string) *estate {
	return &estate{T: t, admin: kubernetes.NewForConfigOrDie(admin), config: config, home: home, settle: func() {},
		runs: map[string][]string{}, faults: map[string]reconciletest.Fault{}, done: make(chan error, 1)}
}

func (e *estate) start() {
	e.Helper()
	cfg, err := reconcile.ClientConfig(e.config)
	require.NoError(e, err)
	e.clients = kubernetes.NewForConfigOrDie(cfg)
	of := e.clients
	if e.untrackedTenants {
		of = kubernetes.NewForConfigOrDie(e.config)
	}
	e.tenants, err = informer.New[*corev1.ConfigMap](of.CoreV1().ConfigMaps(e.home),
		informer.Options[*corev1.ConfigMap]{Name: "tenants"})
	require.NoError(e, err)
	client, err := informer.NewResource[*corev1.Secret](cfg, corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.ResourceOptions{})
	require.NoError(e, err)
	direct, err := informer.NewResource[*corev1.Secret](e.config, corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.ResourceOptions{})
	require.NoError(e, err)
	e.secrets, err = reconcile.NewDynamic("secrets of tenants",
		func(namespace string) (*informer.SharedIndexInformer[*corev1.Secret], error) {
			e.made.Add(1)
			if e.make != nil {
				e.make(namespace)
			}
			from := client
			if e.untracked.Load() {
				from = direct
			}
			return informer.New(from.In(namespace), informer.Options[*corev1.Secret]{Name: "secrets in " + namespace,
				DisableWatchList: e.plain})
		})
	require.NoError(e, err)
	e.Controller, err = reconcile.NewController("estate", reconcile.Func(e.reconcile), e.options)
	require.NoError(e, err)
	reconcile.For(e.Controller, e.tenants)
	reconcile.Needs(e.Controller, e.tenants, e.secrets, namespacesOf,
		func(inf *informer.SharedIndexInformer[*corev1.Secret]) {
			if e.subject.Load() {
				reconcile.For(e.Controller, inf)
			}
			reconcile.Watches(e.Controller, inf, func(s *corev1.Secret) []reconcile.Key {
				switch s.Labels["tenant"] {
				case "panic":
					panic("no")
				case "block":
					<-*e.blocked.Load()
				}
				return []reconcile.Key{{Namespace: e.home, Name: s.Labels["tenant"]}}
			})
		})
	e.manager, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{e.Controller},
		Elector: e.elector, ErrorTexts: true})
	require.NoError(e, err)
	ctx, cancel := context.WithCancel(e.Context())
	e.cancel = cancel
	go func() { e.done <- e.manager.Run(ctx) }()
	e.settle()
}

func (e *estate) stop() error {
	if e.link != nil {
		e.link.DelayWatches("secrets", 0)
		defer e.link.Close()
	}
	e.cancel()
	return <-e.done
}

func (e *estate) reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	if key.Name == "" {
		return reconcile.Result{}, nil // a Secret without a tenant
	}
	tenant, ok := e.tenants.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	var saw []string
	var errs []error
	for _, namespace := range namespacesOf(tenant) {
		switch inf, err := e.secrets.Get(namespace); {
		case err != nil:
			if !e.reports {
				errs = append(errs, err)
			}
			saw = append(saw, err.Error())
		default:
			saw = append(saw, namespace+":"+strings.Join(namesOf(inf), "+"))
		}
	}
	e.mu.Lock()
	e.runs[key.Name] = append(e.runs[key.Name], strings.Join(saw, " "))
	e.mu.Unlock()
	if e.act != nil {
		errs = append(errs, e.act(ctx, tenant))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

func namesOf(inf *informer.SharedIndexInformer[*corev1.Secret]) (names []string) {
	for _, key := range inf.Keys() {
		names = append(names, key.Name)
	}
	slices.Sort(names)
	return names
}

func (e *estate) fail(namespace string, f reconciletest.Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults[namespace] = f
}

// tenant makes the tenant of that name, or changes it, so that it names namespaces; without one it deletes it.
func (e *estate) tenant(name string, namespaces ...string) {
	e.Helper()
	maps := e.admin.CoreV1().ConfigMaps(e.home)
	if len(namespaces) == 0 {
		require.NoError(e, maps.Delete(e.Context(), name, metav1.DeleteOptions{}))
		e.settle()
		return
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: map[string]string{"namespaces": strings.Join(namespaces, ",")}}
	_, err := maps.Update(e.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(e.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(e, err)
	e.settle()
}

func (e *estate) secret(namespace, name, tenant string) {
	e.Helper()
	_, err := e.admin.CoreV1().Secrets(namespace).Create(e.Context(), secretOf(name, tenant), metav1.CreateOptions{})
	require.NoError(e, err)
	e.settle()
}

func secretOf(name, tenant string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tenant": tenant}}}
}

// saw returns what the runs of a tenant have seen since saw was called last, without repetitions.
func (e *estate) saw(tenant string) []string {
	e.settle()
	e.mu.Lock()
	defer e.mu.Unlock()
	runs := e.runs[tenant]
	delete(e.runs, tenant)
	return slices.Compact(runs)
}

func tenantKey(name string) reconcile.Key { return nameIn(landlord, name) }

func nameIn(namespace, name string) reconcile.Key {
	return reconcile.Key{Namespace: namespace, Name: name}
}

func (e *estate) family() status.Informer {
	e.Helper()
	for _, inf := range e.manager.Inspect().Informers {
		if inf.Name == "secrets of tenants" {
			return inf
		}
	}
	require.Fail(e, "the family is not among the informers")
	return status.Informer{}
}

// goroutinesOfBubble counts those of the caller's bubble.
func goroutinesOfBubble() int {
	stacks := make([]byte, 16<<20)
	all := string(stacks[:runtime.Stack(stacks, true)])
	_, mine, _ := strings.Cut(all, "synctest bubble ") // the caller's goroutine is the first
	mine, _, _ = strings.Cut(mine, "]")
	return strings.Count(all, "synctest bubble "+mine+"]")
}

// page is what a scrape is answered.
func page(c *showing.Collector) string {
	answer := httptest.NewRecorder()
	c.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func TestAnInformerComesAndGoesWithItsNames(t *testing.T) {
	inEstate(t, []string{"a", "b"}, func(e *estate) {
		e.secret("a", "old", "one")
		require.Zero(t, e.made.Load(), "nobody has named it")
		_, err := e.secrets.Get("a")
		require.ErrorIs(t, err, informer.ErrNotNamed)
		before := goroutinesOfBubble()

		e.tenant("one", "a")
		require.Equal(t, []string{"a:old"}, e.saw("one"), "never without it")
		e.secret("a", "new", "one")
		require.Equal(t, []string{"a:new+old"}, e.saw("one"), "its objects name keys")
		e.tenant("two", "a", "b")
		require.Equal(t, []string{"a:new+old b:"}, e.saw("two"))
		require.EqualValues(t, 2, e.made.Load(), "one for each namespace, whoever names it")
		require.Equal(t, 2, e.family().Objects)
		shown := showing.New(showing.Options{ControllerRuntimeNames: true})
		shown.Informer(e.secrets)
		require.Contains(t, page(shown), `thermostat_informer_objects{informer="secrets of tenants"} 2`)
		require.Len(t, e.family().Namespaces, 2)

		e.tenant("one")
		e.tenant("two", "b")
		require.Equal(t, []string{"b:"}, e.saw("two"))
		_, err = e.secrets.Get("a")
		require.ErrorIs(t, err, informer.ErrNotNamed)
		require.Len(t, e.family().Namespaces, 1)
		e.tenant("two")
		synctest.Wait()
		require.Equal(t, before, goroutinesOfBubble(), "all of them have ended")
		require.Zero(t, e.family().Objects)

		e.saw("one")
		e.secret("a", "newer", "one")
		require.Empty(t, e.saw("one"), "it is followed no longer")
		e.tenant("one", "a")
		require.Equal(t, []string{"a:new+newer+old"}, e.saw("one"), "and is again")
	})
}

var missing = reconciletest.AnswerWith(apierrors.NewGenericServerResponse(http.StatusNotFound, "list",
	corev1.Resource("secrets"), "", "", 0, false))

// A kind that is not installed is told to the runs of those that name it, and holds back nobody. When it is installed
// they run again.
func TestAKindThatIsMissing(t *testing.T) {
	inEstateWith(t, []string{"a", "b"}, func(e *estate) { e.reports = true }, func(e *estate) {
		e.fail("b", func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
			time.Sleep(time.Second / 2)
			return missing(ctx, serve)
		})
		e.secret("b", "s", "bad")
		e.tenant("bad", "a", "b")
		e.tenant("good", "a")
		require.Equal(t, []string{"a:"}, e.saw("good"))
		require.Empty(t, e.saw("bad"), "nothing is known yet")
		time.Sleep(2 * time.Second)
		saw := e.saw("bad")
		require.Len(t, saw, 1)
		require.Contains(t, saw[0], "a: secrets of tenants: b: ")
		require.Contains(t, saw[0], "(Missing)")
		require.Contains(t, saw[0], "the server could not find the requested resource")
		asked := len(e.link.Requests())
		time.Sleep(10 * time.Minute)
		require.Empty(t, e.saw("bad"), "it has said all there is to say")
		require.Less(t, len(e.link.Requests())-asked, 200, "no busy loop")
		require.Equal(t, status.KeySettled, e.InspectKey(tenantKey("bad")).State)
		require.Contains(t, e.Why(tenantKey("bad")), "has been Missing for 10 min")
		require.Empty(t, e.manager.Inspect().NotReady, "one kind says nothing about the process")
		require.Equal(t, 1, e.family().Unknown)
		require.Equal(t, "Missing", e.family().Namespaces[1].State)
		_, err := e.secrets.Get("b")
		require.ErrorIs(t, err, informer.ErrNotKnown)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		e.tenant("late", "b")
		require.Len(t, e.saw("late"), 1, "at once")

		e.fail("b", nil) // the definition is installed
		time.Sleep(time.Minute)
		saw = e.saw("bad")
		require.Equal(t, "a: b:s", saw[len(saw)-1], "without a restart")
		require.Equal(t, []string{"b:s"}, e.saw("late"), "although none of the objects is its own")
		time.Sleep(time.Hour)
		require.Empty(t, e.saw("late"))
	})
}

// A key whose runs fail since a kind is missing comes back at the pace of its failures, and at once when it need not
// fail any more.
func TestAKindThatIsMissingForLong(t *testing.T) {
	inEstate(t, []string{"a"}, func(e *estate) {
		e.fail("a", reconciletest.Refuse(apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no"))))
		e.tenant("one", "a")
		time.Sleep(time.Hour)
		e.saw("one")
		k := e.InspectKey(tenantKey("one"))
		require.Equal(t, status.KeyBackingOff, k.State)
		require.Less(t, k.Failures, 30)
		e.fail("a", nil)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a:"}, e.saw("one"))
	})
}

// A server that does not answer holds back the keys that name the informer, until they name it no longer.
func TestAnInformerThatIsSlowHoldsBackThoseThatNameIt(t *testing.T) {
	inEstate(t, []string{"a", "b"}, func(e *estate) {
		e.fail("b", reconciletest.Delay(time.Hour, 0))
		e.tenant("bad", "a", "b")
		e.tenant("third", "b")
		e.tenant("good", "a")
		require.Equal(t, []string{"a:"}, e.saw("good"))
		time.Sleep(10 * time.Minute)
		require.Empty(t, e.saw("bad"))
		require.Equal(t, status.KeyParked, e.InspectKey(tenantKey("bad")).State)
		require.Contains(t, e.Why(tenantKey("bad")), "landlord/bad has waited for 10 min: the cache of secrets in b "+
			"may not be acted on, as it is incomplete or too old; it has no version yet and has been ")
		e.tenant("bad", "a")
		require.Equal(t, []string{"a:"}, e.saw("bad"))
		require.Empty(t, e.saw("third"))
	})
}

// An object that is deleted need not stay since the kind that it names was removed before it.
func TestAnObjectIsLetGoWhoseKindIsMissing(t *testing.T) {
	inEstateWith(t, []string{"a"}, func(e *estate) {
		const finalizer = "example.com/tenant"
		e.reports = true
		e.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
			_, err := e.secrets.Get("a")
			if tenant.DeletionTimestamp == nil || !apierrors.IsNotFound(err) {
				return err
			}
			_, _, err = objects.Finalize(ctx, e.clients.CoreV1().ConfigMaps(landlord), tenant, finalizer,
				func(context.Context) (bool, error) { return true, nil })
			return err
		}
		e.faults["a"] = missing
		_, err := e.admin.CoreV1().ConfigMaps(landlord).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "one", Finalizers: []string{finalizer}},
			Data:       map[string]string{"namespaces": "a"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}, func(e *estate) {
		time.Sleep(time.Minute)
		e.tenant("one")
		time.Sleep(time.Minute)
		_, err := e.admin.CoreV1().ConfigMaps(landlord).Get(t.Context(), "one", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.Empty(t, e.family().Namespaces)
	})
}

// What a call tells of an informer that was given up meanwhile is not waited for, and the error says why.
func TestAWriteThatIsToldOfAnInformerThatWasGivenUp(t *testing.T) {
	inEstate(t, []string{"a", "b"}, func(e *estate) {
		told := make(chan error, 100)
		e.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
			inf, err := e.secrets.Get("a")
			if err != nil {
				return nil
			}
			tenant = tenant.DeepCopy()
			tenant.Data["namespaces"] = "b"
			_, err = e.admin.CoreV1().ConfigMaps(landlord).Update(ctx, tenant, metav1.UpdateOptions{})
			require.NoError(t, err)
			time.Sleep(time.Second)
			own := secretOf("own", tenant.Name)
			own.UID, own.ResourceVersion = "u", "7"
			told <- reconcile.Wrote(ctx, inf, own)
			return nil
		}
		e.tenant("one", "a")
		time.Sleep(time.Minute)
		require.ErrorContains(t, <-told, "informer secrets in a is no source of controller estate: if it is one of a "+
			"Dynamic, no object has named it since Get returned it")
	})
}

// Informers that come make their requests through TrackWrites, and one that stays does not: that is the same mistake
// as among those that stay.
func TestAnInformerThatComesWithTrackWritesBesideOneWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t, reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"a", landlord}}))
		e.untrackedTenants = true
		e.start()
		e.tenant("one", "a")
		select {
		case err := <-e.done:
			require.ErrorContains(t, err, "informer tenants, whose requests do not pass TrackWrites")
		case <-time.After(time.Hour):
			require.Fail(t, "it goes on")
		}
	})
}

// The error of an informer that cannot be made is that of Get, so that Reconcile can report it.
func TestAnInformerThatCannotBeMade(t *testing.T) {
	inEstate(t, []string{"a"}, func(e *estate) {
		e.tenant("bad", "a", "Not A Namespace")
		e.tenant("good", "a")
		require.Equal(t, []string{"a:"}, e.saw("good"))
		time.Sleep(time.Hour)
		saw := e.saw("bad")
		require.Len(t, saw, 1)
		require.Contains(t, saw[0], "a: secrets of tenants: the informer of Not A Namespace: ")
		require.Less(t, e.made.Load(), int64(60), "it is tried at the pace of a key that fails")
		require.Equal(t, status.KeyBackingOff, e.InspectKey(tenantKey("bad")).State)
		e.tenant("bad", "a")
		require.Equal(t, []string{"a:"}, e.saw("bad"))
	})
}

// An informer that is opened for an object which has gone meanwhile is given up, whoever looks first.
func TestAnInformerThatIsOpenedTooLate(t *testing.T) {
	inEstate(t, []string{"a", "b", "c"}, func(e *estate) {
		e.make = func(namespace string) {
			if namespace == "a" {
				require.NoError(e, e.admin.CoreV1().ConfigMaps(landlord).Delete(t.Context(), "one",
					metav1.DeleteOptions{}))
				time.Sleep(time.Second)
			}
		}
		for range 40 {
			e.tenant("one", "a", "b", "c")
			time.Sleep(time.Minute)
			require.Empty(t, e.family().Namespaces)
		}
	})
}

// A write to an informer that its key does not name, and that is refused, does not hold the key back. If the key names
// it later, it sees the write.
func TestAWriteToAnInformerThatOthersName(t *testing.T) {
	inEstateWith(t, []string{"a", "b"}, func(e *estate) { e.plain = true }, func(e *estate) {
		forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no"))
		var wrote atomic.Bool
		e.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
			if tenant.Name != "two" || wrote.Swap(true) {
				return nil
			}
			_, err := e.clients.CoreV1().Secrets("a").Create(ctx, secretOf("own", ""), metav1.CreateOptions{})
			return err
		}
		e.fail("a", reconciletest.AnswerWith(forbidden))
		e.tenant("one", "a")
		time.Sleep(time.Second)
		e.fail("a", reconciletest.Delay(0, 10*time.Second)) // the Role is there, and the list from before the write
		for begun := e.secrets.Health().Lists; e.secrets.Health().Lists == begun; {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		e.link.DelayWatches("secrets", time.Hour)
		e.tenant("two", "b")
		require.True(t, wrote.Load())
		e.Enqueue(tenantKey("two"))
		synctest.Wait()
		require.Equal(t, status.KeySettled, e.InspectKey(tenantKey("two")).State)
		e.fail("a", nil)
		e.tenant("two", "b", "a")
		time.Sleep(time.Minute)
		saw := e.saw("two")
		require.Equal(t, "b: a:own", saw[len(saw)-1])
		require.NotContains(t, saw, "b: a:", "never without it")
		saw = e.saw("one")
		require.Equal(t, "a:own", saw[len(saw)-1], "it has been told until then that a is refused")
		require.NotContains(t, saw, "a:")
	})
}

// What a key has written to an informer that is given up is waited for no longer. One that comes again shows it.
func TestOwnWritesToWhatIsGivenUpAndTakenAgain(t *testing.T) {
	inEstate(t, []string{"a", "b"}, func(e *estate) {
		e.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
			if inf, err := e.secrets.Get("a"); err != nil || inf.Len() > 0 {
				return nil
			}
			_, err := e.clients.CoreV1().Secrets("a").Create(ctx, secretOf("own", tenant.Name), metav1.CreateOptions{})
			return err // a second one would be a conflict
		}
		e.link.DelayWatches("secrets", time.Hour)
		e.tenant("one", "a", "b")
		require.Equal(t, []string{"a: b:"}, e.saw("one"))
		e.Enqueue(tenantKey("one"))
		require.Empty(t, e.saw("one"), "it waits for its write")
		require.Equal(t, status.KeyParked, e.InspectKey(tenantKey("one")).State)

		e.tenant("one", "b") // a is given up, and with it the debt
		require.Equal(t, []string{"b:"}, e.saw("one"), "at once")
		e.tenant("one", "b", "a")
		require.Equal(t, []string{"b: a:own"}, e.saw("one"), "never without it")

		// While the request is under way.
		require.NoError(t, e.admin.CoreV1().Secrets("a").Delete(t.Context(), "own", metav1.DeleteOptions{}))
		e.tenant("one", "b")
		e.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb == "create" {
				return reconciletest.Delay(2*time.Second, 2*time.Second)
			}
			return nil
		})
		e.saw("one")
		e.tenant("one", "b", "a")
		require.Equal(t, []string{"b: a:"}, e.saw("one"))
		time.Sleep(time.Second)
		e.tenant("one", "b")
		e.tenant("one", "b", "a")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"b: a:own"}, e.saw("one"), "never without it")
	})
}

// While the answer to a write is lost, an informer that is given up and comes again decides.
func TestALostAnswerOfWhatIsGivenUpAndTakenAgain(t *testing.T) {
	inEstate(t, []string{"a", "b"}, func(e *estate) {
		var lost atomic.Bool
		e.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Verb == "create" && !lost.Swap(true) {
				return reconciletest.LoseAnswer
			}
			return nil
		})
		e.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
			if inf, err := e.secrets.Get("a"); err != nil || inf.Len() > 0 {
				return nil
			}
			_, err := e.clients.CoreV1().Secrets("a").Create(ctx, secretOf("own", tenant.Name), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				t.Error("it has run on a cache from before its write")
			}
			return err
		}
		e.link.DelayWatches("secrets", time.Hour)
		e.tenant("one", "a", "b")
		e.tenant("one", "b")
		e.tenant("one", "b", "a")
		time.Sleep(time.Minute)
		saw := e.saw("one")
		require.Equal(t, "b: a:own", saw[len(saw)-1])
	})
}

func TestSeveralControllersShareAFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"a", "b"}})
		cfg, err := reconcile.ClientConfig(server.Config())
		require.NoError(t, err)
		admin := kubernetes.NewForConfigOrDie(server.Config())
		client, err := informer.NewResource[*corev1.Secret](cfg, corev1.SchemeGroupVersion.WithResource("secrets"),
			informer.ResourceOptions{})
		require.NoError(t, err)
		var made atomic.Int64
		family, err := reconcile.NewDynamic("family",
			func(namespace string) (*informer.SharedIndexInformer[*corev1.Secret], error) {
				made.Add(1)
				return informer.New(client.In(namespace), informer.Options[*corev1.Secret]{Name: namespace})
			})
		require.NoError(t, err)
		maps, err := informer.New[*corev1.ConfigMap](kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("a"),
			informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		pods, err := informer.New[*corev1.Pod](kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("a"),
			informer.Options[*corev1.Pod]{})
		require.NoError(t, err)
		controller := func(name string) *reconcile.Controller {
			c, err := reconcile.NewController(name,
				reconcile.Func(func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
					_, err := family.Get("b")
					if err != nil {
						t.Error(err)
					}
					return reconcile.Result{}, err
				}), reconcile.Options{})
			require.NoError(t, err)
			return c
		}
		one, two := controller("one"), controller("two")
		reconcile.For(one, maps)
		reconcile.Needs(one, maps, family, func(*corev1.ConfigMap) []string { return []string{"b"} }, nil)
		reconcile.For(two, pods)
		reconcile.Needs(two, pods, family, func(*corev1.Pod) []string { return []string{"b", "b"} }, nil)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{one, two}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()

		object := metav1.ObjectMeta{Name: "x"}
		_, err = admin.CoreV1().ConfigMaps("a").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: object},
			metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = admin.CoreV1().Pods("a").Create(t.Context(), &corev1.Pod{ObjectMeta: object,
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.EqualValues(t, 1, made.Load())
		require.NoError(t, admin.CoreV1().ConfigMaps("a").Delete(t.Context(), "x", metav1.DeleteOptions{}))
		synctest.Wait()
		_, err = family.Get("b")
		require.NoError(t, err, "the other one names it")
		require.Contains(t, two.Inspect().Sources, "Needs family")
		cancel()
		require.NoError(t, <-done)
		_, err = family.Get("b")
		require.ErrorIs(t, err, informer.ErrStopped)
		require.Equal(t, informer.Stopped, family.Health().State)
	})
}

func TestMistakesWithDynamic(t *testing.T) {
	type secrets = informer.SharedIndexInformer[*corev1.Secret]
	_, err := reconcile.NewDynamic[string, *corev1.Secret]("", nil)
	require.ErrorContains(t, err, "the name is empty")
	require.ErrorContains(t, err, "the function that makes the informers is nil")

	nothing := func(context.Context, reconcile.Key) (reconcile.Result, error) { return reconcile.Result{}, nil }
	newController := func() *reconcile.Controller {
		c, err := reconcile.NewController("c", reconcile.Func(nothing), reconcile.Options{})
		require.NoError(t, err)
		return c
	}
	clients := kubernetes.NewForConfigOrDie(reconciletest.NewServer(t, reconciletest.Options{}).Config())
	maps, err := informer.New[*corev1.ConfigMap](clients.CoreV1().ConfigMaps(""), informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	family, err := reconcile.NewDynamic("family", func(string) (*secrets, error) { return nil, nil })
	require.NoError(t, err)
	none := func(*corev1.ConfigMap) []string { return nil }

	c := newController()
	reconcile.Needs[*corev1.ConfigMap](c, nil, family, none, nil)
	reconcile.Needs[*corev1.ConfigMap, string, *corev1.Secret](c, maps, nil, none, nil)
	reconcile.Needs(c, maps, family, nil, nil)
	reconcile.Needs(c, maps, family, none, nil)
	reconcile.Needs(c, maps, family, none, nil)
	_, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	for _, wrong := range []string{"Needs: the informer is nil", "Needs: the Dynamic is nil", "the function is nil",
		"Needs was called twice for family", "is no source of the controller: call For"} {
		require.ErrorContains(t, err, wrong)
	}

	family, err = reconcile.NewDynamic("family", func(string) (*secrets, error) { return nil, nil })
	require.NoError(t, err)
	c = newController()
	reconcile.For(c, maps)
	reconcile.Needs(c, maps, family, none, nil)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(t, err)
	d := newController()
	reconcile.For(d, maps)
	reconcile.Needs(d, maps, family, none, nil)
	_, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{d}})
	require.ErrorContains(t, err, "Needs was called after NewManager")
	reconcile.Needs(c, maps, family, none, nil)
	require.ErrorContains(t, m.Run(t.Context()), "Needs was called after NewManager")

	one, two := newController(), newController()
	family, err = reconcile.NewDynamic("family", func(string) (*secrets, error) { return nil, nil })
	require.NoError(t, err)
	for _, c := range []*reconcile.Controller{one, two} {
		reconcile.For(c, maps)
		reconcile.Needs(c, maps, family, none, nil)
	}
	_, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{one}})
	require.ErrorContains(t, err, "family is also needed by controller \"c\", which is none of")
}

// An informer that runs already, and whose objects name something, is told as a mistake by Run.
func TestNeedsOfAnInformerThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"a"}})
		clients := kubernetes.NewForConfigOrDie(server.Config())
		_, err := clients.CoreV1().ConfigMaps("a").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		maps, err := informer.New[*corev1.ConfigMap](clients.CoreV1().ConfigMaps("a"),
			informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- maps.Run(ctx) }()
		require.NoError(t, maps.WaitForSync(ctx))

		type secrets = informer.SharedIndexInformer[*corev1.Secret]
		family, err := reconcile.NewDynamic("family", func(string) (*secrets, error) { return nil, errors.New("none") })
		require.NoError(t, err)
		c, err := reconcile.NewController("c", reconcile.Func(func(context.Context, reconcile.Key) (reconcile.Result,
			error) {
			return reconcile.Result{}, nil
		}), reconcile.Options{})
		require.NoError(t, err)
		reconcile.For(c, maps)
		reconcile.Needs(c, maps, family, func(*corev1.ConfigMap) []string { return []string{"b"} }, nil)
		synctest.Wait()
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		require.ErrorIs(t, m.Run(ctx), informer.ErrStarted)
		stop()
		require.NoError(t, <-done)
	})
}

// What the function of NewDynamic must not return is the error of the keys, and does not end the Manager.
func TestMistakesWithInformersThatCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"a"}})
		clients := kubernetes.NewForConfigOrDie(server.Config())
		maps, err := informer.New[*corev1.ConfigMap](clients.CoreV1().ConfigMaps("a"),
			informer.Options[*corev1.ConfigMap]{Name: "maps"})
		require.NoError(t, err)
		newInformer := func() *informer.SharedIndexInformer[*corev1.ConfigMap] {
			inf, err := informer.New[*corev1.ConfigMap](clients.CoreV1().ConfigMaps("a"),
				informer.Options[*corev1.ConfigMap]{Name: "other"})
			require.NoError(t, err)
			return inf
		}
		same, running := newInformer(), newInformer()
		family, err := reconcile.NewDynamic("family",
			func(name string) (*informer.SharedIndexInformer[*corev1.ConfigMap], error) {
				switch name {
				case "nil":
					return nil, nil
				case "panic":
					panic("no")
				case "the manager's":
					return maps, nil
				case "same", "same again":
					return same, nil
				case "running":
					return running, nil
				case "a share":
					return informer.New[*corev1.ConfigMap](clients.CoreV1().ConfigMaps("a"),
						informer.Options[*corev1.ConfigMap]{Shard: noShard{}})
				}
				return newInformer(), errors.New("no such kind")
			})
		require.NoError(t, err)
		failed := map[string]string{}
		c, err := reconcile.NewController("c",
			reconcile.Func(func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
				m, ok := maps.Get(key)
				if !ok {
					return reconcile.Result{}, nil
				}
				_, err := family.Get(m.Data["needs"])
				return reconcile.Result{}, err
			}), reconcile.Options{OnRun: func(_ string, key reconcile.Key, run status.Run) {
				if run.Error != nil {
					failed[key.Name] = run.Error.Text
				}
			}})
		require.NoError(t, err)
		reconcile.For(c, maps)
		reconcile.Needs(c, maps, family, func(m *corev1.ConfigMap) []string { return []string{m.Data["needs"]} }, nil)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			ErrorTexts: true})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done, ran := make(chan error, 1), make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		go func() { ran <- running.Run(ctx) }()
		object := func(name, needs string) {
			_, err := clients.CoreV1().ConfigMaps("a").Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"needs": needs}},
				metav1.CreateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		for i, needs := range []string{"nil", "panic", "the manager's", "same", "same again", "other"} {
			object(fmt.Sprint("m-", i), needs)
		}
		for _, name := range []string{"m-3", "m-4"} {
			require.NoError(t, clients.CoreV1().ConfigMaps("a").Delete(t.Context(), name, metav1.DeleteOptions{}))
			synctest.Wait()
		}
		object("m-6", "same")
		object("m-7", "running")
		object("m-8", "a share")
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-ran)
		require.Len(t, failed, 8)
		require.Contains(t, failed["m-0"],
			"family: the informer of nil: the function given to NewDynamic has returned nil")
		require.Contains(t, failed["m-1"], "panic")
		require.Contains(t, failed["m-2"], "has returned informer maps, which the Manager runs")
		require.Contains(t, failed["m-4"], "has returned the informer of same")
		require.Contains(t, failed["m-5"], "family: the informer of other: no such kind")
		require.Contains(t, failed["m-6"], "has returned informer other, which has run before")
		require.Contains(t, failed["m-7"], "has returned informer other, which has run before")
		require.Contains(t, failed["m-8"], "has returned informer *v1.ConfigMap, which has Options.Shard")
	})
}

// A thousand namespaces come and go with their informers, a hundred at a time, and leave nothing behind.
func TestAThousandNamespacesComeAndGo(t *testing.T) {
	const rounds, each = 10, 100
	var namespaces []string
	for i := range rounds * each {
		namespaces = append(namespaces, fmt.Sprintf("n-%03d", i))
	}
	inEstate(t, slices.Clone(namespaces), func(e *estate) {
		e.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
			for _, namespace := range namespacesOf(tenant) {
				inf, err := e.secrets.Get(namespace)
				if err != nil {
					return err
				}
				if inf.Len() == 0 {
					_, err = e.clients.CoreV1().Secrets(namespace).Create(ctx, secretOf("s", tenant.Name),
						metav1.CreateOptions{})
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		heap := func() uint64 {
			synctest.Wait()
			runtime.GC()
			runtime.GC()
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			return now.HeapAlloc
		}
		goroutines := goroutinesOfBubble()
		var before uint64
		for round := range rounds {
			for i := range each {
				e.tenant(fmt.Sprint("t-", i), namespaces[round*each+i])
			}
			time.Sleep(time.Minute)
			for i := range each {
				require.Equal(t, 1, e.secretsIn(namespaces[round*each+i]), "what its own run has made")
			}
			require.Len(t, e.family().Namespaces, each)
			for i := range each {
				e.tenant(fmt.Sprint("t-", i))
				e.saw(fmt.Sprint("t-", i))
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			require.Equal(t, goroutines, goroutinesOfBubble())
			if round == 1 { // what grows once, such as buffers, has grown
				before = heap()
			}
		}
		grown := int64(heap()) - int64(before)
		t.Logf("the heap has grown by %d bytes for each of %d namespaces", grown/((rounds-2)*each), (rounds-2)*each)
		require.Less(t, grown, int64((rounds-2)*each*12<<10), "the server's own Secrets and events are in it")
		require.EqualValues(t, rounds*each, e.made.Load())
		require.Zero(t, e.Stats().Parked)
	})
}

func (e *estate) secretsIn(namespace string) int {
	inf, err := e.secrets.Get(namespace)
	require.NoError(e, err)
	return inf.Len()
}

// candidacy is an elector of a process of its own, which dies with its link.
func candidacy(t *testing.T, link *reconciletest.Link, identity string) reconcile.Elector {
	e, err := leaderelection.New(leaderelection.Config{REST: link.Config(), Namespace: landlord, Name: "lock",
		Identity: identity})
	require.NoError(t, err)
	return e
}

// The next leader's caches show what the last one wrote, also in an informer that came while the last one led, and in
// one that the last one has given up, when the next one does not know yet that nothing names it.
func TestTheNextLeaderSeesWhatWasWrittenToWhatComesAndGoes(t *testing.T) {
	for name, test := range map[string]struct {
		givesUp, writesThen, crashes bool
		lists                        reconciletest.Fault // of the next leader
		missing, next                bool                // another namespace, for both or for the next one
		uninstalled                  bool                // the other namespace, when the next one has seen it
	}{
		"it is still named":                      {},
		"it was given up":                        {givesUp: true},
		"it was written when it was given up":    {givesUp: true, writesThen: true},
		"after a crash":                          {crashes: true},
		"beside a kind that is missing":          {missing: true},
		"beside one that is missing only there":  {next: true},
		"after a crash beside a missing kind":    {crashes: true, missing: true},
		"after a crash beside one that was gone": {crashes: true, uninstalled: true},
		"a list that began before":               {lists: reconciletest.Delay(0, 10*time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"a", "b", landlord}})
				first, second := newEstate(t, server), newEstate(t, server)
				lease := server.Link()
				first.elector, second.elector = candidacy(t, lease, "first"), candidacy(t, server.Link(), "second")
				writes := make(chan struct{})
				write := func(ctx context.Context, namespace string) error {
					<-writes
					_, err := first.clients.CoreV1().Secrets(namespace).Create(ctx, secretOf("own", ""),
						metav1.CreateOptions{})
					return err
				}
				first.plain, second.plain, first.options.Workers = true, true, 2
				first.act = func(ctx context.Context, tenant *corev1.ConfigMap) error {
					switch inf, err := first.secrets.Get("a"); {
					case tenant.Name != "one" && test.next:
						return write(ctx, "b")
					case tenant.Name != "one":
						return nil
					case test.writesThen && tenant.Data["namespaces"] == "b":
						return write(ctx, "a")
					case test.writesThen || err != nil || inf.Len() > 0:
						return nil
					default:
						return write(ctx, "a")
					}
				}
				if test.missing {
					first.fail("b", missing)
				}
				if test.missing || test.next {
					second.fail("b", missing)
				}
				second.fail("a", test.lists)
				first.start()
				time.Sleep(20 * time.Second)
				second.start()
				first.tenant("one", "a")
				first.tenant("two", "b")
				require.Len(t, second.family().Namespaces, 2, "a standby follows it, too")
				second.link.DelayWatches("secrets", reconciletest.Never)
				if test.givesUp {
					second.link.DelayWatches("configmaps", reconciletest.Never)
				}
				if test.crashes {
					second.link.DelayWatches("secrets", 5*time.Second)
				}
				if test.uninstalled {
					second.fail("b", missing)
					second.link.CutWatches()
				}
				time.Sleep(time.Second)
				if test.writesThen {
					first.tenant("one", "b")
				}
				close(writes)
				time.Sleep(time.Second)
				if test.givesUp {
					first.tenant("one", "b")
					require.Len(t, first.family().Namespaces, 1)
				}
				if test.crashes {
					first.link.Close()
					lease.Close()
				}
				_ = first.stop() // after a crash it is in trouble
				second.fail("a", nil)
				left := time.Now()
				time.Sleep(2 * time.Minute)
				saw := second.saw("one")
				require.NotEmpty(t, saw)
				require.Equal(t, "a:own", saw[0], "never without it")
				m := second.manager.Inspect()
				require.Equal(t, "complete", m.Leadership.Handover)
				if (test.missing || test.uninstalled) && test.crashes {
					require.Zero(t, m.Leadership.HandoverTook, "nothing is waited for that cannot be shown")
				}
				if test.uninstalled {
					saw := second.saw("two")
					require.NotEmpty(t, saw)
					for _, saw := range saw {
						require.Contains(t, saw, "secrets of tenants: b: ", "it may not be acted on")
					}
					second.fail("b", nil)
					time.Sleep(time.Minute)
					require.Equal(t, []string{"b:"}, second.saw("two"))
				}
				require.Less(t, m.Leadership.TenureSince.Sub(left), 20*time.Second)
				second.link.DelayWatches("configmaps", 0)
				require.NoError(t, second.stop())
			})
		})
	}
}

// An informer of a client that TrackWrites does not see would show own writes some day, and miss others.
func TestAnInformerThatComesWithoutTrackWrites(t *testing.T) {
	inEstateThatEnds(t, []string{"a"}, func(e *estate) {
		e.untracked.Store(true)
		e.tenant("one", "a")
		require.ErrorContains(t, <-e.done, "secrets in a, whose requests do not pass TrackWrites")
	})
}

// An object on which the function of a source panics is shown, wherever the source comes from.
func TestAPanicOfASourceThatComes(t *testing.T) {
	inEstate(t, []string{"a"}, func(e *estate) {
		e.tenant("one", "a")
		e.tenant("two", "a")
		e.secret("a", "s", "panic")
		require.Equal(t, 1, e.Inspect().Panicking)
		require.Contains(t, e.Why(tenantKey("one")), "Watches secrets in a")
		e.tenant("one")
		e.tenant("two")
		require.Zero(t, e.Inspect().Panicking)
	})
}

// A controller's own objects do not come and go.
func TestForOfAnInformerThatComes(t *testing.T) {
	inEstateThatEnds(t, []string{"a"}, func(e *estate) {
		e.subject.Store(true)
		e.tenant("one", "a")
		require.ErrorContains(t, <-e.done, "For: informer secrets in a comes and goes")
	})
}

// The family is as well as the best of its informers that are complete.
func TestTheHealthOfAFamily(t *testing.T) {
	inEstate(t, []string{"a", "b"}, func(e *estate) {
		state := func() informer.State {
			synctest.Wait()
			return e.secrets.Health().State
		}
		require.Equal(t, informer.Live, state())
		e.tenant("one", "a", "b")
		lists := e.secrets.Health().Lists
		require.GreaterOrEqual(t, lists, 2)
		e.fail("a", reconciletest.Reset)
		e.link.CutWatches()
		time.Sleep(time.Minute)
		require.Equal(t, "Stale", e.family().Namespaces[0].State)
		require.Equal(t, informer.Live, state(), "b is")
		require.Contains(t, e.Why(tenantKey("one")), "secrets in a")
		e.fail("b", reconciletest.Reset)
		e.link.CutWatches()
		time.Sleep(time.Minute)
		require.Equal(t, informer.Stale, state())
		require.Contains(t, fmt.Sprint(e.manager.Inspect().NotReady), "informer secrets of tenants: Stale")
		e.tenant("one")
		require.Equal(t, informer.Live, state(), "it has none")
		require.GreaterOrEqual(t, e.secrets.Health().Lists, lists, "what was given up counts")
	})
}

// A handler that does not return when its informer is given up holds back no other. Run tells of it at its end.
func TestAnInformerThatCannotBeGivenUp(t *testing.T) {
	inEstateThatEnds(t, []string{"a", "b"}, func(e *estate) {
		stuck := make(chan struct{})
		e.blocked.Store(&stuck)
		e.tenant("one", "a")
		e.secret("a", "s", "block")
		e.tenant("one")
		time.Sleep(time.Minute)
		e.tenant("two", "b")
		require.Equal(t, []string{"b:"}, e.saw("two"))
		close(stuck)
		err := e.stop()
		require.ErrorIs(t, err, reconcile.ErrStuck)
		require.ErrorContains(t, err, "secrets in a")
	})
}

// A namespace that is refused holds back the keys that need it, and not the start of the workers.
func TestARefusedNamespaceDoesNotHoldBackTheStart(t *testing.T) {
	refused := reconciletest.AnswerWith(apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no")))
	for name, faults := range map[string]map[string]reconciletest.Fault{
		"one of two": {"two": refused},
		"both":       {"one": refused, "two": refused},
	} {
		t.Run(name, func(t *testing.T) {
			inProvinceWith(t, func(p *province) reconcile.Options {
				p.faults = faults
				for _, namespace := range []string{"one", "two"} {
					_, err := p.admin.CoreV1().ConfigMaps(namespace).Create(t.Context(),
						&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
					require.NoError(t, err)
				}
				return reconcile.Options{}
			}, []string{"one", "two"}, []string{"one", "two"}, func(t *testing.T, p *province) {
				time.Sleep(10 * time.Second)
				require.Equal(t, 2-len(faults), p.ran("one"), "if one is complete")
				stage := map[int]status.Stage{1: status.StageWorking, 2: status.StageSyncing}[len(faults)]
				require.Equal(t, stage, p.manager.Inspect().Stage)
				require.Zero(t, p.ran("two"))
				p.fail("one", nil)
				p.fail("two", nil)
				time.Sleep(time.Minute)
				require.Equal(t, 1, p.ran("one"))
				require.Equal(t, 1, p.ran("two"))
			})
		})
	}
}

// A new leader does not wait for a namespace that is refused either.
func TestARefusedNamespaceDoesNotHoldBackANewLeader(t *testing.T) {
	inProvinceWith(t, func(p *province) reconcile.Options {
		p.faults["two"] = reconciletest.AnswerWith(apierrors.NewForbidden(corev1.Resource("secrets"), "",
			errors.New("no")))
		for _, namespace := range []string{"one", "two"} {
			_, err := p.admin.CoreV1().ConfigMaps(namespace).Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		var err error
		p.elector, err = leaderelection.New(leaderelection.Config{REST: p.link.Config(), Namespace: "one", Name: "lock",
			Identity: "p"})
		require.NoError(t, err)
		return reconcile.Options{}
	}, []string{"one", "two"}, []string{"one", "two"}, func(t *testing.T, p *province) {
		time.Sleep(20 * time.Second)
		require.Equal(t, 1, p.ran("one"))
		leads := p.manager.Inspect().Leadership
		require.Equal(t, "complete", leads.Handover)
		require.Less(t, leads.HandoverTook, time.Second)
		require.Zero(t, p.ran("two"))
		p.fail("two", nil)
		time.Sleep(time.Minute)
		require.Equal(t, 1, p.ran("two"))
	})
}

// noShard keeps nothing.
type noShard struct{}

func (noShard) Hash(*metav1.ObjectMeta) (uint64, bool) { return 0, true }
func (noShard) KeyOnly() bool                          { return true }
func (noShard) Join(informer.Sharded) func()           { return func() {} }
