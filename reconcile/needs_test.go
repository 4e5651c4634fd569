package reconcile

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// An informer whose handlers cannot be added is an error of the keys, and no mistake that ends the Manager. So is a
// panic of the function that adds them.
func TestAnInformerThatTakesNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t)
		c.manager = &Manager{opts: ManagerOptions{Controllers: []*Controller{c}}}
		inf := newMaps(t)
		ca := c.ledger.Join(inf, &writes.Learner{}, nil)
		ended, end := context.WithCancel(t.Context())
		end()
		require.NoError(t, inf.Run(ended))
		require.ErrorIs(t, openComer(c, inf, ca, nil), informer.ErrStopped)
		require.ErrorContains(t, openComer(c, inf, ca, func(*cachedMaps) { panic("no") }),
			"the function given to Needs of controller test")
		require.NoError(t, c.manager.failures.all())
	})
}
