package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/serve"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// world is a Manager with keys in many states, on the API server in memory.
type world struct {
	controller *reconcile.Controller
	address    string      // of the pages
	refusing   atomic.Bool // the server refuses to list and to watch Secrets
	kinds      kubernetes.Interface
	secrets    *informer.SharedIndexInformer[*corev1.Secret]
	maps       *informer.SharedIndexInformer[*corev1.ConfigMap]
	runs       atomic.Int64 // of the key that every run changes
	calmRuns   atomic.Int64 // of the key calm
}

const keys = 10_000

func name(i int) string { return fmt.Sprintf("site-%05d", i) }

// Keys that do something remarkable.
var failing, terminal, parked, hot, scheduled, calm = name(7), name(11), name(13), name(17), name(19), name(23)

func newWorld(t *testing.T) *world {
	w := &world{}
	server := reconciletest.NewServer(t, reconciletest.Options{})
	fill(t, kubernetes.NewForConfigOrDie(server.Config()))
	link := server.Link()
	link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if w.refusing.Load() && r.Resource.Resource == "secrets" && (r.Verb == "list" || r.Verb == "watch") {
			return reconciletest.AnswerWith(apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "",
				errors.New("the role does not allow it")))
		}
		return nil
	})
	elector, err := leaderelection.New(leaderelection.Config{REST: link.Config(), Namespace: "default",
		Name: "sites", Identity: "sites-7d4b9", SkipFirstWait: true,
		LeaseDuration: 5 * time.Minute, RenewDeadline: 4 * time.Minute}) // a busy machine loses no leadership
	require.NoError(t, err)
	cfg, err := reconcile.ClientConfig(link.Config(), elector)
	require.NoError(t, err)
	w.kinds = kubernetes.NewForConfigOrDie(cfg)
	w.maps, err = informer.New[*corev1.ConfigMap](w.kinds.CoreV1().ConfigMaps("default"),
		informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
	require.NoError(t, err)
	w.secrets, err = informer.New[*corev1.Secret](w.kinds.CoreV1().Secrets("default"),
		informer.Options[*corev1.Secret]{Name: "secrets"})
	require.NoError(t, err)
	w.controller, err = reconcile.NewController("sites", reconcile.Func(w.reconcile), reconcile.Options{Workers: 5})
	require.NoError(t, err)
	reconcile.For(w.controller, w.maps)
	reconcile.Owns(w.controller, w.secrets, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	pages, err := serve.New(serve.Options{Address: ":0",
		Handlers: map[string]http.Handler{"/inspect/": inspect.Handler(inspect.Options{Actions: true})}})
	require.NoError(t, err)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{w.controller}, Elector: elector, Serve: pages.Run,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	w.await(t, "the keys have been reconciled", func() bool {
		s := w.controller.Inspect()
		return s.Runs > keys && s.Ready == 0
	})
	w.stageTheParkedKey(t, server)
	w.address = "http://" + pages.Address() + "/inspect/"
	return w
}

// fill creates the ConfigMaps.
func fill(t *testing.T, kinds kubernetes.Interface) {
	var group sync.WaitGroup
	for part := range 10 {
		group.Go(func() {
			for i := part; i < keys; i += 10 {
				_, err := kinds.CoreV1().ConfigMaps("default").Create(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// stageTheParkedKey has a key write a Secret that the cache cannot see.
func (w *world) stageTheParkedKey(t *testing.T, server *reconciletest.Server) {
	w.refusing.Store(true)
	server.CutWatches()
	w.await(t, "the cache is refused", func() bool { return w.secrets.Health().State != informer.Live })
	w.controller.Enqueue(reconcile.Key{Namespace: "default", Name: parked})
	w.await(t, "a key is parked", func() bool {
		w.controller.Enqueue(reconcile.Key{Namespace: "default", Name: parked})
		return w.state(parked) == status.KeyParked
	})
}

func (w *world) state(name string) status.KeyState {
	return w.controller.InspectKey(reconcile.Key{Namespace: "default", Name: name}).State
}

func (w *world) await(t *testing.T, what string, cond func() bool) {
	require.Eventually(t, cond, 2*time.Minute, 20*time.Millisecond, what)
}

func (w *world) reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	m, ok := w.maps.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	maps := w.kinds.CoreV1().ConfigMaps(key.Namespace)
	switch key.Name {
	case failing:
		m = m.DeepCopy()
		m.ResourceVersion, m.Data = "1", map[string]string{"a": "b"}
		_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
		return reconcile.Result{}, err
	case terminal:
		return reconcile.Result{}, reconcile.Terminal(errors.New("the site has no name"))
	case parked:
		if !w.refusing.Load() {
			return reconcile.Result{}, nil
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: key.Name + "-tls",
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(m, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}}}
		_, err := w.kinds.CoreV1().Secrets(key.Namespace).Create(ctx, s, metav1.CreateOptions{})
		return reconcile.Result{}, err
	case hot:
		_, err := maps.Patch(ctx, key.Name, types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"annotations":{"checked":"%d"}}}`, w.runs.Add(1)), metav1.PatchOptions{})
		return reconcile.Result{}, err
	case calm:
		w.calmRuns.Add(1)
	case scheduled:
		return reconcile.Result{RequeueAfter: 42 * time.Minute}, nil
	}
	return reconcile.Result{}, nil
}

func namespaced(name string) reconcile.Key { return reconcile.Key{Namespace: "default", Name: name} }
