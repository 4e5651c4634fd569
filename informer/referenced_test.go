package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
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
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// estate is an API server with Secrets, and a cache of those that are named.
type estate struct {
	*testing.T
	server  *reconciletest.Server
	link    *reconciletest.Link // the cache's way
	theirs  *kubernetes.Clientset
	secrets *informer.Referenced[*corev1.Secret]

	released chan struct{} // closed: what was stuck no longer is

	mu sync.Mutex
	// Guarded by mu. named are the names that the test has given; faults are those of requests about single objects, by
	// their names, and about all of the namespace, by no name.
	named     map[informer.Key]bool
	faults    map[string]error
	selectors []string // of the cache's requests
}

// inEstate runs fn in virtual time. The cache runs until fn returns.
func inEstate(t *testing.T, fn func(e *estate)) {
	t.Helper()
	inEstateWith(t, informer.Options[*corev1.Secret]{}, fn)
}

func inEstateWith(t *testing.T, opts informer.Options[*corev1.Secret], fn func(e *estate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &estate{T: t, named: map[informer.Key]bool{}, faults: map[string]error{}, released: make(chan struct{})}
		e.server = reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"shop", "blog"}})
		e.theirs = kubernetes.NewForConfigOrDie(e.server.Config())
		e.link = e.server.Link()
		cfg := rest.CopyConfig(e.link.Config())
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{e, next} })
		e.secrets = e.cache(cfg, opts)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- e.secrets.Run(ctx) }()
		synctest.Wait()
		fn(e)
		cancel()
		require.NoError(t, <-stopped)
		e.link.Close()
	})
}

func (e *estate) cache(cfg *rest.Config,
	opts informer.Options[*corev1.Secret]) *informer.Referenced[*corev1.Secret] {
	client, err := informer.NewResource[*corev1.Secret](cfg, corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.ResourceOptions{})
	require.NoError(e, err)
	opts.Name = "secrets"
	secrets, err := informer.NewReferenced(client.In, opts)
	require.NoError(e, err)
	secrets.NamedBy(func(key informer.Key) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.named[key]
	})
	return secrets
}

// These are faults of requests.
var (
	errHangs       = errors.New("not answered")
	errStuck       = errors.New("not answered, nor given up")
	errSlow        = errors.New("answered after ten seconds, as it is after five")
	errUnreachable = error(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")})
	errNoWatch     = error(apierrors.NewInternalError(errors.New("that of watches only")))
)

// faulty fails the requests about single objects as the estate says.
type faulty struct {
	*estate
	next http.RoundTripper
}

func (f faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	selector := req.URL.Query().Get("fieldSelector")
	next := func() (*http.Response, error) { return f.next.RoundTrip(req) }
	f.mu.Lock()
	seen := selector
	if req.URL.Query().Get("watch") != "" && req.URL.Query().Get("sendInitialEvents") == "" {
		seen = "watch " + selector
	}
	f.selectors = append(f.selectors, seen)
	err := f.faults[strings.TrimPrefix(selector, "metadata.name=")]
	f.mu.Unlock()
	if err == errNoWatch && req.URL.Query().Get("watch") == "" {
		err = nil
	}
	switch err {
	case nil:
		return next()
	case errSlow:
		return reconciletest.Delay(5*time.Second, 5*time.Second)(req.Context(), next)
	case errUnreachable:
		return nil, err
	case errStuck:
		<-f.released
		return nil, err
	case errHangs:
		return reconciletest.Delay(time.Hour, 0)(req.Context(), next)
	default:
		return reconciletest.AnswerWith(err)(req.Context(), next)
	}
}

func (e *estate) name(key informer.Key, named bool) {
	e.mu.Lock()
	e.named[key] = named
	e.mu.Unlock()
	e.secrets.Recheck(key)
}

func (e *estate) fail(name string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults[name] = err
}

func secretKey(name string) informer.Key { return informer.Key{Namespace: "shop", Name: name} }

func (e *estate) create(key informer.Key) *corev1.Secret {
	s, err := e.theirs.CoreV1().Secrets(key.Namespace).Create(e.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, metav1.CreateOptions{})
	require.NoError(e, err)
	return s
}

func TestReferencedFollowsWhatIsNamed(t *testing.T) {
	inEstate(t, func(e *estate) {
		e.create(secretKey("tls"))
		e.create(secretKey("other"))
		_, _, err := e.secrets.Get(secretKey("tls"))
		require.ErrorIs(t, err, informer.ErrNotNamed)
		require.EqualError(t, err, "informer secrets: object shop/tls is not followed, since nothing names it")
		require.True(t, e.secrets.HasSynced(), "there is nothing that it has to list")
		require.Equal(t, informer.Live, e.secrets.Health().State)
		require.NoError(t, e.secrets.Fresh(metav1.NamespaceAll))

		e.fail("tls", apierrors.NewServiceUnavailable("not yet"))
		e.name(secretKey("tls"), true)
		synctest.Wait()
		_, _, err = e.secrets.Get(secretKey("tls"))
		require.ErrorIs(t, err, informer.ErrNotKnown, "before the server has answered")
		e.fail("tls", nil)
		time.Sleep(time.Minute)
		s, exists, err := e.secrets.Get(secretKey("tls"))
		require.NoError(t, err)
		require.True(t, exists)
		require.Equal(t, "tls", s.Name)
		require.Equal(t, 1, e.secrets.Len())
		require.NoError(t, e.secrets.Fresh("shop/tls"))
		require.Equal(t, informer.Live, e.secrets.HealthIn("shop/tls").State)

		// One that does not exist is known, too, and is seen when it comes.
		e.name(secretKey("late"), true)
		synctest.Wait()
		_, exists, err = e.secrets.Get(secretKey("late"))
		require.NoError(t, err)
		require.False(t, exists)
		e.create(secretKey("late"))
		synctest.Wait()
		_, exists, err = e.secrets.Get(secretKey("late"))
		require.NoError(t, err)
		require.True(t, exists)

		var told []string
		_, err = e.secrets.AddHandler(func(ev informer.Event[*corev1.Secret]) {
			told = append(told, fmt.Sprint(ev.Type, " ", ev.Key))
		}, informer.HandlerOptions{Inline: true})
		require.NoError(t, err)
		told = nil
		e.name(secretKey("tls"), false)
		synctest.Wait()
		require.Equal(t, []string{"Deleted shop/tls"}, told)
		_, _, err = e.secrets.Get(secretKey("tls"))
		require.ErrorIs(t, err, informer.ErrNotNamed)
		require.Empty(t, e.secrets.HealthIn("shop/tls").State)
		require.Equal(t, 1, e.secrets.Len())

		require.ErrorIs(t, e.secrets.Rescope(informer.Scope{Namespaces: []string{"shop"}}), informer.ErrScope)
	})
}

func TestReferencedRequestsNothingButNames(t *testing.T) {
	inEstate(t, func(e *estate) {
		for _, name := range []string{"a", "b"} {
			e.create(secretKey(name))
			e.name(secretKey(name), true)
		}
		synctest.Wait()
		e.link.CutWatches() // after which the version of the server is asked for
		time.Sleep(time.Minute)
		e.server.Compact()
		e.link.CutWatches()
		time.Sleep(time.Minute)
		e.mu.Lock()
		defer e.mu.Unlock()
		require.Greater(t, len(e.selectors), 8)
		for _, selector := range e.selectors {
			require.Contains(t, []string{"metadata.name=a", "metadata.name=b"}, strings.TrimPrefix(selector, "watch "))
		}
	})
}

func TestReferencedWithOneNameThatIsForbidden(t *testing.T) {
	inEstate(t, func(e *estate) {
		gr := corev1.Resource("secrets")
		e.fail("hidden", apierrors.NewForbidden(gr, "hidden", errors.New(`User "u" cannot list resource "secrets"`)))
		e.create(secretKey("tls"))
		e.name(secretKey("tls"), true)
		e.name(secretKey("hidden"), true)
		e.name(informer.Key{Namespace: "No Namespace", Name: "x"}, true)
		time.Sleep(time.Minute)
		_, exists, err := e.secrets.Get(secretKey("tls"))
		require.NoError(t, err)
		require.True(t, exists)
		_, _, err = e.secrets.Get(secretKey("hidden"))
		require.ErrorIs(t, err, informer.ErrNotKnown)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, `secrets "hidden" is forbidden: User "u" cannot list resource "secrets"`)
		require.ErrorContains(t, e.secrets.Fresh("shop/hidden"), "object shop/hidden is not known yet")
		require.Equal(t, informer.Denied, e.secrets.HealthIn("shop/hidden").State)
		require.Equal(t, informer.Live, e.secrets.HealthIn("shop/tls").State)
		require.NotEmpty(t, e.secrets.ResourceVersion(metav1.NamespaceAll), "that of what is known")
		_, _, err = e.secrets.Get(informer.Key{Namespace: "No Namespace", Name: "x"})
		require.ErrorIs(t, err, informer.ErrNotKnown)
		require.ErrorContains(t, err, "No Namespace")

		e.fail("hidden", nil)
		time.Sleep(time.Minute)
		_, exists, err = e.secrets.Get(secretKey("hidden"))
		require.NoError(t, err)
		require.False(t, exists)
	})
}

func TestReferencedLiveNeverSaysThatThereIsNothingOfWhatIsNotNamed(t *testing.T) {
	inEstate(t, func(e *estate) {
		e.create(secretKey("tls"))
		_, _, err := e.secrets.Live(e.Context(), secretKey("tls"))
		require.ErrorIs(t, err, informer.ErrNotNamed)
		e.name(secretKey("tls"), true)
		if _, exists, err := e.secrets.Live(e.Context(), secretKey("tls")); err != nil { // the cache may be as fast
			require.ErrorIs(t, err, informer.ErrNotKnown)
		} else {
			require.True(t, exists)
		}
		synctest.Wait()
		s, exists, err := e.secrets.Live(e.Context(), secretKey("tls"))
		require.NoError(t, err)
		require.True(t, exists)
		require.Equal(t, "tls", s.Name)
	})
}

func TestReferencedHealth(t *testing.T) {
	inEstate(t, func(e *estate) {
		require.Zero(t, e.secrets.Health().LastProgress)
		gr := corev1.Resource("secrets")
		for _, name := range []string{"a", "b"} {
			e.fail(name, apierrors.NewForbidden(gr, name, errors.New("no Role")))
			e.name(secretKey(name), true)
		}
		time.Sleep(time.Minute)
		h := e.secrets.Health()
		require.Equal(t, informer.Denied, h.State, "all that there is")
		require.True(t, apierrors.IsForbidden(h.LastError))
		require.Equal(t, 2, h.Unknown)
		require.Error(t, e.secrets.Fresh(metav1.NamespaceAll))
		e.fail("b", nil)
		time.Sleep(time.Minute)
		h = e.secrets.Health()
		require.Equal(t, informer.Live, h.State, "one says little about the others")
		require.Equal(t, 1, h.Unknown)
		require.NotZero(t, h.LastProgress)
		e.name(secretKey("b"), false)
		synctest.Wait()
		require.Equal(t, informer.Denied, e.secrets.Health().State)
		e.name(secretKey("c"), true)
		e.fail("c", errHangs)
		synctest.Wait()
		require.Equal(t, informer.Live, e.secrets.Health().State, "the newest may be known in a moment")
	})
}

// Objects that live in no namespace have keys with an empty one.
func TestReferencedClusterScoped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"shop"}})
		client, err := informer.NewResource[*corev1.Namespace](server.Config(),
			corev1.SchemeGroupVersion.WithResource("namespaces"), informer.ResourceOptions{})
		require.NoError(t, err)
		namespaces, err := informer.NewReferenced(client.In, informer.Options[*corev1.Namespace]{})
		require.NoError(t, err)
		namespaces.NamedBy(func(key informer.Key) bool { return key.Name != "default" })
		go func() { _ = namespaces.Run(t.Context()) }()
		shop, none := informer.Key{Name: "shop"}, informer.Key{Name: "none"}
		namespaces.Recheck(shop, none, informer.Key{Name: "default"})
		synctest.Wait()
		ns, exists, err := namespaces.Get(shop)
		require.NoError(t, err)
		require.True(t, exists)
		require.Equal(t, "shop", ns.Name)
		require.NoError(t, namespaces.Fresh(shop.String()))
		_, exists, err = namespaces.Get(none)
		require.NoError(t, err)
		require.False(t, exists)
		_, _, err = namespaces.Get(informer.Key{Name: "default"})
		require.ErrorIs(t, err, informer.ErrNotNamed)
	})
}

// An object whose watch is silent for too long is not fresh, and the others are.
func TestReferencedWithMaxStaleness(t *testing.T) {
	inEstate(t, func(e *estate) {
		cfg := rest.CopyConfig(e.link.Config())
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{e, next} })
		client, err := informer.NewResource[*corev1.Secret](cfg, corev1.SchemeGroupVersion.WithResource("secrets"),
			informer.ResourceOptions{})
		require.NoError(t, err)
		secrets, err := informer.NewReferenced(client.In, informer.Options[*corev1.Secret]{
			MaxStaleness: 2 * time.Minute})
		require.NoError(t, err)
		secrets.NamedBy(func(informer.Key) bool { return true })
		ctx, cancel := context.WithCancel(e.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- secrets.Run(ctx) }()
		e.create(secretKey("tls"))
		secrets.Recheck(secretKey("tls"), secretKey("other"))
		synctest.Wait()
		require.NoError(t, secrets.Fresh("shop/tls"))
		e.fail("tls", errHangs)
		e.link.CutWatches()
		time.Sleep(3 * time.Minute)
		require.ErrorIs(t, secrets.Fresh("shop/tls"), informer.ErrStale)
		require.NoError(t, secrets.Fresh("shop/other"))
		_, exists, err := secrets.Get(secretKey("tls"))
		require.NoError(t, err)
		require.True(t, exists, "Get answers with what was true once, as that of every cache")
		e.fail("tls", nil)
		time.Sleep(5 * time.Minute) // for the request that hangs
		require.NoError(t, secrets.Fresh("shop/tls"))
		cancel()
		require.NoError(t, <-stopped)
	})
}

// history is what the server has held under a key since the key was last named: a resourceVersion, or empty for
// nothing.
type history map[informer.Key][]string

// FuzzReferenced compares the cache with the set of names and with what the server has held: no answer of Get is from
// before the name was given, and once the faults are over each answer is the truth.
func FuzzReferenced(f *testing.F) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 36))
		script := make([]byte, 120)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		// Most scripts cross the number of watches, up and down.
		var opts informer.Options[*corev1.Secret]
		if len(script) > 0 {
			opts.MaxWatches = int(script[0] % 4)
		}
		inEstateWith(t, opts, func(e *estate) { playReferenced(e, script[min(1, len(script)):]) })
	})
}

func playReferenced(e *estate, script []byte) {
	const keys = 5
	key := func(i byte) informer.Key { return secretKey(string(rune('a' + i%keys))) }
	api := e.theirs.CoreV1().Secrets("shop")
	now, past, named := map[informer.Key]string{}, history{}, map[informer.Key]bool{}
	events := map[informer.Key]informer.EventType{}
	_, err := e.secrets.AddHandler(func(ev informer.Event[*corev1.Secret]) {
		before, told := events[ev.Key]
		held := told && before != informer.Deleted
		require.Equal(e, ev.Type != informer.Added, held, "%s of %s after %v", ev.Type, ev.Key, before)
		events[ev.Key] = ev.Type
	}, informer.HandlerOptions{Inline: true})
	require.NoError(e, err)
	for len(script) >= 2 {
		op, k := script[0]%14, key(script[1])
		script = script[2:]
		switch op {
		case 0, 1, 2:
			if !named[k] {
				past[k] = []string{now[k]}
			}
			named[k] = true
			e.name(k, true)
		case 3:
			named[k] = false
			e.name(k, false)
		case 4, 5:
			if now[k] == "" {
				now[k] = e.create(k).ResourceVersion
			} else {
				s, err := api.Get(e.Context(), k.Name, metav1.GetOptions{})
				require.NoError(e, err)
				s.StringData = map[string]string{"n": s.ResourceVersion}
				s, err = api.Update(e.Context(), s, metav1.UpdateOptions{})
				require.NoError(e, err)
				now[k] = s.ResourceVersion
			}
			past[k] = append(past[k], now[k])
		case 6:
			if now[k] != "" {
				require.NoError(e, api.Delete(e.Context(), k.Name, metav1.DeleteOptions{}))
				now[k] = ""
				past[k] = append(past[k], "")
			}
		case 7:
			e.fail(k.Name, apierrors.NewForbidden(corev1.Resource("secrets"), k.Name, errors.New("by the test")))
		case 8:
			e.fail(k.Name, nil)
		case 9:
			e.link.CutWatches()
		case 10:
			e.server.Compact()
			e.link.CutWatches()
		case 11:
			e.link.DelayWatches("secrets", time.Duration(k.Name[0]-'a')*time.Second)
		case 12:
			e.fail("", []error{apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("by the test")),
				apierrors.NewServiceUnavailable("by the test"), errHangs}[int(k.Name[0]-'a')%3])
		case 13:
			e.fail("", nil)
		}
		if op%2 == 0 {
			synctest.Wait()
		} else {
			time.Sleep(time.Duration(op) * 300 * time.Millisecond)
		}
		for i := range byte(keys) {
			s, exists, err := e.secrets.Get(key(i))
			switch {
			case !named[key(i)]:
				synctest.Wait()
				_, _, err = e.secrets.Get(key(i))
				require.ErrorIs(e, err, informer.ErrNotNamed)
			case err != nil:
				require.ErrorIs(e, err, informer.ErrNotKnown)
			case !exists:
				require.Contains(e, past[key(i)], "", "%s has existed ever since it is named", key(i))
			default:
				require.Contains(e, past[key(i)], s.ResourceVersion, "a state of %s from before it was named", key(i))
			}
		}
	}
	for i := range byte(keys) {
		e.fail(key(i).Name, nil)
	}
	e.fail("", nil)
	e.link.DelayWatches("secrets", 0)
	time.Sleep(5 * time.Minute)
	existing := 0
	for i := range byte(keys) {
		k := key(i)
		require.Equal(e, named[k], e.secrets.HealthIn(k.String()).State == informer.Live, "%s", k)
		if !named[k] {
			continue
		}
		s, exists, err := e.secrets.Get(k)
		require.NoError(e, err)
		require.Equal(e, now[k] != "", exists)
		if exists {
			existing++
			require.Equal(e, now[k], s.ResourceVersion)
		}
	}
	require.Equal(e, existing, e.secrets.Len())
}

func TestTenThousandNamesComeAndGo(t *testing.T) {
	if !alone(t) {
		return
	}
	const many = 10_000
	inEstate(t, func(e *estate) {
		measure := func() (goroutines, heap int) {
			synctest.Wait()
			e.selectors = nil
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), int(m.HeapAlloc)
		}
		set := func(keys []informer.Key, named bool) {
			for keys := range slices.Chunk(keys, 100) {
				e.mu.Lock()
				for _, key := range keys {
					if e.named[key] = named; !named {
						delete(e.named, key)
					}
				}
				e.mu.Unlock()
				e.secrets.Recheck(keys...)
			}
		}
		comeAndGo := func(round string) (goroutines, heap int) {
			all := make([]informer.Key, many)
			for i := range all {
				all[i] = secretKey(fmt.Sprint(round, i))
			}
			e.create(all[5])
			set(all, true)
			synctest.Wait()
			for i, key := range all {
				_, exists, err := e.secrets.Get(key)
				require.NoError(t, err)
				require.Equal(t, i == 5, exists)
			}
			goroutines, heap = measure()
			t.Logf("%d names: %d goroutines, %d bytes", many, goroutines, heap)
			set(all, false)
			time.Sleep(10 * time.Minute) // for the timers of what was followed
			require.Zero(t, e.secrets.Len())
			return measure()
		}
		goroutines, _ := measure()
		_, heap := comeAndGo("first") // what the runtime and the server in memory keep is there now
		after, heapAfter := comeAndGo("second")
		t.Logf("none: %d goroutines and %d bytes, then %d and %d", goroutines, heap, after, heapAfter)
		require.Equal(t, goroutines, after)
		require.Less(t, heapAfter, heap+2000*many) // the link records each request; one that is followed takes 7 kB
	})
}
