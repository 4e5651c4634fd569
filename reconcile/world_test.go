package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// world is an API server in memory on which a process is at work that gives each ReplicaSet its pods. The controller in
// that process is as simple as can be: it believes its caches, makes pods under generated names, and keeps no account
// of what it has done. So each run on a cache that is older than the controller's own writes shows, as a pod too many.
type world struct {
	t      *testing.T
	server *reconciletest.Server
	admin  kubernetes.Interface // over a link without faults

	mu sync.Mutex
	// Guarded by mu: what a watch without faults has seen of pods.
	made, gone map[types.UID]bool
	peak       int // the most that there were at once, not counting those that were on their way out
	live       map[types.UID]bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := reconciletest.NewServer(t, reconciletest.Options{})
	w := &world{t: t, server: server, made: map[types.UID]bool{}, gone: map[types.UID]bool{},
		live: map[types.UID]bool{}}
	w.admin = w.clients(server.Link())
	seen, err := w.admin.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { defer close(ended); w.observe(seen.ResultChan()) }()
	t.Cleanup(func() { seen.Stop(); <-ended })
	return w
}

func (w *world) clients(link *reconciletest.Link) kubernetes.Interface {
	clients, err := kubernetes.NewForConfig(link.Config())
	require.NoError(w.t, err)
	return clients
}

func (w *world) observe(events <-chan watch.Event) {
	for e := range events {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		w.mu.Lock()
		switch {
		case e.Type == watch.Deleted || pod.DeletionTimestamp != nil:
			w.gone[pod.UID] = true
			delete(w.live, pod.UID)
		default:
			w.made[pod.UID], w.live[pod.UID] = true, true
			w.peak = max(w.peak, len(w.live))
		}
		w.mu.Unlock()
	}
}

// tally is how many pods there have ever been, how many of them are gone, and how many there were at once.
type tally struct{ made, gone, peak int }

func (w *world) tally() tally {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return tally{len(w.made), len(w.gone), w.peak}
}

// want makes a ReplicaSet ask for n pods, and creates it if need be.
func (w *world) want(name string, n int32) {
	w.t.Helper()
	sets := w.admin.AppsV1().ReplicaSets("default")
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	_, err := sets.Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		labels := map[string]string{"app": name}
		_, err = sets.Create(w.t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				}},
		}, metav1.CreateOptions{})
	}
	require.NoError(w.t, err)
}

// touch changes a ReplicaSet in a way that means nothing to its controller.
func (w *world) touch(name string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now())
	_, err := w.admin.AppsV1().ReplicaSets("default").Patch(w.t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// lose deletes one of the pods of a ReplicaSet, as somebody else would.
func (w *world) lose(name string) {
	w.t.Helper()
	pods, err := w.admin.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(w.t, err)
	require.NotEmpty(w.t, pods.Items)
	require.NoError(w.t, w.admin.CoreV1().Pods("default").Delete(w.t.Context(), pods.Items[0].Name,
		metav1.DeleteOptions{}))
}

// settled reports whether a ReplicaSet has as many pods as it wants, and says so in its status.
func (w *world) settled(name string) bool {
	set, err := w.admin.AppsV1().ReplicaSets("default").Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	pods, err := w.admin.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(w.t, err)
	return len(pods.Items) == int(*set.Spec.Replicas) && set.Status.Replicas == *set.Spec.Replicas &&
		set.Status.ObservedGeneration == set.Generation
}

// settle waits until it is so, and stays so.
func (w *world) settle(name string) {
	w.t.Helper()
	for limit := time.Now().Add(time.Hour); !w.settled(name); time.Sleep(time.Second) {
		require.True(w.t, time.Now().Before(limit), "%s is not as it should be after an hour", name)
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	require.True(w.t, w.settled(name), "%s did not stay as it should be", name)
}

// story is what happens in most of the tests: ReplicaSet a gets pods, loses one, wants more, and wants fewer. All the
// while it is touched, so that there are reasons to run on a cache that is behind.
func (w *world) story() {
	w.t.Helper()
	for _, step := range []func(){
		func() { w.want("a", 3) },
		func() { w.lose("a") },
		func() { w.want("a", 5) },
		func() { w.want("a", 2) },
	} {
		step()
		for _, d := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second} {
			time.Sleep(d)
			w.touch("a") // a reason to run while the last run may not have been seen
		}
		w.settle("a")
	}
}

// storyTally is what the story comes to if nothing goes wrong: 3 pods, 1 in place of the lost one, 2 more; and the lost
// one and 3 others gone.
var storyTally = tally{made: 6, gone: 4, peak: 5}

// process is one life of the controller: its caches and its memory end with it.
type process struct {
	*world
	link       *reconciletest.Link
	clients    kubernetes.Interface
	controller *reconcile.Controller
	sets       *informer.SharedIndexInformer[*appsv1.ReplicaSet]
	pods       *informer.SharedIndexInformer[*corev1.Pod]
	byOwner    *informer.Index[types.UID, *corev1.Pod]
	cancel     context.CancelFunc
	ended      chan error // holds what Run has returned

	mu sync.Mutex
	// Guarded by mu. running are the keys that are being reconciled, writes what the last run of a key has written;
	// wrongs are the promises that were broken. stopped is set when the context of Run ends.
	running map[reconcile.Key]bool
	writes  map[reconcile.Key][]written
	wrongs  []string
	runs    int
	stopped bool
}

// written is an object as a write has left it; a version of zero: deleted.
type written struct {
	pod     bool
	key     reconcile.Key
	uid     types.UID
	version int64
}

// options are what a test changes about a process.
type options struct {
	untracked bool // its configuration is not wrapped with TrackWrites
	workers   int
	elector   reconcile.Elector
	prepare   func(*process) // is called before anything runs
}

func (w *world) start(o options) *process {
	w.t.Helper()
	p := &process{world: w, link: w.server.Link(), ended: make(chan error, 1), running: map[reconcile.Key]bool{},
		writes: map[reconcile.Key][]written{}}
	config := p.link.Config()
	if !o.untracked {
		config.Wrap(reconcile.TrackWrites)
	}
	var err error
	p.clients, err = kubernetes.NewForConfig(config)
	require.NoError(w.t, err)
	p.sets, err = informer.New[*appsv1.ReplicaSet](p.clients.AppsV1().ReplicaSets("default"),
		informer.Options[*appsv1.ReplicaSet]{})
	require.NoError(w.t, err)
	p.pods, err = informer.New[*corev1.Pod](p.clients.CoreV1().Pods("default"), informer.Options[*corev1.Pod]{})
	require.NoError(w.t, err)
	p.byOwner, err = informer.AddIndex(p.pods, func(pod *corev1.Pod, add func(types.UID)) {
		if owner := metav1.GetControllerOf(pod); owner != nil {
			add(owner.UID)
		}
	})
	require.NoError(w.t, err)
	p.controller, err = reconcile.NewController("replicas", reconcile.Func(p.watched),
		reconcile.Options{Workers: o.workers})
	require.NoError(w.t, err)
	reconcile.For(p.controller, p.sets)
	reconcile.Owns(p.controller, p.pods, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{p.controller},
		Elector: o.elector})
	require.NoError(w.t, err)
	if o.prepare != nil {
		o.prepare(p)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	p.cancel = cancel
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopped = true
	})
	go func() { p.ended <- m.Run(ctx) }()
	w.t.Cleanup(func() { p.stop() })
	return p
}

// stop ends the process in an orderly way and returns what Run returned. It may be called again.
func (p *process) stop() error {
	p.cancel()
	err := <-p.ended
	p.ended <- err
	return err
}

// kill ends the process as kill -9 does: nothing that it does counts any more.
func (p *process) kill() {
	p.link.Close()
	p.cancel()
}

// watched is the Reconciler: reconcile, and a look at the promises.
func (p *process) watched(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	p.mu.Lock()
	p.runs++
	if p.running[key] {
		p.wrong("two runs of %s at once", key)
	}
	p.running[key] = true
	if ctx.Err() != nil {
		p.wrong("a run of %s began with a context that had ended", key)
	}
	for _, w := range p.writes[key] {
		if !p.sees(w) {
			p.wrong("a run of %s on a cache that has not seen its write of %s", key, w.key)
		}
	}
	p.writes[key] = nil
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running[key] = false
	}()
	return reconcile.Result{}, p.reconcile(ctx, key)
}

// wrong notes that a promise was broken. The caller holds mu.
func (p *process) wrong(format string, args ...any) {
	p.wrongs = append(p.wrongs, fmt.Sprintf(format, args...))
}

// sees reports whether the cache has seen a write.
func (p *process) sees(w written) bool {
	var held metav1.Object
	reached := p.sets.ResourceVersion(metav1.NamespaceAll)
	if w.pod {
		reached = p.pods.ResourceVersion(metav1.NamespaceAll)
		if pod, ok := p.pods.Get(w.key); ok {
			held = pod
		}
	} else if set, ok := p.sets.Get(w.key); ok {
		held = set
	}
	if w.version == 0 {
		return held == nil || held.GetUID() != w.uid || held.GetDeletionTimestamp() != nil
	}
	return versionOf(reached) >= w.version || held != nil && versionOf(held.GetResourceVersion()) >= w.version
}

func versionOf(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64)
	return n
}

// wrote notes a write, for the next run to be held against.
func (p *process) wrote(key reconcile.Key, pod bool, o metav1.Object, deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := written{pod: pod, key: reconcile.Key{Namespace: o.GetNamespace(), Name: o.GetName()}, uid: o.GetUID(),
		version: versionOf(o.GetResourceVersion())}
	if deleted {
		w.version = 0
	}
	p.writes[key] = append(p.writes[key], w)
}

func (p *process) reconcile(ctx context.Context, key reconcile.Key) error {
	set, ok := p.sets.Get(key)
	if !ok {
		return nil
	}
	var mine []*corev1.Pod
	for pod := range p.byOwner.Get(set.UID) {
		if pod.DeletionTimestamp == nil {
			mine = append(mine, pod)
		}
	}
	slices.SortFunc(mine, func(a, b *corev1.Pod) int {
		return int(
			versionOf(a.ResourceVersion) - versionOf(b.ResourceVersion))
	})
	pods := p.clients.CoreV1().Pods(key.Namespace)
	n := int(*set.Spec.Replicas)
	for range n - len(mine) {
		pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(),
			Spec: *set.Spec.Template.Spec.DeepCopy()}
		pod.GenerateName = set.Name + "-"
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set,
			appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		p.wrote(key, true, made, false)
	}
	for i := n; i < len(mine); i++ {
		err := pods.Delete(ctx, mine[i].Name, *metav1.NewPreconditionDeleteOptions(string(mine[i].UID)))
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		p.wrote(key, true, mine[i], true)
	}
	if n != len(mine) {
		return nil // the pods that were made or deleted bring the key back
	}
	updated, err := objects.UpdateStatus(ctx, p.clients.AppsV1().ReplicaSets(key.Namespace), set,
		func(set *appsv1.ReplicaSet) error {
			set.Status.Replicas, set.Status.ObservedGeneration = int32(len(mine)), set.Generation
			return nil
		})
	switch {
	case errors.Is(err, objects.ErrGone):
		return nil
	case err == nil && updated != set:
		p.wrote(key, false, updated, false)
	}
	return err
}

// requireKept fails the test if a promise was broken in the process.
func (p *process) requireKept() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.wrongs)
	require.NotZero(p.t, p.runs)
}

// numbered returns a hook that gives a fault to the nth write that passes it, counted from 1, and counts.
func numbered(n int, fault reconciletest.Fault) (hook func(reconciletest.Request) reconciletest.Fault,
	count func() int) {
	var mu sync.Mutex
	writes := 0
	hook = func(r reconciletest.Request) reconciletest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !r.Writes() || r.Resource.Resource == "leases" {
			return nil
		}
		if writes++; writes == n {
			return fault
		}
		return nil
	}
	return hook, func() int { mu.Lock(); defer mu.Unlock(); return writes }
}

// storyWrites is how many writes the process makes in the story, if nothing goes wrong.
func storyWrites(t *testing.T) (writes int) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook, count := numbered(0, nil)
		p := w.start(options{prepare: func(p *process) { p.link.Inject(hook) }})
		w.story()
		require.Equal(t, storyTally, w.tally())
		p.requireKept()
		writes = count()
	})
	require.GreaterOrEqual(t, writes, 9)
	return writes
}
