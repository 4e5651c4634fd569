package reconciletest

import (
	"context"
	"errors"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
)

// processKey is that of a process in its ctx; [directKey] that of a ctx whose requests do not wait for their turn.
type (
	processKey struct{}
	directKey  struct{}
)

// processLabel is the label of pprof that the goroutines of a run have, since each has the labels of the one that has
// started it: the number of their process in gates.launched. So a request without the ctx of Run has a process, too.
const processLabel = "reconciletest.process"

// scheduleLabel is the label with the schedule of the run. A panic on a goroutine that the program has started ends the
// test binary, as it would end the program, and the head of its stack shows the labels.
const scheduleLabel = "reconciletest.schedule"

// showLabels lets the heads of stacks show labels until the test is over.
func showLabels(t *testing.T) {
	before, was := os.LookupEnv("GODEBUG")
	t.Cleanup(func() {
		if was {
			_ = os.Setenv("GODEBUG", before) // it was there, so it can be set
		} else {
			_ = os.Unsetenv("GODEBUG") // it fails for a name that is empty
		}
	})
	_ = os.Setenv("GODEBUG", strings.TrimPrefix(before+",tracebacklabels=1", ",")) // a valid name and value
}

// directly are the labels of goroutines whose requests do not wait for their turn: the driver, the goroutines of steps,
// and those that serve an API.
var directly = pprof.WithLabels(context.Background(), pprof.Labels(processLabel, "none"))

// callerOf returns the run that a request belongs to, and the process that makes it; no process: it is made by a step,
// or by an API. No run: it has nothing to do with Check.
func (e *exit) callerOf(ctx context.Context) (*gates, *process, error) {
	direct := ctx.Value(directKey{}) != nil
	if p, ok := ctx.Value(processKey{}).(*process); ok && !direct {
		return p.gates, p, nil
	}
	goroutine, bubble, label := whereAmI()
	e.mu.Lock()
	gs := e.bubbles[bubble]
	e.mu.Unlock()
	if gs == nil || direct || goroutine == gs.driver {
		return gs, nil, nil
	}
	p, err := gs.caller(label)
	return gs, p, err
}

var labelText = regexp.MustCompile(`"` + processLabel + `": "([^"]*)"`)

// whereAmI returns the number of the calling goroutine, the name of its bubble and its processLabel; empty: it is in
// none, or has none.
func whereAmI() (goroutine, bubble, label string) {
	buffer := make([]byte, 4<<10)
	head, _, _ := strings.Cut(string(buffer[:runtime.Stack(buffer, false)]), "\n")
	return strings.Fields(head)[1], bubbleText.FindString(head), labelIn(head)
}

// labelIn returns the processLabel that the head of a stack shows; empty: there is none.
func labelIn(head string) string {
	if m := labelText.FindStringSubmatch(head); m != nil {
		return m[1]
	}
	return ""
}

// process returns the process of a label; nil: it is that of none.
func (gs *gates) process(label string) *process {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if n, err := strconv.Atoi(label); err == nil {
		return gs.launched[n]
	}
	return nil
}

// caller returns the process of a goroutine with a label; nil: it is of none. A goroutine that has lost its label, as
// by pprof.Do with another ctx, is taken for one of the newest process of the only program.
func (gs *gates) caller(label string) (newest *process, err error) {
	if label != "" {
		return gs.process(label), nil
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, p := range gs.live {
		switch {
		case p.incarnation == 0:
		case newest != nil && newest.Name != p.Name:
			return nil, errors.New("it does not carry the ctx of Run, nor has its goroutine the labels of pprof " +
				"that those of Run have, and there are several programs: http.NewRequestWithContext gives it the ctx")
		default:
			newest = p
		}
	}
	if newest == nil {
		return nil, errRefused // what a dead process does reaches nobody
	}
	return newest, nil
}
