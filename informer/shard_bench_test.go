//go:build unix

package informer

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

// BenchmarkShard is the first list of 10,000 pods, from the bytes of the answer to the store: of a whole cache, and of
// one that keeps a third of the objects. cpu-ms is the processor's time for that, and cache-MB what the store takes.
func BenchmarkShard(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 10_000 {
		p := podAt(fmt.Sprintf("web-%05d", i), fmt.Sprint(i+1))
		p.Labels = map[string]string{"app": "web", "slice": fmt.Sprint(i)}
		for c := range 2 {
			container := corev1.Container{Name: fmt.Sprint("c", c), Image: "registry.example.com/team/web:1.2.3"}
			for e := range 10 {
				container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("NAME_", e),
					Value: fmt.Sprint("value ", i, " of ", e)})
			}
			p.Spec.Containers = append(p.Spec.Containers, container)
		}
		pods = append(pods, p)
	}
	list := podList("20000", pods...)
	for format, body := range map[string][]byte{"protobuf": wiretest.ProtoList(list, nil),
		"json": wiretest.JSONList(list, nil)} {
		for _, of := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/a_share_of_1:%d", format, of), func(b *testing.B) {
				b.ReportAllocs()
				bytes, began := 0, cpu()
				for b.Loop() {
					bytes = listShare(b, body, of)
				}
				b.ReportMetric(float64(cpu()-began)/1e6/float64(b.N), "cpu-ms")
				b.ReportMetric(float64(bytes)/1e6, "cache-MB")
			})
		}
	}
}

// listShare lets an informer list, and returns what its store takes.
func listShare(b *testing.B, body []byte, of int) int {
	client, err := restPods[*corev1.Pod](&rest.Config{Host: "http://server", QPS: -1},
		&http.Client{Transport: &answers{list: func() []byte { return body }}})
	require.NoError(b, err)
	opts := Options[*corev1.Pod]{DisableWatchList: true}
	if of > 1 {
		opts.Shard = &slicer{of: of, keeps: []int{1}}
	}
	inf, err := New(client, opts)
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- inf.Run(ctx) }()
	require.NoError(b, inf.WaitForSync(ctx))
	bytes := inf.Health().Bytes
	stop()
	require.NoError(b, <-ended)
	runtime.KeepAlive(inf)
	return bytes
}

// cpu is the processor's time of the process so far, in nanoseconds.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
