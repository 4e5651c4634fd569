package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
)

// The stores hold 150,000 pods, found by namespace, by their owner's UID and by node. Ours is filled by an informer, as
// there is no other way; of the peer it is the store alone. Updates are in package informer.

const (
	byNamespace = "namespace"
	byOwner     = "owner"
	byNode      = "node"
)

// ourStore returns an informer that holds pods, the very objects, which a feed has sent, and its indexes. It ends with
// the benchmark.
func ourStore(b *testing.B, f *feed, pods []*corev1.Pod) (inf *informer.SharedIndexInformer[*corev1.Pod],
	owners *informer.Index[types.UID, *corev1.Pod]) {
	inf, err := informer.New[*corev1.Pod](f, informer.Options[*corev1.Pod]{})
	must(b, err)
	_, err = informer.AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Namespace) })
	must(b, err)
	owners, err = informer.AddIndex(inf, func(p *corev1.Pod, add func(types.UID)) {
		if c := metav1.GetControllerOfNoCopy(p); c != nil {
			add(c.UID)
		}
	})
	must(b, err)
	_, err = informer.AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Spec.NodeName) })
	must(b, err)
	background(b, inf.Run)
	f.list(pods)
	must(b, inf.WaitForSync(b.Context()))
	return inf, owners
}

func peerStore(b *testing.B, pods []*corev1.Pod) cache.Indexer {
	s := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		byNamespace: cache.MetaNamespaceIndexFunc,
		byOwner: func(o any) ([]string, error) {
			if c := metav1.GetControllerOfNoCopy(o.(*corev1.Pod)); c != nil {
				return []string{string(c.UID)}, nil
			}
			return nil, nil
		},
		byNode: func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil },
	})
	for _, p := range pods {
		must(b, s.Add(p))
	}
	return s
}

func smallPods(n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = smallPod(i, i+1)
	}
	return pods
}

// BenchmarkStoreBytes is what a store takes beside the objects.
func BenchmarkStoreBytes(b *testing.B) {
	pods := smallPods(manyPods)
	measure := func(b *testing.B, fill func() any) {
		for range b.N {
			before := heap()
			store := fill()
			b.ReportMetric(float64(heap()-before)/manyPods, "B/object")
			keep(store)
		}
	}
	b.Run("thermostat", func(b *testing.B) {
		measure(b, func() any { s, _ := ourStore(b, newFeed(), pods); return s })
	})
	b.Run("client-go", func(b *testing.B) {
		measure(b, func() any { return peerStore(b, pods) })
	})
	keep(pods)
}

// BenchmarkStoreGet looks pods up by key, all in turn. The keys are copies, as those are that come out of a queue.
func BenchmarkStoreGet(b *testing.B) {
	pods, keys := smallPods(manyPods), make([]informer.Key, manyPods)
	for i := range keys {
		keys[i] = podKey(i)
	}
	b.Run("thermostat", func(b *testing.B) {
		s, _ := ourStore(b, newFeed(), pods)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok := s.Get(keys[i%manyPods]); !ok {
				b.Fatal("missing")
			}
		}
	})
	b.Run("client-go", func(b *testing.B) {
		s := peerStore(b, pods)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			k := keys[i%manyPods]
			if _, ok, _ := s.GetByKey(k.Namespace + "/" + k.Name); !ok { // as listers do it
				b.Fatal("missing")
			}
		}
	})
}

// BenchmarkStoreLookup looks up the 30 pods of an owner.
func BenchmarkStoreLookup(b *testing.B) {
	pods := smallPods(manyPods)
	uids := make([]types.UID, manyPods/perOwner)
	for i := range uids {
		uids[i] = ownerUID(i * perOwner)
	}
	rand.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	b.Run("thermostat", func(b *testing.B) {
		_, owners := ourStore(b, newFeed(), pods)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			n := 0
			for range owners.Get(uids[i%len(uids)]) {
				n++
			}
			if n != perOwner {
				b.Fatal(n)
			}
		}
	})
	b.Run("client-go", func(b *testing.B) {
		s := peerStore(b, pods)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			found, err := s.ByIndex(byOwner, string(uids[i%len(uids)]))
			if err != nil || len(found) != perOwner {
				b.Fatal(len(found), err)
			}
		}
	})
}

// BenchmarkStoreVisit visits all pods.
func BenchmarkStoreVisit(b *testing.B) {
	pods := smallPods(manyPods)
	b.Run("thermostat", func(b *testing.B) {
		s, _ := ourStore(b, newFeed(), pods)
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for range s.All() {
				n++
			}
			if n != manyPods {
				b.Fatal(n)
			}
		}
	})
	b.Run("client-go", func(b *testing.B) {
		s := peerStore(b, pods)
		b.ReportAllocs()
		for b.Loop() {
			if n := len(s.List()); n != manyPods {
				b.Fatal(n)
			}
		}
	})
}

// feed is a client of pods whose watch says what the benchmark wants it to.
type feed struct{ watch *watch.FakeWatcher }

func newFeed() *feed { return &feed{watch.NewFakeWithChanSize(256, false)} }

// List is not reached: both sides stream their lists.
func (f *feed) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	panic("a streamed list was expected")
}

func (f *feed) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return f.watch, nil
}

// list sends pods as the streamed list that a watch begins with.
func (f *feed) list(pods []*corev1.Pod) {
	for _, p := range pods {
		f.watch.Add(p)
	}
	f.watch.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(len(pods)),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
}

func (f *feed) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
			error) {
			return f.List(ctx, o)
		},
		WatchFuncWithContext: f.Watch,
	}
}
