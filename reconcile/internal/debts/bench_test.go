package debts

import (
	"fmt"
	"testing"

	"k8s.io/klog/v2"
)

// BenchmarkReached is what one more version of a cache costs while a controller has 50,000 open debts there, of which
// it settles one.
func BenchmarkReached(b *testing.B) {
	const debts = 50_000
	for _, owners := range []int{1, debts} {
		b.Run(fmt.Sprintf("%d keys", owners), func(b *testing.B) {
			l := newLedger()
			pods := listing(l, &still{})
			owe := func(version int) {
				w := podWrite(fmt.Sprint("pod-", version), fmt.Sprint(version), false)
				l.Debtor(Key{Name: fmt.Sprint("key-", version%owners)}).Wrote(klog.Background(), w)
			}
			const first = 100
			for i := range debts {
				owe(first + i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				pods.resourceVersion = fmt.Sprint(first + i)
				l.Reached(l.caches[0], "")
				b.StopTimer()
				owe(first + debts + i)
				if open := l.open.Load(); open != debts {
					b.Fatalf("%d debts are open", open)
				}
				b.StartTimer()
			}
		})
	}
}
