package main

import (
	"math"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/packed"
)

// BenchmarkColdStart lists 150,000 pods over HTTP, until they are in the cache. Then it looks at what the process has
// taken at most, and at the heap. Each side needs a process of its own.
func BenchmarkColdStart(b *testing.B) {
	b.Run("protobuf", func(b *testing.B) { coldStart(b, serverOptions{Pods: manyPods, Realistic: true}) })
	b.Run("json", func(b *testing.B) { coldStart(b, serverOptions{Pods: manyPods, Realistic: true, JSON: true}) })
	b.Run("protobuf,plain", func(b *testing.B) {
		coldStart(b,
			serverOptions{Pods: manyPods, Realistic: true, Plain: true})
	})
	b.Run("json,plain", func(b *testing.B) {
		coldStart(b, serverOptions{Pods: manyPods, Realistic: true, JSON: true, Plain: true})
	})
}

// measureSync measures how a cache syncs with a server.
func measureSync(b *testing.B, o serverOptions, sync func(b *testing.B, c *rest.Config) (cache any)) {
	c := startServer(b, o)
	before, cpu := heap(), cpuTime(b)
	b.ResetTimer()
	kept := sync(b, c)
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b) - cpu).Nanoseconds()), "cpu-ns/op")
	b.ReportMetric(peakRSS(b), "peak-B/op")
	grown := float64(heap() - before)
	b.ReportMetric(grown/float64(o.Pods), "heap-B/pod")
	if inf, ok := kept.(interface{ Health() informer.Health }); ok {
		began := time.Now()
		estimate := float64(inf.Health().Bytes)
		b.ReportMetric(time.Since(began).Seconds(), "weigh-sec")
		b.ReportMetric(math.Abs(estimate/grown-1), "estimate-error")
	}
	keep(kept)
}

func coldStart(b *testing.B, o serverOptions) {
	measure := func(b *testing.B, sync func(b *testing.B, c *rest.Config) any) { measureSync(b, o, sync) }
	b.Run("thermostat", func(b *testing.B) {
		measure(b, func(b *testing.B, c *rest.Config) any {
			inf, err := informer.New[*corev1.Pod](podClient(b, c), informer.Options[*corev1.Pod]{})
			must(b, err)
			background(b, inf.Run)
			must(b, inf.WaitForSync(b.Context()))
			return inf
		})
	})
	b.Run("thermostat,projected", func(b *testing.B) {
		measure(b, func(b *testing.B, c *rest.Config) any {
			inf, err := informer.Project[*corev1.Pod](podClient(b, c), factsOf, informer.Options[*corev1.Pod]{})
			must(b, err)
			background(b, inf.Run)
			must(b, inf.WaitForSync(b.Context()))
			return inf
		})
	})
	b.Run("thermostat,packed", func(b *testing.B) {
		measure(b, func(b *testing.B, c *rest.Config) any { return packedPods(b, c, packed.Options{}) })
	})
	for _, side := range []struct {
		name      string
		transform cache.TransformFunc
	}{{"client-go", nil}, {"client-go,trimmed", trimmed}} {
		b.Run(side.name, func(b *testing.B) {
			measure(b, func(b *testing.B, c *rest.Config) any {
				clientset, err := kubernetes.NewForConfig(c)
				must(b, err)
				inf := informers.NewSharedInformerFactory(clientset, 0).Core().V1().Pods().Informer()
				must(b, inf.SetTransform(side.transform))
				return peerSync(b, inf)
			})
		})
	}
}

// packedPods is an informer that holds pods as compressed bytes.
func packedPods(b *testing.B, c *rest.Config,
	o packed.Options) *informer.SharedIndexInformer[packed.Value[*corev1.Pod]] {
	pods, err := packed.New[*corev1.Pod](o)
	must(b, err)
	inf, err := informer.Project[*corev1.Pod](podClient(b, c), pods.Pack, informer.Options[*corev1.Pod]{})
	must(b, err)
	background(b, inf.Run)
	must(b, inf.WaitForSync(b.Context()))
	return inf
}

// BenchmarkPackedGet gets pods of an informer that holds them as compressed bytes: each time another one, or a few
// again and again.
func BenchmarkPackedGet(b *testing.B) {
	const pods = 20_000
	inf := packedPods(b, startServer(b, serverOptions{Pods: pods, Realistic: true}), packed.Options{})
	for name, among := range map[string]int{"cold": pods, "hot": 10} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				value, ok := inf.Get(podKey(i * 7919 % among))
				p, err := value.Object()
				must(b, err)
				if !ok || p.Spec.NodeName == "" {
					b.Fatal("no pod")
				}
			}
		})
	}
}

func podClient(b *testing.B, c *rest.Config) *informer.Resource[*corev1.Pod] {
	pods, err := informer.NewResource[*corev1.Pod](c, corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	must(b, err)
	return pods
}

// podFacts is what a ReplicaSet controller reads of a pod.
type podFacts struct {
	labels    map[string]string
	owner     types.UID
	node      string
	phase     corev1.PodPhase
	ready     bool
	restarts  int32
	created   time.Time
	readyAt   time.Time
	deletedAt *time.Time
}

func factsOf(p *corev1.Pod) (podFacts, error) {
	f := podFacts{labels: p.Labels, node: p.Spec.NodeName, phase: p.Status.Phase, created: p.CreationTimestamp.Time}
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		f.owner = c.UID
	}
	if p.DeletionTimestamp != nil {
		f.deletedAt = &p.DeletionTimestamp.Time
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			f.ready, f.readyAt = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		f.restarts += c.RestartCount
	}
	return f, nil
}

// trimmed is how near a transform of client-go's comes to factsOf: what it keeps has to be an object, whose metadata
// the cache can ask for.
func trimmed(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
			OwnerReferences:   p.OwnerReferences,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status,
				LastTransitionTime: c.LastTransitionTime}}
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses,
			corev1.ContainerStatus{RestartCount: c.RestartCount})
	}
	return kept, nil
}

// cpuTime is how long this process has run on any core.
func cpuTime(b *testing.B) time.Duration {
	u := usage(b)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS is how many bytes of memory this process has had at most.
func peakRSS(b *testing.B) float64 {
	return float64(usage(b).Maxrss) * 1024
}

func usage(b *testing.B) (u syscall.Rusage) {
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u
}
