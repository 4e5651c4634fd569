package clientgo

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// These are for the tests that compile with the oldest client-go as well.

// run runs an informer until the end of the test, and returns how to stop it earlier, and wait.
func run(t *testing.T, inf interface{ RunWithContext(context.Context) }) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	synctest.Wait()
	return stop
}

func add(t *testing.T, inf cache.SharedInformer, h cache.ResourceEventHandler,
	resync ...time.Duration) cache.ResourceEventHandlerRegistration {
	var opts cache.HandlerOptions
	if len(resync) > 0 {
		opts.ResyncPeriod = &resync[0]
	}
	r, err := inf.AddEventHandlerWithOptions(h, opts)
	require.NoError(t, err)
	return r
}

// storeVersion is LastStoreSyncResourceVersion, which the interface of the oldest client-go does not have.
func storeVersion(inf cache.SharedInformer) string {
	return inf.GetStore().(interface{ LastStoreSyncResourceVersion() string }).LastStoreSyncResourceVersion()
}

func configMap(name string, labels ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		m.Labels[l] = ""
	}
	return m
}
