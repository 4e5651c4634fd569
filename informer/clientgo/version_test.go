//go:build !client_go_0_35

package clientgo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// moves plays the script of a seed, whose steps are far apart. It returns the versions that the store has had, as its
// gauge was told them, and what was read of it: by a handler that is told of a change, and after each step. A watch
// breaks only where a list has to follow: after any other, client-go lists now and then, and ours resumes.
func moves(t *testing.T, seed uint64, construct func(cache.ListerWatcher, cache.SharedIndexInformerOptions,
) cache.SharedIndexInformer) (versions []float64, read []string) {
	name, err := cache.NewInformerName("moves")
	require.NoError(t, err)
	defer name.Release()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{podAPI: newPodAPI(), random: rand.New(rand.NewPCG(seed, 12)), truth: map[string][]state{},
			since: map[string][]int{}}
		s.NoStreaming = s.random.IntN(2) == 0
		s.BeforeList, s.BeforeWatch = s.refuse, s.refuse
		for range s.random.IntN(9) {
			s.happen()
		}
		m := &metrics{}
		inf := construct(listWatch(s.podAPI), cache.SharedIndexInformerOptions{
			Identifier: name.WithResource(corev1.SchemeGroupVersion.WithResource("pods")), InformerMetricsProvider: m,
		})
		told := "" // the version when the handler was last told of something
		note := func() { told = inf.GetStore().LastStoreSyncResourceVersion() }
		add(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { note() },
			UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() }})
		stop := run(t, inf)
		for range 30 {
			switch s.random.IntN(8) {
			default: // one change at a time: client-go moves once for several that wait
				name := string(rune('a' + s.random.IntN(6)))
				switch {
				case !s.exists(name):
					s.create(name)
				case s.random.IntN(3) == 0:
					s.remove(name)
				default:
					s.update(name)
				}
				synctest.Wait()
				read = append(read, "told at "+told)
			case 0:
				s.Bookmark()
			case 1, 2, 3: // the server has forgotten what happened meanwhile, so there is a list
				s.down.Store(true)
				s.Cut()
				for range s.random.IntN(9) {
					s.happen()
				}
				s.Compact()
				s.down.Store(false)
			case 4: // by hand
				_ = inf.GetStore().Add(pod(fmt.Sprint("by hand ", s.random.IntN(2))))
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			read = append(read, fmt.Sprint(inf.GetStore().LastStoreSyncResourceVersion(), " ",
				len(inf.GetStore().List())))
		}
		stop()
		versions = m.version.moves
	})
	return versions, read
}

// The version that a store tells says what it holds, and is compared with that of own writes: it moves as client-go's
// does, through the same versions, and a list moves it once.
func TestTheVersionMovesAsClientGos(t *testing.T) {
	defer func(handlers []utilruntime.ErrorHandler) { utilruntime.ErrorHandlers = handlers }(utilruntime.ErrorHandlers)
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) {}}
	for seed := range uint64(100) {
		theirs, theirRead := moves(t, seed, func(lw cache.ListerWatcher,
			o cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformerWithOptions(lw, &corev1.Pod{}, o)
		})
		ours, ourRead := moves(t, seed, func(lw cache.ListerWatcher,
			o cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
			return NewSharedIndexInformerWithOptions(lw, &corev1.Pod{}, o)
		})
		require.Equal(t, theirRead, ourRead, "seed %d", seed)
		require.Equal(t, theirs, ours, "seed %d", seed)
	}
}
