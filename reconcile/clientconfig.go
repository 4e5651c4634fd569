package reconcile

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/kube"
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
