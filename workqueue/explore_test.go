package workqueue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a queue with two workers that do what they are told, one step after the other.
type world struct {
	q       *Queue[string]
	workers [2]worker
	history []event
	delayed bool // key c has a delay
	down    bool
}

type worker struct {
	claim   Claim[string] // the last one
	holds   bool          // and it has not ended it
	blocked bool          // in Take
	quit    context.CancelFunc
	result  chan error
}

// steps are what can happen next to a world; each says whether it can, and does it.
var steps = map[string]func(w *world) bool{
	"add a": func(w *world) bool { return w.add("a") },
	"add b": func(w *world) bool { return w.add("b") },
	"add c": func(w *world) bool { return w.add("c") },
	"add c later": func(w *world) bool {
		if w.delayed {
			return false
		}
		w.q.AddAfter("c", time.Second)
		w.delayed = !w.down
		return !w.down
	},
	"wait": func(w *world) bool {
		if !w.delayed {
			return false
		}
		if !w.down {
			w.record(added, "c")
			w.delayed = false
		}
		time.Sleep(time.Second)
		return true
	},
	"wait, and add b": func(w *world) bool { // in the same moment as whatever the timer does
		if !w.delayed || w.down {
			return false
		}
		time.AfterFunc(time.Second, func() { w.q.Add("b") })
		w.record(added, "c")
		w.record(added, "b")
		w.delayed = false
		time.Sleep(time.Second)
		return true
	},
	"cancel c": func(w *world) bool {
		had := w.delayed
		w.delayed = false
		return w.q.Cancel("c") == had && had
	},
	"shut down": func(w *world) bool {
		w.q.ShutDown()
		was := w.down
		w.down = true
		return !was
	},
	"1 takes":               func(w *world) bool { return w.take(0) },
	"2 takes":               func(w *world) bool { return w.take(1) },
	"1 gives up":            func(w *world) bool { return w.quit(0) },
	"2 gives up":            func(w *world) bool { return w.quit(1) },
	"1 is done":             func(w *world) bool { return w.end(0, Claim[string].Done) },
	"2 is done":             func(w *world) bool { return w.end(1, Claim[string].Done) },
	"1 wants it again":      func(w *world) bool { return w.again(0) },
	"1 is done once more":   func(w *world) bool { return w.stray(0) },
	"2 is done once more":   func(w *world) bool { return w.stray(1) },
	"add a, and 1 gives up": func(w *world) bool { return w.workers[0].blocked && w.add("a") && w.quit(0) },
	"1 gives up, and add b": func(w *world) bool { return w.workers[0].blocked && w.quit(0) && w.add("b") },
	"add b, and both give up": func(w *world) bool {
		return w.workers[0].blocked && w.workers[1].blocked && w.add("b") && w.quit(0) && w.quit(1)
	},
	"shut down, and 1 gives up": func(w *world) bool {
		if !w.workers[0].blocked || w.down {
			return false
		}
		w.q.ShutDown()
		w.down = true
		return w.quit(0)
	},
}

func (w *world) record(what, key string) { w.history = append(w.history, event{what, key}) }

func (w *world) add(key string) bool {
	if !w.down {
		w.record(added, key)
	}
	w.q.Add(key)
	return true
}

func (w *world) take(i int) bool {
	me := &w.workers[i]
	if me.holds || me.blocked {
		return false
	}
	ctx, quit := context.WithCancel(context.Background())
	me.blocked, me.quit, me.result = true, quit, make(chan error, 1)
	go func() {
		c, err := w.q.Take(ctx)
		if err == nil {
			me.claim = c
		}
		me.result <- err
	}()
	return true
}

func (w *world) quit(i int) bool {
	if !w.workers[i].blocked {
		return false
	}
	w.workers[i].quit()
	return true
}

func (w *world) end(i int, how func(Claim[string])) bool {
	me := &w.workers[i]
	if !me.holds {
		return false
	}
	me.holds = false
	w.record(ended, me.claim.Key())
	how(me.claim)
	return true
}

func (w *world) again(i int) bool {
	if w.workers[i].holds && !w.down {
		w.record(added, w.workers[i].claim.Key())
	}
	return w.end(i, func(c Claim[string]) { c.DoneAfter(0) })
}

// stray ends a claim that has ended, and a Get that never was.
func (w *world) stray(i int) bool {
	me := &w.workers[i]
	if me.claim.q == nil || me.holds {
		return false
	}
	me.claim.Done()
	me.claim.Rest(0)
	w.q.Done(me.claim.Key())
	return true
}

// settle lets everything happen that follows from the last step, and checks what must hold then.
func (w *world) settle() error {
	synctest.Wait()
	sleeping := 0
	for i := range w.workers {
		me := &w.workers[i]
		if !me.blocked {
			continue
		}
		select {
		case err := <-me.result:
			me.blocked = false
			me.quit()
			if me.holds = err == nil; me.holds {
				w.record(started, me.claim.Key())
			}
		default:
			sleeping++
		}
	}
	var undone []string
	for _, i := range w.q.Snapshot() {
		if i.State != Active || i.Again {
			undone = append(undone, i.Key)
		}
	}
	if err := validate(w.history, undone, true); err != nil {
		return err
	}
	if sleeping > 0 && (w.q.Len() > 0 || w.down) {
		return fmt.Errorf("%d workers sleep although there is something to do", sleeping)
	}
	return w.q.check()
}

// state is all that the future of a world depends on.
func (w *world) state() string {
	q := w.q
	s := []string{describe(q), fmt.Sprint(w.delayed, w.down, q.core.waiters.waking, len(q.core.pool.turns),
		len(q.core.pool.entries))}
	for t := q.core.ready.plain.head; t != nil; t = t.next {
		s = append(s, t.entry.key)
	}
	for _, me := range w.workers {
		s = append(s, fmt.Sprint(me.holds, me.blocked, me.claim.q != nil, me.claim.key))
	}
	return strings.Join(s, ";")
}

// run makes a world and takes it through path. ok is false if its last step was not possible.
func run(path []string) (state string, ok bool, err error) {
	w := &world{q: newQueue(Options[string]{RateLimiter: fastSlow[string](0, 0, 0)})}
	defer func() {
		for i := range w.workers {
			w.quit(i)
		}
		w.q.ShutDown()
		synctest.Wait()
	}()
	for _, step := range path {
		if !steps[step](w) {
			return "", false, nil
		}
		if err := w.settle(); err != nil {
			return "", true, fmt.Errorf("after %q: %w", path, err)
		}
	}
	return w.state(), true, nil
}

// TestExplore goes through all states that a queue with three keys and two workers can reach in a number of steps.
func TestExplore(t *testing.T) {
	depth := 8
	if raceDetector {
		depth -= 2
	}
	names := slices.Sorted(maps.Keys(steps))
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]bool{}
		paths := [][]string{nil}
		tried := 0
		for range depth {
			var longer [][]string
			for _, path := range paths {
				for _, name := range names {
					path := append(slices.Clone(path), name)
					state, ok, err := run(path)
					require.NoError(t, err)
					if tried++; ok && !seen[state] {
						seen[state] = true
						longer = append(longer, path)
					}
				}
			}
			paths = longer
		}
		t.Logf("%d histories of up to %d steps, %d states", tried, depth, len(seen))
	})
}
