package reconciletest

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	stdruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	// lookEvery is how often a run is looked at that does not move, and stillFor how often it has to look the same
	// until it is taken to stand still for good: patientFor if it waits for what may end by itself, such as another
	// process, and workFor if it is at work. All are about real time.
	lookEvery  = time.Second
	stillFor   = 3
	patientFor = 30
	workFor    = 60
	// turnFor is how long the driver waits at most in one turn, so that one who looks sees virtual time pass.
	turnFor = time.Minute
)

// play runs a schedule in a bubble of its own, and fails the test if the run stands still since it waits for something
// that virtual time does not bring: then its goroutines are left, since nothing can end them. With a nil ideal the end
// is compared with nothing. It changes nothing of the check.
func (c runner) play(s schedule, ideal *ending) *ending {
	var group lifecycle.Group
	w, ended := &watchman{}, make(chan *ending, 1)
	var shortcut *snapshot
	if ideal != nil {
		shortcut = c.shortcut(s)
	}
	group.Go("run", func() {
		defer close(ended)
		ended <- c.inBubble(s, ideal, shortcut, w)
	})
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case o, ok := <-ended:
			if !ok {
				c.t.FailNow() // the scenario has failed the test on the goroutine of the run
			}
			return o
		case <-look.C:
			text, good := w.look()
			if good && !c.scenario.Parallel { // else another goroutine looks at the findings
				c.tell()
			}
			if good {
				c.t.Fatalf("reconciletest.Check: a run stands still, since virtual time does not pass as long as%s\n"+
					"the schedule: %q", text, s)
			} else if text != "" {
				c.t.Logf("reconciletest.Check: virtual time does not pass as long as%s\nCheck waits %s for that", text,
					patientFor*lookEvery)
			}
		}
	}
}

// watchman looks at a run from outside of its bubble.
type watchman struct {
	bubble atomic.Pointer[string]
	turns  atomic.Int64 // of the driver

	// These belong to the one who looks.
	last int64  // turns, the last time
	seen string // what the run waited for then
	same int    // how often it was that
	busy int    // how often it was at work in between
}

// look returns what the run waits for if it stands still, and whether that is for good; empty: it does not, or not yet,
// or it was said.
func (w *watchman) look() (text string, good bool) {
	bubble, turns := w.bubble.Load(), w.turns.Load()
	if bubble == nil || turns != w.last {
		w.last, w.seen, w.same, w.busy = turns, "", 0, 0
		return "", false
	}
	stacks := stacksOf(*bubble)
	text, passes := strandedIn(stacks)
	if text == "" || text != w.seen {
		w.seen, w.same = text, 0
	}
	w.same++
	switch {
	case text == "" && w.busy < workFor:
		w.busy++
		return "", false
	case text == "":
		text = busyIn(stacks)
		return text, text != ""
	case passes && w.same >= patientFor, !passes && w.same >= stillFor:
		return text, true
	case passes && w.same == stillFor:
		return text, false
	}
	return "", false
}

// stacksOf returns the stacks of the goroutines of a bubble. It stops the world for a moment.
func stacksOf(bubble string) []string {
	buffer := make([]byte, 4<<20)
	all := strings.Split(string(buffer[:stdruntime.Stack(buffer, true)]), "\n\n")
	return slices.DeleteFunc(all, func(stack string) bool {
		head, _, _ := strings.Cut(stack, "\n")
		return bubbleText.FindString(head) != bubble
	})
}

var stateText = regexp.MustCompile(`\[([^,\]]*)`)

// A goroutine waits in one of these ways for something that virtual time does not bring, unless its state is durable.
var waitsFor = map[string]string{
	"IO wait":             "network",
	"syscall":             "system",
	"chan receive":        "outsider",
	"chan send":           "outsider",
	"select":              "outsider",
	"sync.WaitGroup.Wait": "outsider",
	"semacquire":          "lock",
	"sync.Mutex.Lock":     "lock",
	"sync.RWMutex.Lock":   "lock",
	"sync.RWMutex.RLock":  "lock",
}

// goroutineState returns the state of a goroutine, and whether virtual time passes in it.
func goroutineState(head string) (state string, waits bool) {
	m := stateText.FindStringSubmatch(head)
	if m == nil {
		return "", true
	}
	return m[1], strings.HasSuffix(m[1], "(durable)") || strings.HasPrefix(m[1], "synctest.")
}

// busyIn says which goroutines of a bubble are at work, and what to do; empty: none is.
func busyIn(stacks []string) (text string) {
	for _, stack := range stacks {
		head, _, _ := strings.Cut(stack, "\n")
		if state, waits := goroutineState(head); !waits && waitsFor[state] == "" {
			text += advice("work", stack)
		}
	}
	return text
}

// strandedIn says which goroutines of a bubble wait for something that virtual time does not bring, and what to do;
// empty: none does, or one is at work. It passes if one waits for something that may end by itself.
func strandedIn(stacks []string) (text string, passes bool) {
	var all, held []string
	for _, stack := range stacks {
		head, _, _ := strings.Cut(stack, "\n")
		state, waits := goroutineState(head)
		if waits {
			if strings.Contains(stack, ".(*gates).enter(") {
				held = append(held, where(stack))
			}
			continue
		}
		kind, ok := waitsFor[state]
		if !ok {
			return "", false // it is at work
		}
		passes = passes || kind == "system" || kind == "network" && !strings.Contains(stack, ".Accept(")
		all = append(all, advice(kind, stack))
	}
	slices.Sort(all)
	slices.Sort(held)
	text = strings.Join(slices.Compact(all), "")
	if strings.Contains(text, "a lock") && len(held) > 0 {
		text += "\n  of those who may hold the lock, these wait for the answer to a request: " +
			strings.Join(slices.Compact(held), ", ")
	}
	return text, passes
}

// advice says what a goroutine waits for, and what to do about it.
func advice(kind, stack string) string {
	what, do := "", ""
	switch {
	case kind == "network" && strings.Contains(stack, ".Accept("):
		what = "it listens on a port"
		do = `leave that out in the test: controller-runtime's metrics and probes have the bind address "0"; what ` +
			`package reconcile/webhook serves with the ctx of Run is reached in memory`
	case kind == "network":
		what = "it waits for the network, or for a pipe"
		do = "Scenario.Outside stands in for an HTTP API; a client with a transport of its own has to be given " +
			"http.DefaultTransport"
	case kind == "system":
		what = "it waits for the operating system, such as for another process or a file"
		do = "leave that out in the test"
	case kind == "work":
		what = "it is at work, for a minute by now"
		do = "it has to wait at some time. A timer ends at the very moment that it was set for: who asks again at " +
			"once while that is not over, as now.After(due) says, never comes to an end here, and !now.Before(due) does"
	case kind == "lock":
		what = "it waits for a lock"
		do = "who holds the lock must not wait meanwhile, neither for a time nor for an answer; a channel with one " +
			"element does the same, and may be held then; of a program with one worker nobody else may want the lock"
	default:
		what = "it waits for a channel, a timer or a goroutine that was made outside of the run"
		do = "make it within Run: a variable of a package and what it has started belong to no run"
	}
	return fmt.Sprintf("\n  %s: %s;\n    %s", where(stack), what, do)
}

// where returns the line of the program where a goroutine is, or else the one that has started it.
func where(stack string) string {
	if at := lifecycle.WhereInUserCode(stack); at != "" {
		return at
	}
	_, by, _ := strings.Cut(stack, "created by ")
	by, _, _ = strings.Cut(by, "\n")
	return "a goroutine of " + by
}

// hints says what to do about an error with which a program has ended by itself, if it shows that the program needs
// something that a run does not have.
func hints(err error) []string {
	var path *fs.PathError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return []string{"an earlier run has the port, or another program: leave it out in the test"}
	case errors.As(err, &path):
		return []string{"files are those of the machine, and the same for each run: make " + path.Path +
			" before Check, or leave it out in the test"}
	}
	return nil
}
