package ctrlruntime_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/ctrlruntime"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// operator is a manager whose controller reads, for each ConfigMap, the Secrets that the value "secrets" names.
type operator struct {
	client  client.Client
	secrets *ctrlruntime.Named[*corev1.Secret]

	// slow is called with what is asked which Secrets it names.
	slow func(*corev1.ConfigMap)

	mu   sync.Mutex
	saw  map[string][]string // what each run of a ConfigMap has seen; guarded by mu
	runs int
	log  string // what the manager's logger was told; guarded by mu
}

// secretsOf are the names in the value "secrets".
func secretsOf(m *corev1.ConfigMap) (keys []client.ObjectKey) {
	for name := range strings.SplitSeq(m.Data["secrets"], ",") {
		keys = append(keys, client.ObjectKey{Namespace: m.Namespace, Name: name})
	}
	return keys
}

// newOperator makes an operator for one namespace.
func newOperator(t testing.TB, cfg *rest.Config, namespace string) (*operator, ctrl.Manager) {
	twice := true
	o := &operator{saw: map[string][]string{}, slow: func(*corev1.ConfigMap) {}}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Logger: funcr.New(o.logged, funcr.Options{}), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &twice},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}})
	require.NoError(t, err)
	o.client = m.GetClient()
	o.secrets, err = ctrlruntime.New(m, corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.Options[*corev1.Secret]{})
	require.NoError(t, err)
	changes, err := ctrlruntime.References(t.Context(), m, o.secrets, &corev1.ConfigMap{},
		func(m *corev1.ConfigMap) []client.ObjectKey {
			o.slow(m)
			return secretsOf(m)
		})
	require.NoError(t, err)
	require.NoError(t, ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).WatchesRawSource(changes).Complete(o))
	return o, m
}

// logged notes what the manager's logger is told.
func (o *operator) logged(prefix, args string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log += prefix + " " + args + "\n"
}

func (o *operator) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var m corev1.ConfigMap
	if err := o.client.Get(ctx, r.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var saw []string
	var failed error
	for _, key := range secretsOf(&m) {
		if key.Name == "" {
			continue
		}
		var s corev1.Secret
		err := o.secrets.Get(ctx, key, &s)
		switch {
		case apierrors.IsNotFound(err):
			saw = append(saw, "no "+key.Name)
		case err != nil:
			saw, failed = append(saw, err.Error()), err
		default:
			saw = append(saw, key.Name+"="+string(s.Data["v"]))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs++
	o.saw[r.Name] = append(o.saw[r.Name], strings.Join(saw, ","))
	return ctrl.Result{}, failed
}

// last returns what the latest run of a ConfigMap has seen.
func (o *operator) last(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.saw[name]) == 0 {
		return "no run"
	}
	return o.saw[name][len(o.saw[name])-1]
}

// all returns what each run of a ConfigMap has seen.
func (o *operator) all(name string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.saw[name])
}

// ran returns how often Reconcile has returned.
func (o *operator) ran() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.runs
}

// world is a server in memory with an operator, whose requests about Secrets may fail.
type world struct {
	*testing.T
	*operator
	api     kubernetes.Interface
	manager ctrl.Manager
	stop    context.CancelFunc

	mu    sync.Mutex
	fault reconciletest.Fault // guarded by mu
}

type faulty struct {
	*world
	next http.RoundTripper
}

func (f faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault == nil || !strings.HasSuffix(req.URL.Path, "/secrets") {
		return f.next.RoundTrip(req)
	}
	return fault(req.Context(), func() (*http.Response, error) { return f.next.RoundTrip(req) })
}

func inWorld(t *testing.T, fn func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"shop"}})
		w := &world{T: t, api: kubernetes.NewForConfigOrDie(server.Config())}
		cfg := rest.CopyConfig(server.Config())
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{w, next} })
		w.operator, w.manager = newOperator(t, cfg, "shop")
		var ctx context.Context
		ctx, w.stop = context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.manager.Start(ctx) }()
		synctest.Wait()
		fn(w)
		w.stop()
		require.NoError(t, <-ended)
	})
}

func (w *world) fail(f reconciletest.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// configMap makes a ConfigMap that names Secrets, or changes it.
func (w *world) configMap(name, secrets string) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"secrets": secrets}}
	_, err := w.api.CoreV1().ConfigMaps("shop").Update(w.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = w.api.CoreV1().ConfigMaps("shop").Create(w.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(w, err)
	time.Sleep(time.Second)
}

func (w *world) secret(name, value string) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"v": []byte(value)}}
	_, err := w.api.CoreV1().Secrets("shop").Update(w.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = w.api.CoreV1().Secrets("shop").Create(w.Context(), s, metav1.CreateOptions{})
	}
	require.NoError(w, err)
	time.Sleep(time.Second)
}

func TestNamedObjects(t *testing.T) {
	inWorld(t, func(w *world) {
		w.secret("tls", "1")
		w.secret("other", "1")
		w.configMap("site", "tls,late")
		require.Equal(t, "tls=1,no late", w.last("site"))
		require.Equal(t, 1, w.secrets.Cache().Len())
		w.secret("late", "1")
		require.Equal(t, "tls=1,late=1", w.last("site"))
		w.secret("tls", "2")
		require.Equal(t, "tls=2,late=1", w.last("site"))
		require.NoError(t, w.api.CoreV1().Secrets("shop").Delete(w.Context(), "late", metav1.DeleteOptions{}))
		time.Sleep(time.Second)
		require.Equal(t, "tls=2,no late", w.last("site"))

		runs := w.ran()
		w.secret("other", "2")
		require.Equal(t, runs, w.ran(), "nothing names it")
		w.configMap("site", "other")
		require.Equal(t, "other=2", w.last("site"))
		require.NoError(t, w.api.CoreV1().ConfigMaps("shop").Delete(w.Context(), "site", metav1.DeleteOptions{}))
		time.Sleep(time.Second)
		require.Zero(t, w.secrets.Cache().Len())
		require.Zero(t, w.secrets.Cache().Health().Unknown)
	})
}

// Two objects name one; each learns of its change, and it stays while one of them is left.
func TestTwoNameOne(t *testing.T) {
	inWorld(t, func(w *world) {
		w.configMap("a", "tls,tls")
		w.configMap("b", "tls")
		w.secret("tls", "1")
		require.Equal(t, "tls=1,tls=1", w.last("a"))
		require.Equal(t, "tls=1", w.last("b"))
		w.configMap("a", "")
		require.Equal(t, 1, w.secrets.Cache().Len())
		w.secret("tls", "2")
		require.Equal(t, "tls=2", w.last("b"))
		require.Equal(t, "", w.last("a"))
	})
}

// An object is reconciled before it is known which Secret it names, and the Secret changes in between.
func TestNamedLate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.slow = func(m *corev1.ConfigMap) {
			if m.Name == "b" {
				time.Sleep(5 * time.Second)
			}
		}
		w.secret("tls", "1")
		w.configMap("a", "tls")
		w.configMap("b", "tls")
		require.Equal(t, "tls=1", w.last("b"))
		w.secret("tls", "2")
		require.Equal(t, "tls=2", w.last("a"))
		require.Equal(t, "tls=1", w.last("b"))
		time.Sleep(5 * time.Second)
		require.Equal(t, "tls=2", w.last("b"))
	})
}

func TestGetWaitsForTheServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.secret("tls", "1")
		w.fail(reconciletest.Delay(5*time.Second, 0))
		w.configMap("site", "tls")
		require.Equal(t, "no run", w.last("site"), "Get waits")
		time.Sleep(5 * time.Second)
		require.Equal(t, "tls=1", w.last("site"))
		require.Equal(t, 1, len(slices.Compact(w.all("site"))), "and never says that there is none")
	})
}

func TestGetOfWhatIsForbidden(t *testing.T) {
	inWorld(t, func(w *world) {
		w.secret("tls", "1")
		w.fail(reconciletest.AnswerWith(apierrors.NewForbidden(corev1.Resource("secrets"), "tls",
			errors.New("no Role"))))
		w.configMap("site", "tls")
		time.Sleep(time.Minute)
		require.Contains(t, w.last("site"), "no Role")
		w.operator.mu.Lock()
		require.Regexp(t, `cache .*"The cache does not follow the server".*no Role`, w.log)
		w.operator.mu.Unlock()
		began := time.Now()
		err := w.secrets.Get(w.Context(), client.ObjectKey{Namespace: "shop", Name: "tls"}, &corev1.Secret{})
		require.ErrorIs(t, err, informer.ErrNotKnown)
		require.True(t, apierrors.IsForbidden(err))
		require.False(t, apierrors.IsNotFound(err))
		require.Equal(t, began, time.Now(), "it does not wait for rights")
		w.fail(nil)
		time.Sleep(20 * time.Minute) // the controller's backoff
		require.Equal(t, "tls=1", w.last("site"))
	})
}

func TestGetOfWhatNothingNames(t *testing.T) {
	inWorld(t, func(w *world) {
		key := client.ObjectKey{Namespace: "shop", Name: "tls"}
		began := time.Now()
		err := w.secrets.Get(w.Context(), key, &corev1.Secret{})
		require.ErrorIs(t, err, informer.ErrNotNamed)
		require.Equal(t, 10*time.Second, time.Since(began), "it may be named in a moment")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		err = w.secrets.Get(ctx, key, &corev1.Secret{})
		require.ErrorIs(t, err, informer.ErrNotNamed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, w.secrets.Get(w.Context(), key, &corev1.Pod{}), "*v1.Secret, not *v1.Pod")
		require.ErrorContains(t, w.secrets.Get(w.Context(), client.ObjectKey{}, &corev1.Secret{}), "name is empty")
		require.ErrorContains(t, w.secrets.List(w.Context(), &corev1.SecretList{}), "cannot list")
	})
}

// What Get has copied is the caller's own.
func TestGetCopies(t *testing.T) {
	inWorld(t, func(w *world) {
		w.secret("tls", "1")
		w.configMap("site", "tls")
		key := client.ObjectKey{Namespace: "shop", Name: "tls"}
		var s corev1.Secret
		require.NoError(t, w.secrets.Get(w.Context(), key, &s))
		s.Data["v"][0] = 'x'
		require.NoError(t, w.secrets.Get(w.Context(), key, &s))
		require.Equal(t, "1", string(s.Data["v"]))
	})
}

// What the manager runs is told to stop first, and may still read meanwhile.
func TestNamedIsStoppedLast(t *testing.T) {
	inWorld(t, func(w *world) {
		w.secret("tls", "1")
		w.configMap("site", "tls")
		fresh := make(chan error, 1)
		require.NoError(t, w.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			fresh <- w.secrets.Cache().Fresh("shop/tls")
			return nil
		})))
		synctest.Wait()
		w.stop()
		require.NoError(t, <-fresh)
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, w.secrets.Cache().Fresh("shop/tls"), informer.ErrStopped)
	})
}
