package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// cut sets which pods the operator cannot reach.
func (w *world) cut(pods ...string) {
	etcd.now.lock.Lock()
	defer etcd.now.lock.Unlock()
	clear(etcd.now.cut)
	for _, pod := range pods {
		etcd.now.cut[pod] = true
	}
}

// lost sets whether the API server hears nothing of a pod's node: its pod is not ready then.
func (w *world) lost(pod string, lost bool) {
	etcd.now.lock.Lock()
	etcd.now.unready[pod] = lost
	etcd.now.lock.Unlock()
	now, err := w.pods.Get(w.Context(), pod, metav1.GetOptions{})
	require.NoError(w, err)
	now.Annotations = map[string]string{"touched": time.Now().String()} // the kubelet looks then
	_, err = w.pods.Update(w.Context(), now, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// names returns the members and the UIDs of their pods.
func (w *world) names() map[string]string {
	pods := map[string]string{}
	for _, pod := range ofMembers(reconciletest.List[*corev1.Pod](w.server, "pods", "default")) {
		pods[pod.Name] = string(pod.UID)
	}
	return pods
}

// away is longer than replaceAfterSeconds.
const away = 10 * time.Minute

// TestNetworks cuts networks for a while. The operator does nothing.
func TestNetworks(t *testing.T) {
	for what, test := range map[string]func(w *world){
		"the operator does not reach a member": func(w *world) {
			w.cut("a-2")
			time.Sleep(away)
			w.is(v1.Degraded, v1.ReasonUnreachable)
			w.is(v1.Available, v1.ReasonQuorum)
		},
		"the operator does not reach the leader": func(w *world) {
			w.cut(w.status().Leader)
			time.Sleep(away)
			w.is(v1.Degraded, v1.ReasonUnreachable)
		},
		"neither the operator nor the API server reaches a node": func(w *world) {
			w.cut("a-2")
			w.lost("a-2", true)
			time.Sleep(away)
			w.is(v1.Degraded, v1.ReasonUnreachable)
			w.lost("a-2", false)
		},
		"the same, and the leader does not say of whom it hears": func(w *world) {
			w.cut("a-2")
			w.lost("a-2", true)
			etcd.now.lock.Lock()
			etcd.now.mute = true
			etcd.now.lock.Unlock()
			time.Sleep(away)
			w.is(v1.Degraded, v1.ReasonUnreachable)
			w.lost("a-2", false)
		},
		"the operator reaches one member of three": func(w *world) {
			w.cut("a-2", "a-3")
			w.lost("a-2", true)
			time.Sleep(away)
			w.is(v1.Degraded, v1.ReasonUnreachable)
			w.lost("a-2", false)
		},
		"the operator reaches no member": func(w *world) {
			w.cut("a-1", "a-2", "a-3")
			w.lost("a-2", true)
			time.Sleep(away)
			w.is(v1.Available, v1.ReasonNoQuorum)
			w.lost("a-2", false)
		},
		"the same, and the spec allows to go on without a quorum": func(w *world) {
			require.NoError(w, w.patch(`{"spec":{"quorumLoss":{"policy":"Recover","afterSeconds":10}}}`))
			w.cut("a-1", "a-2", "a-3")
			w.lost("a-2", true)
			time.Sleep(away)
			w.is(v1.Available, v1.ReasonNoQuorum)
			w.lost("a-2", false)
		},
		"the operator does not reach the API server": func(w *world) {
			w.link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Reset })
			w.link.CutWatches()
			w.cut("a-2")
			w.lost("a-2", true)
			time.Sleep(away)
			w.link.Inject(nil)
			w.lost("a-2", false)
		},
	} {
		t.Run(what, func(t *testing.T) {
			inMemory(t, func(w *world) {
				w.create(3, "3.6.16")
				w.settles(3, "3.6.16")
				before := w.names()
				etcd.now.said()
				test(w)
				require.Empty(w, etcd.now.said(), "etcd was told to change")
				w.cut()
				w.settles(3, "3.6.16")
				w.is(v1.Degraded, v1.ReasonHealthy)
				require.Empty(w, etcd.now.said(), "etcd was told to change")
				require.Equal(w, before, w.names())
			})
		})
	}
}

// TestNothingIsGuessed loses a member for good while the operator does not reach the API server, or is refused by it.
// The member is replaced when the operator is served again.
func TestNothingIsGuessed(t *testing.T) {
	for what, fault := range map[string]reconciletest.Fault{
		"cut": reconciletest.Reset,
		"the requests arrive, and the answers do not": reconciletest.LoseAnswer,
	} {
		t.Run(what, func(t *testing.T) {
			inMemory(t, func(w *world) {
				w.create(3, "3.6.16")
				w.settles(3, "3.6.16")
				etcd.now.said()
				w.link.Inject(func(reconciletest.Request) reconciletest.Fault { return fault })
				w.link.CutWatches()
				require.NoError(w, w.claims.Delete(w.Context(), "a-2", metav1.DeleteOptions{}))
				require.NoError(w, w.pods.Delete(w.Context(), "a-2", metav1.DeleteOptions{}))
				time.Sleep(away)
				require.Empty(w, etcd.now.said(), "etcd was told to change")
				w.link.Inject(nil)
				time.Sleep(time.Minute)
				w.settles(3, "3.6.16")
				require.Contains(w, etcd.now.said(), "Remove a-2: it is lost; another one takes its place")
			})
		})
	}
}
