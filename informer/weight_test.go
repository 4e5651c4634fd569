package informer_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// alone reports whether this process runs nothing but this test. If not, it runs a process that does: what other tests
// leave behind, memory that is let go of later and goroutines that end later, is not there.
func alone(t *testing.T) bool {
	const variable = "THERMOSTAT_ALONE"
	if os.Getenv(variable) != "" {
		return true
	}
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	program.Env = append(os.Environ(), variable+"=1")
	output, err := program.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "--- PASS: "+t.Name())
	return false
}

// TestBytes compares the estimate with what the heap grows by.
func TestBytes(t *testing.T) {
	if !alone(t) {
		return
	}
	server := reconciletest.NewServer(t, reconciletest.Options{})
	admin := kubernetes.NewForConfigOrDie(server.Config()).CoreV1()
	random := rand.New(rand.NewPCG(36, 4))
	for i := range many {
		app := fmt.Sprint("shop-", i/20)
		common := map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "everything",
			"pod-template-hash": fmt.Sprint("5f7d9c", i/20)}
		_, err := admin.Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", app, i), Labels: common,
				Annotations: map[string]string{"note": strings.Repeat("x", random.IntN(300)),
					"checksum/config": fmt.Sprintf("%064d", i)}},
			Spec: corev1.PodSpec{NodeName: fmt.Sprint("node-", i%50), Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/" + app + ":1.2.3", Args: []string{"--port=8080", app},
				Env: []corev1.EnvVar{{Name: "APP", Value: app}, {Name: "N", Value: fmt.Sprint(i)}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU:    apiresource.MustParse("100m"),
					corev1.ResourceMemory: apiresource.MustParse("64Mi")}},
			}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = admin.Secrets("default").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("secret-", i)},
			Data: map[string][]byte{"a": make([]byte, 100+random.IntN(3000)),
				"b": make([]byte, random.IntN(200))},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	byNode := func(p *corev1.Pod, add func(string)) { add(p.Spec.NodeName) }
	grows(t, "pods", follows(t, server.Config(), "pods", byNode))
	grows(t, "pods, unstructured", follows[*unstructured.Unstructured](t, server.Config(), "pods", nil))
	grows(t, "pods, their metadata", follows[*metav1.PartialObjectMetadata](t, server.Config(), "pods", nil))
	byName := func(s *corev1.Secret, add func(string)) { add(s.Name) } // a bucket for each
	grows(t, "secrets", follows(t, server.Config(), "secrets", byName))
}

const many = 1000 // objects

func resourceOf[T informer.Object](t *testing.T, cfg *rest.Config, name string) *informer.Resource[T] {
	r, err := informer.NewResource[T](cfg, corev1.SchemeGroupVersion.WithResource(name), informer.ResourceOptions{})
	require.NoError(t, err)
	return r
}

func follows[T informer.Object](t *testing.T, cfg *rest.Config, name string,
	index func(T, func(string))) func(which labels.Selector) *informer.SharedIndexInformer[T] {
	return func(which labels.Selector) *informer.SharedIndexInformer[T] {
		inf, err := informer.New(resourceOf[T](t, cfg, name), informer.Options[T]{LabelSelector: which})
		require.NoError(t, err)
		if index != nil {
			_, err = informer.AddIndex(inf, index)
			require.NoError(t, err)
		}
		return inf
	}
}

func grows[T any](t *testing.T, what string, of func(labels.Selector) *informer.SharedIndexInformer[T]) {
	t.Helper()
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	measure := func(which labels.Selector) (grown, estimate int) {
		inf := of(which)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := heap()
		done := make(chan error, 1)
		go func() { done <- inf.Run(ctx) }()
		require.NoError(t, inf.WaitForSync(ctx))
		cancel()
		require.NoError(t, <-done)
		grown, estimate = heap()-before, inf.Health().Bytes
		require.Zero(t, inf.HealthIn(metav1.NamespaceAll).Bytes, "the loop asks for it at each write")
		runtime.KeepAlive(inf)
		return grown, estimate
	}
	measure(nil) // what the server and the clients keep is there now
	// Whatever else the process allocates, or has not let go of yet, adds to what is measured: the least is the truth.
	none, grown, estimate := math.MaxInt, math.MaxInt, 0
	for try, still := 0, 0; try < 20 && still < 3; try++ {
		nothing, _ := measure(labels.SelectorFromSet(labels.Set{"no": "such"}))
		everything, said := measure(nil)
		if still++; nothing < none-many || everything < grown-many { // by more than a byte for each object
			still = 0
		}
		none, grown, estimate = min(none, nothing), min(grown, everything), said
	}
	grown -= none
	t.Logf("%s: %d bytes, estimated %d, a ratio of %.3f", what, grown, estimate, float64(estimate)/float64(grown))
	require.InEpsilon(t, grown, estimate, 0.15, what)
}
