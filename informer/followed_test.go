package informer_test

import (
	"context"
	"fmt"
	"reflect"
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

// Objects share what they have in common only if nobody changes them.
func TestATransformOfNamedObjectsChangesNoOtherObject(t *testing.T) {
	inEstate(t, func(e *estate) {
		client, err := informer.NewResource[*corev1.Secret](e.server.Config(),
			corev1.SchemeGroupVersion.WithResource("secrets"), informer.ResourceOptions{})
		require.NoError(t, err)
		for _, changes := range []bool{false, true} {
			opts := informer.Options[*corev1.Secret]{}
			if changes {
				opts.Transform = func(s *corev1.Secret) (*corev1.Secret, error) {
					s.Labels["name"] = s.Name
					return s, nil
				}
			}
			secrets, err := informer.NewReferenced(client.In, opts)
			require.NoError(t, err)
			secrets.NamedBy(func(informer.Key) bool { return true })
			ctx, cancel := context.WithCancel(e.Context())
			stopped := make(chan error, 1)
			go func() { stopped <- secrets.Run(ctx) }()
			var held []*corev1.Secret
			for _, name := range []string{"one", "other"} {
				key := informer.Key{Namespace: "shop", Name: fmt.Sprint(name, changes)}
				_, err := e.theirs.CoreV1().Secrets("shop").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
					Name: key.Name, Labels: map[string]string{"app": "shop"}}}, metav1.CreateOptions{})
				require.NoError(t, err)
				secrets.Recheck(key)
				synctest.Wait()
				s, exists, err := secrets.Get(key)
				require.NoError(t, err)
				require.True(t, exists)
				held = append(held, s)
			}
			if changes {
				require.Equal(t, []string{"onetrue", "othertrue"}, []string{held[0].Labels["name"], held[1].Labels["name"]})
			} else {
				require.Equal(t, reflect.ValueOf(held[0].Labels).Pointer(), reflect.ValueOf(held[1].Labels).Pointer())
			}
			cancel()
			require.NoError(t, <-stopped)
		}
	})
}
