package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// FuzzNeeds plays histories of tenants that name namespaces, no longer name them and go, under faults. Each run of a
// tenant takes a Secret of its own out of each namespace if there is one, and makes it if there is none. A conflict, or
// a Secret that is not found, shows a run on a cache from before a write of its own key. Once the faults are over, each
// tenant runs and sees all of its namespaces, and what is followed is what is named.
func FuzzNeeds(f *testing.F) {
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 38))
		script := make([]byte, 240)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) {
			server := reconciletest.NewServer(t, reconciletest.Options{
				Namespaces: []string{"n0", "n1", "n2", "n3", landlord}})
			e := newEstate(t, server)
			e.options.AllowHotLoops, e.options.Workers = true, 3
			e.act = e.flip
			e.start()
			named := map[string][]string{}
			for len(script) >= 3 {
				e.step(script[0], script[1], script[2], named)
				script = script[3:]
			}
			e.link.DelayWatches("secrets", 0)
			e.link.DelayWatches("configmaps", 0)
			for i := range 4 {
				e.fail(fmt.Sprint("n", i), nil)
			}
			e.lose(0)
			time.Sleep(time.Hour)
			follows := map[string]bool{}
			for tenant, namespaces := range named {
				e.saw(tenant)
				e.Enqueue(tenantKey(tenant))
				time.Sleep(time.Hour)
				saw := e.saw(tenant)
				require.NotEmpty(t, saw, "%s: %s", tenant, e.Why(tenantKey(tenant)))
				for _, namespace := range namespaces {
					follows[namespace] = true
					require.Contains(t, saw[len(saw)-1], namespace+":")
				}
			}
			var parts []string
			for _, part := range e.family().Namespaces {
				parts = append(parts, part.Name)
			}
			require.Equal(t, slices.Sorted(maps.Keys(follows)), parts)
			require.Zero(t, e.Stats().Parked)
			require.NoError(t, e.stop())
		})
	})
}

// step is one event of a history.
func (e *estate) step(what, of, how byte, named map[string][]string) {
	tenant, namespace := fmt.Sprint("t", of%3), fmt.Sprint("n", how%4)
	switch what % 8 {
	case 0, 1, 2:
		var namespaces []string
		for i := range 4 {
			if how>>i&1 == 1 {
				namespaces = append(namespaces, fmt.Sprint("n", i))
			}
		}
		if _, exists := named[tenant]; !exists && len(namespaces) == 0 {
			return
		}
		e.tenant(tenant, namespaces...)
		if named[tenant] = namespaces; len(namespaces) == 0 {
			delete(named, tenant)
		}
	case 3:
		e.Enqueue(tenantKey(tenant))
	case 4:
		e.fail(namespace, []reconciletest.Fault{nil, reconciletest.Reset, reconciletest.Delay(3*time.Second, 0),
			reconciletest.AnswerWith(apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no")))}[of%4])
	case 5:
		e.link.DelayWatches([]string{"secrets", "configmaps"}[of%2],
			[]time.Duration{0, time.Second, 30 * time.Second}[how%3])
	case 6:
		e.lose(of % 4)
	case 7:
		e.link.CutWatches()
	}
	time.Sleep([]time.Duration{0, time.Millisecond, time.Second, time.Minute}[of/4%4])
}

// lose lets the answers to one of so many writes be lost; zero: to none.
func (e *estate) lose(oneOf byte) {
	e.losing.Store(int64(oneOf))
}

// flip takes a Secret out of each namespace that a tenant names, or makes it.
func (e *estate) flip(ctx context.Context, tenant *corev1.ConfigMap) error {
	var errs []error
	for _, namespace := range namespacesOf(tenant) {
		inf, err := e.secrets.Get(namespace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		own, secrets := secretOf("own-"+tenant.Name, ""), e.clients.CoreV1().Secrets(namespace)
		if _, exists := inf.Get(nameIn(namespace, own.Name)); exists {
			err = secrets.Delete(ctx, own.Name, metav1.DeleteOptions{})
		} else {
			_, err = secrets.Create(ctx, own, metav1.CreateOptions{})
		}
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			e.Errorf("a run of %s has seen a cache of %s from before its own write: %v", tenant.Name, namespace, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
