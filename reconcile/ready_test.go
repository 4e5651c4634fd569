package reconcile_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestNotReadyWhileTheLeaseIsRefused: a rollout must not replace a process that leads by one that never can. When the
// Role comes, the process is ready, and leads, within 5 s.
func TestNotReadyWhileTheLeaseIsRefused(t *testing.T) {
	for _, verb := range []string{"get", "create"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := reconciletest.NewServer(t, reconciletest.Options{}).Link()
				var granted atomic.Bool
				link.Inject(func(r reconciletest.Request) reconciletest.Fault {
					if r.Resource.Resource != "leases" || r.Verb != verb || granted.Load() {
						return nil
					}
					return reconciletest.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "lock",
						errors.New("no Role")))
				})
				elector, err := leaderelection.New(leaderelection.Config{REST: link.Config(), Namespace: "default",
					Name: "lock", SkipFirstWait: true})
				require.NoError(t, err)
				led := make(chan struct{}, 10)
				m, err := reconcile.NewManager(reconcile.ManagerOptions{Elector: elector,
					WhileLeading: map[string]func(context.Context) error{
						"it": func(context.Context) error { led <- struct{}{}; return nil }}})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- m.Run(ctx) }()
				for range 5 {
					time.Sleep(10 * time.Minute)
					require.Equal(t, []string{"this process could not lead because of 403 Forbidden"},
						m.Inspect().NotReady)
				}
				granted.Store(true)
				time.Sleep(5 * time.Second)
				require.Empty(t, m.Inspect().NotReady)
				require.Len(t, led, 1)
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}
