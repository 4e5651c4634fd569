package command

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
)

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, key := Backoff(), func(i int) reconcile.Key {
			return reconcile.Key{Namespace: "ns",
				Name: fmt.Sprint(i)}
		}
		for n := range 20 {
			require.Equal(t, min(5*time.Millisecond<<n, 1000*time.Second), limiter.When(key(0)))
		}
		limiter.Forget(key(0))
		for i := range 80 {
			require.Equal(t, 5*time.Millisecond, limiter.When(key(i)),
				"a success is a new beginning, and each has failures of its own")
		}
		for i := range 3 {
			require.Equal(t, time.Duration(i+1)*100*time.Millisecond, limiter.When(key(100+i)),
				"after 100 at once, 10 a second")
		}
	})
}
