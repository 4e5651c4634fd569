package reconcile

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// Fencer keeps a process from writing while it does not lead, as *leaderelection.Elector does.
type Fencer interface {
	Fence(next http.RoundTripper) http.RoundTripper
}

// ClientConfig returns a copy of cfg, to make all clients of a controller from: those of its informers and those that
// its Reconciler writes with.
//
//	cfg, err := reconcile.ClientConfig(base, elector) // without leader election: reconcile.ClientConfig(base)
//
// The copy has [TrackWrites], so a key runs again only when the caches show what its last run wrote, and the Fence of
// the elector. A request passes the Fence first and TrackWrites second. So a write that the Fence refuses is never sent
// and not waited for, and one that the Fence cuts off is waited for like any whose answer was lost. The elector itself
// is made from base, since it writes its Lease in order to lead. A nil elector is none.
//
// Nothing can notice a client that is made from base by mistake, if the informers' clients are made from the copy: its
// writes are not waited for and not fenced.
//
// Unless base says otherwise, the copy has no client-side limit of requests, where client-go has one of 5 a second, and
// it has the name of the program as user agent. The API server's priority and fairness limits clients. What it refuses
// is tried again after the pause that it asks for, each key by itself; with an [informer.Gate] the whole process waits.
//
// The error is that of a base that is nil, or has no Host, or a Burst and no QPS.
func ClientConfig(base *rest.Config, electors ...Fencer) (*rest.Config, error) {
	cfg, err := kube.ClientConfig(base)
	if err != nil {
		return nil, fmt.Errorf("ClientConfig: %w", err)
	}
	cfg.Wrap(TrackWrites)
	for _, e := range electors {
		if !kube.IsNil(e) {
			cfg.Wrap(e.Fence)
		}
	}
	return cfg, nil
}

// TrackWrites makes controllers consistent with their own writes. What [ClientConfig] returns has it. By itself it
// takes one line, on the rest.Config that all clients are made from:
//
//	config.Wrap(reconcile.TrackWrites)
//
// From then on every create, update, patch, apply and delete that a Reconcile makes with its ctx, through any kind of
// client, is recorded for the key, and the key is not reconciled again before the informers of its controller have
// seen the write. Without it, a controller creates a pod, is called again a millisecond later because of an unrelated
// change, finds no pod in the cache and creates a second one. The file internals.md has a picture of all of this.
//
// A write is waited for in each informer of the controller that may see it. The answer to the write tells the object's
// namespace, labels and UID; the informer's own requests tell what it selects. That is why the informers' clients need
// the same configuration: Run fails if some of them have it and some have not. Where the answer does not tell whether
// the informer selects the object, as with a field selector on anything but name and namespace, or where it does not
// but may have before, the key waits all the same: until the informer has reached the version of the write, or, after a
// second, has listed anew. Dry runs are not waited for, and neither are subresources that answer with something else
// than the object: binding, eviction and token. For clients that have no transport to wrap there are [Wrote] and
// [Deleted].
//
// A write that is under way when its call of Reconcile returns, on a goroutine of its own, holds the key back until it
// is answered. That ends with the answer: nothing is under way while client-go waits to repeat a refused request, so a
// goroutine that outlives its call may write during the next one. What the functions of ManagerOptions.WhileLeading
// write with their ctx no key waits for, but the next leader does: see [Elector].
//
// A lost answer (a timeout, a broken connection, a 5xx) leaves open whether the write has happened. TrackWrites
// assumes neither: the informers of that resource list anew, once, and then the key runs. A write that the server
// carries out even later than that cannot be detected, so an object that must not exist twice needs a name that is
// not generated: see [github.com/thermostat-go/thermostat/reconcile/objects.CreateOwned]. These outcomes prove that
// nothing was written, and leave nothing open: a 4xx, unless it ends the deletion of a whole collection; an answer
// that says that an admission webhook has failed or denied the request, unless the request is a deletion; an error
// from before there was a connection; and an error of a transport below that has not sent the request and says so
// with a method NotSent() bool, as the error of leaderelection's Fence does. TrackWrites and Fence may wrap a
// transport in either order.
func TrackWrites(next http.RoundTripper) http.RoundTripper { return writes.Track(next) }
