package informer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
)

// A namespace alone names no object: to follow it would be to follow all that is in it.
func TestAKeyWithoutANameNamesNothing(t *testing.T) {
	inEstate(t, func(e *estate) {
		nameless := informer.Key{Namespace: "shop"}
		e.name(nameless, true)
		e.name(informer.Key{}, true)
		synctest.Wait()
		require.Empty(t, e.link.Requests())
		for _, key := range []informer.Key{nameless, {}} {
			_, _, err := e.secrets.Get(key)
			require.ErrorIs(t, err, informer.ErrNotNamed)
		}
	})
}

// A cache that follows nothing has no list-watch to ask for its state.
func TestTheStateOfACacheThatFollowsNothing(t *testing.T) {
	inEstate(t, func(e *estate) {
		secrets := e.cache(e.server.Config(), informer.Options[*corev1.Secret]{})
		require.Equal(t, informer.Listing, secrets.Health().State)
		ctx, cancel := context.WithCancel(e.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- secrets.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, informer.Live, secrets.Health().State)
		require.NoError(t, secrets.Fresh(metav1.NamespaceAll))
		cancel()
		require.NoError(t, <-stopped)
		require.Equal(t, informer.Stopped, secrets.Health().State)
	})
}
