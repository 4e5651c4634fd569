package reconcile_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestNoRunOnACacheOlderThanOwnWrites runs a controller that gives each parent one child under a generated name,
// changes it, deletes it and makes another, all the time, while its cache lags by a twentieth of a second behind the
// server. A recorder compares what the cache has at the beginning of each run with what the runs before have written.
// The same controller without TrackWrites is found out, so the recorder is able to: there the cache lags by a second,
// more than a write takes on a busy machine.
func TestNoRunOnACacheOlderThanOwnWrites(t *testing.T) {
	c := testcluster.Shared(t)
	parents, runs := 40, int64(600)
	if os.Getenv("THERMOSTAT_SOAK") != "" {
		parents, runs = 200, 10_000
	}
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			r := lagBehind(t, c, parents, 50*time.Millisecond, func(cfg *rest.Config) {
				cfg.ContentType = contentType
				cfg.Wrap(reconcile.TrackWrites)
			}, func(r *recorder) bool { return r.runs.Load() >= runs })
			t.Logf("with TrackWrites: %s", r)
			require.Zero(t, r.stale.Load(), "runs on a cache older than own writes")
			require.Zero(t, r.duplicates.Load(), "children beside another one")

			r = lagBehind(t, c, parents, time.Second, func(cfg *rest.Config) { cfg.ContentType = contentType },
				func(r *recorder) bool { return r.stale.Load() > 0 && r.duplicates.Load() > 0 })
			t.Logf("without: %s", r) // it ends only once both have gone wrong
		})
	}
}

// recorder knows what the runs of each key have written, in the order of their answers.
type recorder struct {
	runs, writes, stale, duplicates atomic.Int64
	took                            time.Duration

	mu       sync.Mutex
	children map[string]map[types.UID]uint64 // guarded by mu: the children that exist, by parent, and their versions
	deleted  map[types.UID]bool              // guarded by mu
}

func (r *recorder) String() string {
	return fmt.Sprintf("%d runs and %d writes in %s; %d runs on a cache older than own writes, %d duplicates",
		r.runs.Load(), r.writes.Load(), r.took.Round(time.Millisecond), r.stale.Load(), r.duplicates.Load())
}

// begin looks at what the cache has of a parent's children.
func (r *recorder) begin(parent string, cached []*corev1.ConfigMap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := map[types.UID]uint64{}
	stale := false
	for _, m := range cached {
		has[m.UID] = number(m.ResourceVersion)
		stale = stale || r.deleted[m.UID]
	}
	for uid, version := range r.children[parent] {
		stale = stale || has[uid] < version
	}
	if stale {
		r.stale.Add(1)
	}
	r.runs.Add(1)
}

func (r *recorder) wrote(parent string, m *corev1.ConfigMap, deleted bool) {
	r.writes.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if deleted {
		delete(r.children[parent], m.UID)
		r.deleted[m.UID] = true
		return
	}
	if r.children[parent] == nil {
		r.children[parent] = map[types.UID]uint64{}
	}
	if _, known := r.children[parent][m.UID]; !known && len(r.children[parent]) > 0 {
		r.duplicates.Add(1)
	}
	r.children[parent][m.UID] = number(m.ResourceVersion)
}

func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// lagBehind runs the controller until it has been called often enough.
func lagBehind(t *testing.T, c *testcluster.Cluster, parents int, lag time.Duration, configure func(*rest.Config),
	enough func(*recorder) bool) *recorder {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cfg := c.Config()
	cfg.QPS, cfg.Burst = 2000, 2000
	configure(cfg)
	namespace := c.Namespace(t)
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(namespace)
	lagging := kubernetes.NewForConfigOrDie(behindLag(t, cfg, lag)).CoreV1().ConfigMaps(namespace)

	children, err := informer.New[*corev1.ConfigMap](lagging, informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	byParent, err := informer.AddIndex(children, func(m *corev1.ConfigMap, add func(string)) {
		if parent, ok := m.Labels["parent"]; ok {
			add(parent)
		}
	})
	require.NoError(t, err)
	r := &recorder{children: map[string]map[types.UID]uint64{}, deleted: map[types.UID]bool{}}
	controller, err := reconcile.NewController("children",
		reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			var has []*corev1.ConfigMap
			for m := range byParent.Get(key.Name) {
				has = append(has, m)
			}
			r.begin(key.Name, has)
			var written *corev1.ConfigMap
			var err error
			deleting := len(has) > 0 && has[0].Data["age"] == "3"
			switch {
			case len(has) == 0:
				written, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: key.Name +
					"-", Labels: map[string]string{"parent": key.Name}}}, metav1.CreateOptions{})
			case deleting:
				written, err = has[0], maps.Delete(ctx, has[0].Name, metav1.DeleteOptions{})
			default:
				older := has[0].DeepCopy()
				older.Data = map[string]string{"age": older.Data["age"] + "1"}
				if len(older.Data["age"]) == 3 {
					older.Data["age"] = "3"
				}
				written, err = maps.Update(ctx, older, metav1.UpdateOptions{})
			}
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return reconcile.Result{RequeueAfter: time.Second}, nil // of a stale cache, again
			}
			if err == nil {
				r.wrote(key.Name, written, deleting)
			}
			return reconcile.Result{}, err
		}), reconcile.Options{Workers: 20})
	require.NoError(t, err)
	reconcile.Watches(controller, children, func(m *corev1.ConfigMap) []reconcile.Key {
		if parent, ok := m.Labels["parent"]; ok {
			return []reconcile.Key{{Namespace: namespace, Name: parent}}
		}
		return nil
	})
	// Somebody else has a reason to look at some parents all the time, at fewer than there are workers, and at others
	// after a while.
	hints := make(chan int)
	reconcile.WatchesChan(controller, "hints", hints, func(i int) []reconcile.Key {
		return []reconcile.Key{{Namespace: namespace, Name: fmt.Sprintf("parent-%d", i)}}
	})
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{controller}})
	require.NoError(t, err)
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- m.Run(ctx) }()
	for i := 0; !enough(r); i++ {
		select {
		case hints <- (int(time.Since(began)/(200*time.Millisecond))*16 + i%16) % parents:
			if i%20 == 0 {
				time.Sleep(time.Millisecond)
			}
		case <-ctx.Done():
			require.Fail(t, "not often enough in time", "%s", r)
		}
	}
	r.took = time.Since(began)
	cancel()
	require.NoError(t, <-done)
	return r
}
