package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// world is an API server in memory with a user, for a test of one step. Its time is virtual: to sleep for an hour takes
// no time. Its log, which go test -v shows, begins at midnight.
type world struct {
	*testing.T
	step   int
	server *reconciletest.Server
	user   cluster // a client without faults

	mu   sync.Mutex // guards what is below
	pods int        // that exist now
	most int        // that have existed at the same time
}

// inWorld calls test with a world of its own for each of some steps.
func inWorld(t *testing.T, first, last int, test func(w *world)) {
	for step := first; step <= last; step++ {
		t.Run(fmt.Sprint("step", step), func(t *testing.T) {
			defer log.SetOutput(os.Stderr)
			synctest.Test(t, func(t *testing.T) {
				log.SetFlags(log.Ltime | log.Lmicroseconds)
				log.SetOutput(t.Output())
				w := &world{T: t, step: step,
					server: reconciletest.NewServer(t, reconciletest.Options{Roles: []string{"rbac.yaml"}})}
				var err error
				w.user, err = connect(w.server.Config(), "default")
				require.NoError(t, err)
				events, err := w.user.pods.Watch(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				var g sync.WaitGroup
				g.Go(func() { w.count(events) })
				test(w)
				events.Stop()
				g.Wait()
			})
		})
	}
}

// count keeps the number of pods up to date.
func (w *world) count(events watch.Interface) {
	for e := range events.ResultChan() {
		w.mu.Lock()
		switch e.Type {
		case watch.Added:
			w.pods++
		case watch.Deleted:
			w.pods--
		}
		w.most = max(w.most, w.pods)
		w.mu.Unlock()
	}
}

// after lets time pass, and returns the number of pods then, and how many there have been at most.
func (w *world) after(d time.Duration) (pods, most int) {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods, w.most
}

// connection is a way from a process to the server, with the rights of rbac.yaml. The tests break it.
func (w *world) connection() *reconciletest.Link {
	return w.server.LinkAs(reconciletest.ServiceAccount("default", "loop"))
}

// start starts a process that runs the step. The process ends with the test, or when stop is called.
func (w *world) start(l *reconciletest.Link) (stop func()) {
	c, err := connect(l.Config(), "default")
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(w.Context())
	var g sync.WaitGroup
	g.Go(func() {
		if err := steps[w.step-1](ctx, c); err != nil {
			log.Print(err)
		}
	})
	stop = func() { cancel(); g.Wait() }
	w.Cleanup(stop)
	return stop
}

// create creates a ConfigMap that asks for n pods.
func (w *world) create(name string, n int) {
	w.Helper()
	log.Printf("USER: wants %d pods for %s", n, name)
	_, err := w.user.configMaps.Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: ""}},
		Data:       map[string]string{"pods": strconv.Itoa(n)},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
}

// patch changes the ConfigMap web.
func (w *world) patch(patch string) {
	w.Helper()
	log.Printf("USER: changes web by %s", patch)
	_, err := w.user.configMaps.Patch(w.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w, err)
}

// touch changes something of the ConfigMap web that has nothing to do with its pods.
func (w *world) touch() { w.Helper(); w.patch(`{"metadata":{"annotations":{"color":"blue"}}}`) }

// deleteAPod deletes a pod of the ConfigMap web.
func (w *world) deleteAPod() {
	w.Helper()
	pod := reconciletest.List[*corev1.Pod](w.server, "pods", "default")[0]
	log.Printf("USER: deletes pod %s", pod.Name)
	require.NoError(w, w.user.pods.Delete(w.Context(), pod.Name, metav1.DeleteOptions{}))
}

// creations is a fault for each request that creates a pod.
func creations(fault reconciletest.Fault) func(reconciletest.Request) reconciletest.Fault {
	return func(r reconciletest.Request) reconciletest.Fault {
		if r.Verb == "create" && r.Resource.Resource == "pods" {
			return fault
		}
		return nil
	}
}

// firstCreation is a fault for the first request that creates a pod.
func firstCreation(fault reconciletest.Fault) func(reconciletest.Request) reconciletest.Fault {
	var once sync.Once
	return func(r reconciletest.Request) (first reconciletest.Fault) {
		if creations(fault)(r) != nil {
			once.Do(func() { first = fault })
		}
		return first
	}
}
