package command

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
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

// The clients of all resources share the rate limit of the flags.
func TestOneRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		cfg := server.Config()
		cfg.QPS, cfg.Burst = 1, 1
		enough := errors.New("enough is seen")
		p := testProgram
		p.New = func(e Environment) (Parts, error) {
			pods, err := informer.NewResource[*corev1.Pod](e.Config, corev1.SchemeGroupVersion.WithResource("pods"),
				informer.ResourceOptions{})
			require.NoError(t, err)
			nodes, err := informer.NewResource[*corev1.Node](e.Config, corev1.SchemeGroupVersion.WithResource("nodes"),
				informer.ResourceOptions{})
			require.NoError(t, err)
			began := time.Now()
			for range 2 {
				_, err = pods.List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				_, err = nodes.List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
			}
			require.Equal(t, 3*time.Second, time.Since(began), "four requests at one per second")
			return Parts{}, enough
		}
		require.ErrorIs(t, p.Operate(t.Context(), cfg, nil, Options{Workers: 1, QPS: 1, Burst: 1}), enough)
	})
}
