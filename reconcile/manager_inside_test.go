package reconcile

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/fakeapi"
)

type cachedMaps = informer.SharedIndexInformer[*corev1.ConfigMap]

// newMaps is an informer of no ConfigMaps.
func newMaps(t testing.TB) *cachedMaps {
	api := fakeapi.New[*corev1.ConfigMap](func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
	inf, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
	require.NoError(t, err)
	return inf
}

// newController is a controller that does nothing.
func newController(t testing.TB) *Controller {
	c, err := NewController("test", Func(func(context.Context, Key) (Result, error) { return Result{}, nil }),
		Options{})
	require.NoError(t, err)
	return c
}

func TestARefusedManagerTakesNoCaches(t *testing.T) {
	c := newController(t)
	DependsOn(c, newMaps(t))
	first, err := NewManager(ManagerOptions{Controllers: []*Controller{c}})
	require.NoError(t, err)
	_, err = NewManager(ManagerOptions{Controllers: []*Controller{c}})
	require.Error(t, err)
	require.Same(t, first.informers[0].learner, c.ledger.Caches()[0].Learner)
}

// What is refused is not among what is missing after SyncTimeout.
func TestNothingIsMissingThatIsNotWaitedFor(t *testing.T) {
	inf := newMaps(t)
	m := &Manager{informers: []*managedInformer{{Informer: inf}}}
	ended, end := context.WithCancel(t.Context())
	end()
	require.Error(t, m.missingCaches(ended, nil))
	require.NoError(t, m.missingCaches(ended, map[Informer]bool{inf: true}))
}
