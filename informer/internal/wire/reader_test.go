package wire

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

// BenchmarkRead reads a list of 2,000 pods.
func BenchmarkRead(b *testing.B) {
	list := podList("9")
	for i := range 2000 {
		p := podAt(fmt.Sprint("pod-", i), "5")
		p.Labels = map[string]string{"app.kubernetes.io/name": "a-long-application", "tier": "backend"}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/image:1"}}
		list.Items = append(list.Items, *p)
	}
	for name, body := range map[string][]byte{
		"protobuf": wiretest.ProtoList(list, nil), "JSON": wiretest.JSONList(list, nil),
	} {
		b.Run(name, func(b *testing.B) {
			d := decoderOf[*corev1.Pod]()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r, objects := d.Read(b.Context(), io.NopCloser(bytes.NewReader(body)), true), 0
				for batch := range r.Batches {
					events, err := batch.Events()
					if err != nil {
						b.Fatal(err)
					}
					objects += len(events)
					r.Recycle(batch)
				}
				if _, err := r.End(); err != nil || objects != 2000 {
					b.Fatal(objects, err)
				}
				r.Close()
			}
		})
	}
}
