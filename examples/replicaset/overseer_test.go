package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// An overseer watches the pods of a namespace, by its own means, and notes each moment at which a ReplicaSet had more
// of them than allowed.
type overseer struct {
	mu         sync.Mutex
	limits     map[string]limit                     // by the name of a ReplicaSet
	owned      map[string]map[types.UID]*corev1.Pod // active pods, by the name of their controller
	violations []string
}

// limit is how many pods are allowed. The watch of the overseer may lag: what happened up to a version is judged by
// what was allowed until then.
type limit struct {
	n      int
	former []former
}

type former struct {
	n     int
	until uint64
}

func oversee(t *testing.T, client kubernetes.Interface, namespace string) *overseer {
	o := &overseer{limits: map[string]limit{}, owned: map[string]map[types.UID]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			o.follow(ctx, client, namespace)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond): // while the API server is away
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
		require.Empty(t, o.violations, "too many pods")
	})
	return o
}

// forgive returns what has been noted so far, and forgets it.
func (o *overseer) forgive() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	noted := o.violations
	o.violations = nil
	return noted
}

// follow lists and watches until the watch breaks.
func (o *overseer) follow(ctx context.Context, client kubernetes.Interface, namespace string) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	o.mu.Lock()
	clear(o.owned)
	o.mu.Unlock()
	for i := range list.Items {
		o.see(&list.Items[i], false)
	}
	w, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return
		}
		o.see(pod, event.Type == watch.Deleted)
	}
}

func (o *overseer) see(pod *corev1.Pod, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, pods := range o.owned {
		delete(pods, pod.UID)
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if gone || owner == nil || !active(pod) {
		return
	}
	if o.owned[owner.Name] == nil {
		o.owned[owner.Name] = map[types.UID]*corev1.Pod{}
	}
	o.owned[owner.Name][pod.UID] = pod
	limit, known := o.limits[owner.Name]
	allowed := limit.n
	for _, f := range limit.former {
		if version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64); err == nil && version <= f.until {
			allowed = max(allowed, f.n)
		}
	}
	if n := len(o.owned[owner.Name]); known && n > allowed {
		o.violations = append(o.violations,
			fmt.Sprintf("%s: %s has %d pods, %d are allowed", time.Now().Format(time.StampMilli), owner.Name, n,
				allowed))
	}
}

func (o *overseer) allow(name string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limits[name] = limit{n, o.limits[name].former}
}

// allowAfter allows n pods after a version, and up to there what was allowed before.
func (o *overseer) allowAfter(version, name string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, known := o.limits[name]
	if !known {
		l.n = math.MaxInt
	}
	until, _ := strconv.ParseUint(version, 10, 64)
	o.limits[name] = limit{n, append(l.former, former{l.n, until})}
}

func (o *overseer) allowed(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limits[name].n
}
