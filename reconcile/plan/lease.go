package plan

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// freer lets a Lease be held by nobody as soon as the program asks for it by its name, as electors do: the program
// leads at once, and the one that runs in the cluster goes on. A program that lists Leases, to see who lives, sees them
// as they are.
type freer struct {
	client kubernetes.Interface // past the recorder

	mu   sync.Mutex
	done map[types.NamespacedName]bool // guarded by mu: those that the program may hold since then
}

func newFreer(fork *rest.Config) (*freer, error) {
	client, err := kubernetes.NewForConfig(fork)
	return &freer{client: client, done: make(map[types.NamespacedName]bool)}, err
}

// nodeLeases is the namespace of the Leases by which nodes show that they live.
const nodeLeases = "kube-node-lease"

// asked is called before a request is served.
func (f *freer) asked(ctx context.Context, req reconciletest.Request) error {
	at := types.NamespacedName{Namespace: req.Namespace, Name: req.Name}
	if req.Verb != "get" || req.Resource.GroupResource() != leases || req.Namespace == nodeLeases {
		return nil
	}
	f.mu.Lock() // until it is free: a second request would take it from the program
	defer f.mu.Unlock()
	if f.done[at] {
		return nil
	}
	c := f.client.CoordinationV1().Leases(req.Namespace)
	lease, err := c.Get(ctx, req.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // and the program may make it
		f.done[at] = true
		return nil
	case err != nil:
		return nil // the program gets that answer, too, and asks again
	}
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new(""), new(int32(1))
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	if _, err = c.Update(ctx, lease, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return err
	}
	f.done[at] = true // at a conflict the program itself has written it
	return nil
}
