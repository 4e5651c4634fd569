package informer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
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
		require.ErrorIs(t, secrets.Fresh(metav1.NamespaceAll), informer.ErrStopped)
	})
}

// Objects share what they have in common only if nobody changes them.
func TestATransformChangesNoOtherObject(t *testing.T) {
	const manySecrets = 40 // the first 32 share nothing
	client := func(e *estate) func(string) *informer.Resource[*corev1.Secret] {
		r, err := informer.NewResource[*corev1.Secret](e.server.Config(),
			corev1.SchemeGroupVersion.WithResource("secrets"), informer.ResourceOptions{})
		require.NoError(e, err)
		return r.In
	}
	type cache = informer.SharedIndexInformer[*corev1.Secret]
	for name, makeCache := range map[string]func(*estate, informer.Options[*corev1.Secret]) (*cache, error){
		"New": func(e *estate, opts informer.Options[*corev1.Secret]) (*cache, error) {
			return informer.New(client(e)("shop"), opts)
		},
		"NewNamespaced": func(e *estate, opts informer.Options[*corev1.Secret]) (*cache, error) {
			return informer.NewNamespaced(client(e), []string{"shop"}, opts)
		},
		"NewReferenced": func(e *estate, opts informer.Options[*corev1.Secret]) (*cache, error) {
			r, err := informer.NewReferenced(client(e), opts)
			r.NamedBy(func(informer.Key) bool { return true })
			for i := range manySecrets {
				r.Recheck(secretKey(fmt.Sprint("secret-", i)))
			}
			return r.SharedIndexInformer, err
		},
	} {
		for _, changes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,changes=%t", name, changes), func(t *testing.T) {
				inEstate(t, func(e *estate) {
					opts := informer.Options[*corev1.Secret]{}
					if changes {
						opts.Transform = func(s *corev1.Secret) (*corev1.Secret, error) {
							s.Labels["name"] = s.Name
							return s, nil
						}
					}
					secrets, err := makeCache(e, opts)
					require.NoError(e, err)
					ctx, cancel := context.WithCancel(e.Context())
					stopped := make(chan error, 1)
					go func() { stopped <- secrets.Run(ctx) }()
					var held []*corev1.Secret
					for i := range manySecrets {
						name := fmt.Sprint("secret-", i)
						s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name,
							Labels: map[string]string{"app": []string{"shop", "bank", "post"}[i%3]}}}
						_, err := e.theirs.CoreV1().Secrets("shop").Create(ctx, s, metav1.CreateOptions{})
						require.NoError(e, err)
						synctest.Wait()
						s, exists := secrets.Get(secretKey(name))
						require.True(e, exists)
						held = append(held, s)
					}
					if changes {
						for i := range manySecrets {
							require.Equal(e, fmt.Sprint("secret-", i), held[i].Labels["name"])
						}
					} else {
						require.NotZero(e, wiretest.SharedLabels(held))
					}
					cancel()
					require.NoError(e, <-stopped)
				})
			})
		}
	}
}
