package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// registry is a controller of ConfigMaps that name Secrets, in the value "secrets", separated by commas.
type registry struct {
	*testing.T
	admin   *kubernetes.Clientset // of somebody whose requests have no faults
	clients *kubernetes.Clientset // the controller's
	link    *reconciletest.Link   // the controller's way
	secrets *informer.Referenced[*corev1.Secret]
	*reconcile.Controller
	manager *reconcile.Manager
	act     func(ctx context.Context, key reconcile.Key) error // in each run, after it has read; nil: nothing

	asked atomic.Int64 // how often an object was asked what it names

	mu sync.Mutex
	// Guarded by mu. runs has what each run of a key has seen: the Secrets that its object names, or errors. faults are
	// those of lists and watches of Secrets, by the Secret's name.
	runs   map[string][]string
	faults map[string]reconciletest.Fault
}

var tls = informer.Key{Namespace: "shop", Name: "tls"}

func secretsOf(m *corev1.ConfigMap) (keys []informer.Key) {
	for name := range strings.SplitSeq(m.Data["secrets"], ",") {
		namespace := m.Namespace
		if of, n, ok := strings.Cut(name, "/"); ok {
			namespace, name = of, n
		}
		keys = append(keys, informer.Key{Namespace: namespace, Name: name})
	}
	return keys
}

func inRegistry(t *testing.T, fn func(r *registry)) {
	t.Helper()
	inRegistryWith(t, informer.Options[*corev1.Secret]{}, fn)
}

func inRegistryWith(t *testing.T, opts informer.Options[*corev1.Secret], fn func(r *registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"shop", "hidden"}})
		r := &registry{T: t, admin: kubernetes.NewForConfigOrDie(server.Config()), link: server.Link(),
			runs: map[string][]string{}, faults: map[string]reconciletest.Fault{}}
		base := rest.CopyConfig(r.link.Config())
		base.Wrap(func(next http.RoundTripper) http.RoundTripper { return byName{r, next} })
		cfg, err := reconcile.ClientConfig(base)
		require.NoError(t, err)
		r.clients = kubernetes.NewForConfigOrDie(cfg)
		maps, err := informer.NewCached(cfg, corev1.SchemeGroupVersion.WithResource("configmaps"),
			informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		client, err := informer.NewResource[*corev1.Secret](cfg, corev1.SchemeGroupVersion.WithResource("secrets"),
			informer.ResourceOptions{})
		require.NoError(t, err)
		opts.Name = "secrets"
		r.secrets, err = informer.NewReferenced(client.In, opts)
		require.NoError(t, err)
		r.Controller, err = reconcile.NewController("registry",
			reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
				m, ok := maps.Cache.Get(key)
				saw := []string{}
				for _, named := range secretsOf(m) {
					if !ok || named.Name == "" {
						continue
					}
					s, exists, err := r.secrets.Get(named)
					switch {
					case err != nil:
						saw = append(saw, err.Error())
					case exists:
						saw = append(saw, s.Name+"="+string(s.Data["v"]))
					default:
						saw = append(saw, "no "+named.Name)
					}
				}
				r.mu.Lock()
				r.runs[key.Name] = append(r.runs[key.Name], strings.Join(saw, ","))
				r.mu.Unlock()
				if r.act == nil {
					return reconcile.Result{}, nil
				}
				return reconcile.Result{}, r.act(ctx, key)
			}), reconcile.Options{})
		require.NoError(t, err)
		reconcile.For(r.Controller, maps.Cache)
		reconcile.References(r.Controller, maps.Cache, r.secrets, func(m *corev1.ConfigMap) []informer.Key {
			r.asked.Add(1)
			return secretsOf(m)
		})
		r.manager, err = reconcile.NewManager(reconcile.ManagerOptions{
			Controllers: []*reconcile.Controller{r.Controller}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.manager.Run(ctx) }()
		synctest.Wait()
		fn(r)
		r.link.DelayWatches("secrets", 0)
		cancel()
		require.NoError(t, <-done)
		r.link.Close()
	})
}

// byName gives requests about one Secret the registry's fault.
type byName struct {
	*registry
	next http.RoundTripper
}

func (b byName) RoundTrip(req *http.Request) (*http.Response, error) {
	next := func() (*http.Response, error) { return b.next.RoundTrip(req) }
	b.mu.Lock()
	fault := b.faults[strings.TrimPrefix(req.URL.Query().Get("fieldSelector"), "metadata.name=")]
	b.mu.Unlock()
	if fault != nil && strings.HasSuffix(req.URL.Path, "/secrets") {
		return fault(req.Context(), next)
	}
	return next()
}

func (r *registry) fail(name string, f reconciletest.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[name] = f
}

// site makes the ConfigMap of that name, or changes it, so that it names Secrets.
func (r *registry) site(name, secrets string) {
	r.Helper()
	maps := r.admin.CoreV1().ConfigMaps("shop")
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"secrets": secrets}}
	_, err := maps.Update(r.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(r.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(r, err)
	synctest.Wait()
}

func (r *registry) secret(name, value string) {
	r.Helper()
	secrets := r.admin.CoreV1().Secrets("shop")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"v": value}}
	_, err := secrets.Update(r.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(r.Context(), s, metav1.CreateOptions{})
	}
	require.NoError(r, err)
	synctest.Wait()
}

// ran returns what the runs of a site have seen since ran was called last.
func (r *registry) ran(site string) []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs[site]
	delete(r.runs, site)
	return runs
}

// saw is ran for a site that names something new, without repetitions: the key that has waited until the name is known
// may run before the event of the object, which brings it up once more.
func (r *registry) saw(site string) []string { return slices.Compact(r.ran(site)) }

func (r *registry) why(site string) string {
	return r.InspectKey(reconcile.Key{Namespace: "shop", Name: site}).Why
}

func TestAKeyIsReconciledForWhatItsObjectNames(t *testing.T) {
	inRegistry(t, func(r *registry) {
		r.secret("other", "1")
		r.site("web", "tls")
		require.Equal(t, []string{"no tls"}, r.ran("web"))
		r.secret("tls", "1")
		require.Equal(t, []string{"tls=1"}, r.ran("web"))
		r.secret("tls", "2")
		require.Equal(t, []string{"tls=2"}, r.ran("web"))
		r.secret("other", "2")
		require.Empty(t, r.ran("web"), "it does not name it")
		r.site("web", "tls,other")
		require.Equal(t, []string{"tls=2,other=2"}, r.saw("web"))
		require.NoError(t, r.admin.CoreV1().Secrets("shop").Delete(t.Context(), "tls", metav1.DeleteOptions{}))
		require.Equal(t, []string{"no tls,other=2"}, r.ran("web"))
		r.site("web", "")
		require.Equal(t, []string{""}, r.ran("web"))
		require.Zero(t, r.secrets.Len())
		require.Empty(t, r.secrets.HealthIn("shop/tls").State)
	})
}

func TestAManagerSaysHowManyNamesAreFollowedByMetadata(t *testing.T) {
	inRegistryWith(t, informer.Options[*corev1.Secret]{MaxWatches: 1}, func(r *registry) {
		r.site("web", "tls,other")
		all := r.manager.Inspect().Informers
		i := slices.IndexFunc(all, func(i status.Informer) bool { return i.Name == "secrets" })
		require.Equal(t, 2, all[i].ByMetadata)
	})
}

func TestAKeyWaitsForWhatIsNotKnown(t *testing.T) {
	inRegistry(t, func(r *registry) {
		r.secret("tls", "1")
		r.fail("tls", reconciletest.Delay(3*time.Second, 0))
		r.site("web", "tls")
		r.site("other", "db")
		require.Equal(t, []string{"no db"}, r.ran("other"))
		time.Sleep(2 * time.Second)
		require.Empty(t, r.ran("web"))
		require.Equal(t, "shop/web has waited for 2 s: its object names shop/tls in secrets, which is not known yet; "+
			"the cache of secrets has no version of it yet and has been Listing for 2 s.", r.why("web"))
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"tls=1"}, r.saw("web"), "never that there is none")

		// It does not wait for what its object no longer names.
		r.fail("new", reconciletest.Delay(time.Hour, 0))
		r.site("web", "tls,new")
		r.site("third", "new") // so that it is followed on
		time.Sleep(time.Minute)
		require.Empty(t, r.ran("web"))
		r.site("web", "tls")
		runs := r.ran("web")
		require.NotEmpty(t, runs)
		require.Subset(t, []string{"tls=1"}, runs)
		require.Equal(t, status.KeySettled, r.InspectKey(reconcile.Key{Namespace: "shop", Name: "web"}).State)
		require.Empty(t, r.ran("third"))
	})
}

func TestANameThatIsForbiddenHoldsBackThoseThatNameIt(t *testing.T) {
	inRegistry(t, func(r *registry) {
		r.fail("x", reconciletest.AnswerWith(apierrors.NewForbidden(corev1.Resource("secrets"), "x",
			errors.New(`User "u" cannot list resource "secrets" in API group "" in the namespace "hidden"`))))
		r.secret("tls", "1")
		r.site("bad", "hidden/x,tls")
		r.site("good", "tls")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"tls=1"}, r.saw("good"))
		require.Empty(t, r.ran("bad"))
		require.Contains(t, r.why("bad"), "its object names hidden/x in secrets, which is not known yet")
		require.Contains(t, r.why("bad"), "has been Denied for 1 min because of 403 Forbidden")
		require.Empty(t, r.manager.Inspect().NotReady, "one name says nothing about the process")
		r.secret("tls", "2")
		require.Equal(t, []string{"tls=2"}, r.ran("good"))
		r.fail("x", nil) // the Role has arrived
		time.Sleep(time.Minute)
		require.Equal(t, []string{"no x,tls=2"}, r.saw("bad"))
	})
}

// What the controller writes to a named object is waited for: the key is not reconciled with a cache from before it.
func TestAWriteToANamedObjectIsWaitedFor(t *testing.T) {
	inRegistry(t, func(r *registry) {
		var created atomic.Int32
		r.act = func(ctx context.Context, key reconcile.Key) error {
			if _, exists, err := r.secrets.Get(tls); exists || err != nil {
				return err
			}
			created.Add(1)
			_, err := r.clients.CoreV1().Secrets("shop").Create(ctx,
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"}}, metav1.CreateOptions{})
			return err
		}
		r.link.DelayWatches("secrets", 4*time.Second)
		r.site("web", "tls")
		time.Sleep(time.Second)
		require.EqualValues(t, 1, created.Load())
		r.ran("web")
		for i := range 3 { // something else names the key, while the event of its write is on its way
			r.site("web", fmt.Sprint("tls,", i))
		}
		require.Empty(t, r.ran("web"))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"tls=,no 2"}, r.saw("web"))
		require.EqualValues(t, 1, created.Load())

		// A lost answer is settled by a list of that object.
		require.NoError(t, r.admin.CoreV1().Secrets("shop").Delete(t.Context(), "tls", metav1.DeleteOptions{}))
		r.link.Inject(func(q reconciletest.Request) reconciletest.Fault {
			if q.Verb != "create" || q.Resource.Resource != "secrets" {
				return nil
			}
			return func(_ context.Context, next func() (*http.Response, error)) (*http.Response, error) {
				if _, err := next(); err != nil {
					return nil, err
				}
				return nil, errors.New("the answer is lost")
			}
		})
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 2, created.Load())
	})
}

func TestMistakesWithReferences(t *testing.T) {
	nothing := func(context.Context, reconcile.Key) (reconcile.Result, error) { return reconcile.Result{}, nil }
	c, err := reconcile.NewController("c", reconcile.Func(nothing), reconcile.Options{})
	require.NoError(t, err)
	reconcile.References(c, nil, (*informer.Referenced[*corev1.Secret])(nil), secretsOf)
	_, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.ErrorContains(t, err, "References: the informer is nil")

	c, err = reconcile.NewController("c", reconcile.Func(nothing), reconcile.Options{})
	require.NoError(t, err)
	clients := fake.NewClientset().CoreV1()
	sites, err := informer.New(clients.ConfigMaps(""), informer.Options[*corev1.ConfigMap]{Name: "sites"})
	require.NoError(t, err)
	secrets, err := informer.NewReferenced(clients.Secrets, informer.Options[*corev1.Secret]{})
	require.NoError(t, err)
	reconcile.References(c, sites, secrets, secretsOf)
	_, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.ErrorContains(t, err, "References: informer sites, whose objects name others, is no source of the "+
		"controller: call For")
}

// Many objects wait for one name that is not known: a change of one of them costs nothing for the others.
func TestManyKeysWaitForOneName(t *testing.T) {
	const many = 300
	inRegistry(t, func(r *registry) {
		r.fail("ca", reconciletest.Refuse(apierrors.NewForbidden(corev1.Resource("secrets"), "ca", errors.New("no"))))
		for i := range many {
			r.site(fmt.Sprint("site", i), "ca")
		}
		r.asked.Store(0)
		r.site("site7", "ca,b")
		time.Sleep(time.Minute)
		require.Less(t, r.asked.Load(), int64(many/2))
		require.Empty(t, r.ran("site7"))
		r.site("site7", "b")
		require.Equal(t, []string{"no b"}, r.saw("site7"))
		r.fail("ca", nil)
		time.Sleep(time.Minute)
		for i := range many {
			if i != 7 {
				require.Equal(t, []string{"no ca"}, r.saw(fmt.Sprint("site", i)))
			}
		}
	})
}
