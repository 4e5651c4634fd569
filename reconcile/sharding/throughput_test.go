package sharding

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestThroughputGrowsWithTheReplicas measures, in virtual time, how long replicas with ten workers each take for one
// run of each key, when all keys change at the same moment. A run reads from its cache, waits for 20 ms of something
// else, and writes. The largest share of the keys decides, so it also shows how even the shares are. Requests and the
// processor take no time here: what a server or a machine adds that all replicas share is not in the figures.
func TestThroughputGrowsWithTheReplicas(t *testing.T) {
	for _, test := range []struct {
		replicas, keys int
		atLeast        float64
	}{{3, 2000, 2.7}, {10, 6000, 8.9}} {
		t.Run(fmt.Sprint(test.replicas, " replicas"), func(t *testing.T) {
			if raceEnabled && test.replicas > 3 {
				t.Skip("ten replicas take minutes with the race detector")
			}
			alone, together := drain(t, 1, test.keys), drain(t, test.replicas, test.keys)
			ratio := alone.Seconds() / together.Seconds()
			t.Logf("%d keys: one replica %v, %d replicas %v: %.2f of its throughput, %.0f runs a second, not %.0f",
				test.keys, alone, test.replicas, together, ratio, float64(test.keys)/together.Seconds(),
				float64(test.keys)/alone.Seconds())
			require.GreaterOrEqual(t, ratio, test.atLeast)
		})
	}
}

// drain returns how long replicas take for one run of each key.
func drain(t *testing.T, replicas, keys int) (took time.Duration) {
	inFleet(t, keys, func(f *fleet) {
		f.every, f.slices = time.Hour, 256
		for i := range replicas {
			f.launch(fmt.Sprint("r", i))
		}
		time.Sleep(40 * time.Second) // until each key has had its first run
		require.Equal(t, keys, total(f.shares(time.Minute)))
		maps := kubernetes.NewForConfigOrDie(f.server.Config()).CoreV1().ConfigMaps("default")
		changed := time.Now()
		for i := range keys {
			_, err := maps.Update(quiet, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("key-", i)},
				Data: map[string]string{"changed": "yes"}}, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		require.Equal(t, changed, time.Now(), "they change at the same moment")
		time.Sleep(40 * time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		for key, n := range f.written {
			require.Equal(t, 2, n, "%s", key)
			took = max(took, f.ran[key].Add(f.pause).Sub(changed))
		}
		require.Len(t, f.written, keys)
	})
	return took
}
