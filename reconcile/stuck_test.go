package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
)

// forgetful is an Elector that keeps what lead has returned to itself. Its Lease is lost after a second.
type forgetful struct {
	leave time.Duration // how long it waits for lead after that
	terms int
}

func (f *forgetful) Run(ctx context.Context, lead func(context.Context) error) error {
	f.terms++
	tenure, lose := context.WithTimeout(ctx, time.Second)
	defer lose()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = lead(tenure)
	}()
	<-tenure.Done()
	select {
	case <-ended:
	case <-time.After(f.leave):
	}
	return nil
}

// TestTheManagerEndsWhenWorkGoesOn whatever the Elector makes of it: it does not campaign again beside a reconcile that
// is stuck.
func TestTheManagerEndsWhenWorkGoesOn(t *testing.T) {
	for name, elector := range map[string]*forgetful{
		"the Elector swallows the error":           {leave: time.Hour},
		"the Elector does not wait for its return": {leave: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung := make(chan struct{})
				defer close(hung)
				c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result,
					error) {
					<-hung
					return reconcile.Result{}, nil
				}, reconcile.Options{})
				reconcile.For(c, newMaps(t, newMapAPI()))
				c.Enqueue(parent)
				m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
					Elector:   elector,
					StopGrace: 5 * time.Second})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = m.Run(ctx)
				require.ErrorIs(t, err, reconcile.ErrStuck)
				require.NoError(t, ctx.Err(), "it has not waited to be told")
				require.Equal(t, 1, elector.terms)
			})
		})
	}
}
