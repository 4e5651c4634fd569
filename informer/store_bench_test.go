package informer

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/internal/fakeapi"
)

// BenchmarkStoreUpdate replaces one of 150,000 pods by its next version, which is found under the same namespace, owner
// and node: the index functions, the lock and the change. Everything else about the store can be measured from outside,
// and is: see internal/bench.
func BenchmarkStoreUpdate(b *testing.B) {
	const pods = 150_000
	var versions [2][]*corev1.Pod
	for v := range versions {
		for i := range pods {
			owner, controller := i/30, true
			versions[v] = append(versions[v], &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: fmt.Sprint("namespace-", owner%100), Name: fmt.Sprint("pod-", i),
					UID: types.UID(fmt.Sprint("uid-", i)), ResourceVersion: strconv.Itoa(v),
					OwnerReferences: []metav1.OwnerReference{{UID: types.UID(fmt.Sprint("owner-", owner)),
						Controller: &controller}},
				},
				Spec: corev1.PodSpec{NodeName: fmt.Sprint("node-", i/30)},
			})
		}
	}
	b.Run("thermostat", func(b *testing.B) {
		inf, err := New[*corev1.Pod](fakeapi.New[*corev1.Pod](func() *corev1.PodList { return &corev1.PodList{} }),
			Options[*corev1.Pod]{})
		require.NoError(b, err)
		_, err = AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Namespace) })
		require.NoError(b, err)
		_, err = AddIndex(inf, func(p *corev1.Pod, add func(types.UID)) {
			add(metav1.GetControllerOfNoCopy(p).UID)
		})
		require.NoError(b, err)
		_, err = AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Spec.NodeName) })
		require.NoError(b, err)
		update := func(p *corev1.Pod) {
			s, it := inf.store, item[*corev1.Pod]{key: Key{Namespace: p.Namespace, Name: p.Name}, uid: p.UID,
				resourceVersion: p.ResourceVersion, value: p}
			s.Plan(it.key, p, func(err error) { require.NoError(b, err) })
			s.Lock()
			row, _ := s.Find(it.key)
			s.putLocked(row, it, 1)
			s.Unlock()
		}
		for _, p := range versions[0] {
			update(p)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			update(versions[1-i/pods%2][i%pods])
		}
	})
	b.Run("client-go", func(b *testing.B) {
		s := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
			"namespace": cache.MetaNamespaceIndexFunc,
			"owner": func(o any) ([]string, error) {
				return []string{string(metav1.GetControllerOfNoCopy(o.(*corev1.Pod)).UID)}, nil
			},
			"node": func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil },
		})
		for _, p := range versions[0] {
			require.NoError(b, s.Add(p))
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := s.Update(versions[1-i/pods%2][i%pods]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
