package workqueue

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientgo "k8s.io/client-go/util/workqueue"
)

type clientGoView = clientgo.TypedRateLimitingInterface[string]

// watcher writes down what can be seen of a queue from outside.
type watcher struct {
	clientGoView
	start time.Time
	log   []string
}

func (w *watcher) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// get takes a key if there is one; client-go's queue cannot be asked without waiting.
func (w *watcher) get() (key string) {
	synctest.Wait()
	if w.Len() == 0 && !w.ShuttingDown() {
		w.note("nothing")
		return ""
	}
	key, down := w.Get()
	w.note("get %q %t", key, down)
	return key
}

// behaviour is what a client-go queue does in a situation, shown by a script. If ours does something else on purpose,
// differs says what, and the two logs how that is seen.
var behaviour = map[string]struct {
	script       func(w *watcher)
	differs      string
	ours, theirs []string
}{
	"first in, first out, each key once": {script: func(w *watcher) {
		for _, k := range []string{"a", "b", "a", "c", "b"} {
			w.Add(k)
		}
		w.note("%d", w.Len())
		for range 4 {
			w.get()
		}
	}},
	"a key that is added while active waits for Done": {script: func(w *watcher) {
		w.Add("a")
		k := w.get()
		w.Add(k)
		w.Add(k)
		w.get()
		w.Done(k)
		w.Done(w.get())
		w.get()
	}},
	"an active key lets others pass, and comes after them": {script: func(w *watcher) {
		w.Add("a")
		k := w.get()
		w.Add(k)
		w.Add("b")
		w.Add("c")
		w.Done(k)
		for range 4 {
			w.get()
		}
	}},
	"the earlier delay counts, once": {script: func(w *watcher) {
		w.AddAfter("a", time.Second)
		w.AddAfter("a", time.Minute)
		w.AddAfter("b", time.Minute)
		w.AddAfter("b", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		w.note("%d", w.Len())
		w.Done(w.get())
		w.Done(w.get())
		time.Sleep(time.Hour)
		w.get()
	}},
	"an add does not end a delay": {script: func(w *watcher) {
		w.AddAfter("a", time.Minute)
		w.Add("a")
		w.Done(w.get())
		time.Sleep(time.Minute)
		w.Done(w.get())
		w.get()
	}},
	"a delay ends while the key is active": {script: func(w *watcher) {
		w.Add("a")
		k := w.get()
		w.AddAfter(k, time.Second)
		time.Sleep(time.Minute)
		w.get()
		w.Done(k)
		w.get()
	}},
	"no delay": {script: func(w *watcher) {
		w.AddAfter("a", 0)
		w.AddAfter("b", -1)
		w.note("%d", w.Len())
	}},
	"failures double the delay until they are forgotten": {script: func(w *watcher) {
		for i := range 8 {
			if i == 6 {
				w.Forget("a")
			}
			before := time.Now()
			w.AddRateLimited("a")
			w.note("%d", w.NumRequeues("a"))
			for synctest.Wait(); w.Len() == 0; synctest.Wait() {
				time.Sleep(time.Millisecond)
			}
			w.note("%v", time.Since(before))
			w.Done(w.get())
		}
	}},
	"Forget does not take a key out": {script: func(w *watcher) {
		w.AddRateLimited("a")
		w.Forget("a")
		time.Sleep(time.Second)
		w.get()
	}},
	"a shutdown lets workers finish what is queued": {script: func(w *watcher) {
		w.Add("a")
		w.Add("b")
		k := w.get()
		w.Add(k)
		w.AddAfter("c", time.Second)
		w.ShutDown()
		w.ShutDown()
		w.note("%t", w.ShuttingDown())
		w.Add("d")
		w.AddAfter("e", time.Second)
		w.AddRateLimited("f")
		time.Sleep(time.Minute)
		w.note("%d", w.Len())
		w.Done(w.get())
		w.Done(k)
		w.Done(w.get())
		w.get()
	}},
	"a shutdown wakes who waits": {script: func(w *watcher) {
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				_, down := w.Get()
				if !down {
					panic("nothing was added")
				}
			})
		}
		synctest.Wait()
		w.ShutDown()
		workers.Wait()
	}},
	"a drain waits for what is active": {script: func(w *watcher) {
		w.Add("a")
		k := w.get()
		go func() { time.Sleep(time.Minute); w.Done(k) }()
		w.ShutDownWithDrain()
		w.note("%v", time.Since(w.start))
	}},
	"ShutDown ends a drain": {script: func(w *watcher) {
		w.Add("a")
		w.get()
		go func() { time.Sleep(time.Minute); w.ShutDown() }()
		w.ShutDownWithDrain()
		w.note("%v", time.Since(w.start))
	}},
	"a drain of nothing": {script: func(w *watcher) {
		w.ShutDownWithDrain()
		w.ShutDownWithDrain()
		w.get()
	}},

	"a stray Done of a waiting key": {differs: "client-go queues the key a second time, and two workers get it",
		ours: []string{`get "a" false`, "nothing"}, theirs: []string{`get "a" false`, `get "a" false`},
		script: func(w *watcher) {
			w.Add("a")
			w.Done("a")
			w.get()
			w.get()
		}},
	"a drain and what is queued": {differs: "client-go returns while keys are queued, though its doc says that it " +
		"waits",
		ours: []string{"1m1s"}, theirs: []string{"0s"}, script: func(w *watcher) {
			w.Add("a")
			go func() {
				time.Sleep(time.Second)
				k, _ := w.Get()
				time.Sleep(time.Minute)
				w.Done(k)
			}()
			w.ShutDownWithDrain()
			w.note("%v", time.Since(w.start))
			time.Sleep(time.Hour)
		}},
	"one key fails for ever, another one for the first time": {differs: "client-go's default limiter reserves the " +
		"whole queue's rate for the hot key",
		ours: []string{`get "hot" false`, `get "fresh" false`}, theirs: []string{`get "hot" false`, "nothing"},
		script: func(w *watcher) {
			for range 10_000 {
				w.AddRateLimited("hot")
			}
			w.AddRateLimited("fresh")
			time.Sleep(time.Second)
			w.get()
			w.get()
		}},
}

// TestBehaviour shows that this queue and client-go's are the same where they are meant to be, and different where it
// is said so: the rows with differs are the list of all known differences.
func TestBehaviour(t *testing.T) {
	for name, row := range behaviour {
		t.Run(name, func(t *testing.T) {
			watch := func(make func() clientGoView) (log []string) {
				synctest.Test(t, func(t *testing.T) {
					w := &watcher{clientGoView: make(), start: time.Now()}
					row.script(w)
					w.ShutDown()
					if q, ok := w.clientGoView.(*Queue[string]); ok {
						require.NoError(t, q.check())
					}
					log = w.log
				})
				return log
			}
			ours := watch(func() clientGoView { return newQueue(Options[string]{}) })
			theirs := watch(func() clientGoView {
				return clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[string]())
			})
			if row.differs == "" {
				require.Equal(t, theirs, ours)
			} else {
				require.Equal(t, row.ours, ours, row.differs)
				require.Equal(t, row.theirs, theirs, "client-go has changed: %s", row.differs)
			}
		})
	}
}
