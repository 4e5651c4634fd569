package reconciletest

import (
	"fmt"
	"regexp"
	stdruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing/synctest"
	"time"
)

// leaks is about goroutines that a program has started and that do not end with it. They have a minute, or wait for a
// time that comes later, as for the renewal of a certificate. It must be called when every program was killed.
//
// Those of an EventBroadcaster do not count: they wait for Events, of which there are none any more, and so many right
// programs leave them to the end of the process.
func (r *run) leaks() {
	synctest.Wait()
	counts := !r.scenario.Parallel && !broadcastersLeft.Load()
	if counts && stdruntime.NumGoroutine() <= r.goroutines || len(bubbleStacks()) == 0 {
		return
	}
	all, left := leftAfter(time.Minute)
	// A year passes at once, unless something is done in it all the time.
	began := realTime()
	for waits := time.Hour; len(left) > 0 && !r.scenario.isOff(ruleNoLeaks) && waits < year &&
		realTime()-began < busyFor; waits *= 2 {
		all, left = leftAfter(waits)
	}
	if len(left) > 0 {
		r.fail(ruleNoLeaks, append([]string{fmt.Sprintf("when the program has ended, %d goroutines are left that do "+
			"not end by themselves:", len(left))}, left...)...)
		return
	}
	if r.crowded = len(all) > 0; r.crowded {
		broadcastersLeft.Store(true)
	}
}

const (
	year = 365 * 24 * time.Hour
	// busyFor is the real time after which no more virtual time is spent on goroutines that are left.
	busyFor = 2 * time.Second
)

// realTime is what a clock outside of the bubble shows.
func realTime() time.Duration {
	var now syscall.Timeval
	if err := syscall.Gettimeofday(&now); err != nil {
		panic(err) // it fails for an address that is wrong
	}
	return time.Duration(now.Nano())
}

// leftAfter returns lines for the goroutines that are left after a time: all, and those that may not be left.
func leftAfter(d time.Duration) (all, left []string) {
	time.Sleep(d)
	synctest.Wait()
	all = bubbleStacks()
	return all, slices.DeleteFunc(slices.Clone(all), broadcasterText.MatchString)
}

// broadcastersLeft is whether a run of this process has left goroutines that may be left. They may end during a later
// run, so the number of all goroutines says nothing from then on.
var broadcastersLeft atomic.Bool

// bubbleStacks returns a line for each goroutine of this bubble but the caller's: the first function that is not one of
// package runtime, time or sync, and who has started it.
func bubbleStacks() []string {
	buffer := make([]byte, 1<<20)
	length := stdruntime.Stack(buffer, true)
	for length == len(buffer) { // it is cut off
		buffer = make([]byte, 2*len(buffer))
		length = stdruntime.Stack(buffer, true)
	}
	all := strings.Split(string(buffer[:length]), "\n\n")
	mine := bubbleText.FindString(all[0])
	var left []string
	for _, stack := range all[1:] {
		lines := strings.Split(stack, "\n")
		if mine == "" || bubbleText.FindString(lines[0]) != mine {
			continue
		}
		at, by := "", ""
		for _, line := range lines[1:] {
			name, _, _ := strings.Cut(line, "(0x")
			name = strings.TrimSuffix(name, "(...)")
			switch created, ok := strings.CutPrefix(line, "created by "); {
			case ok:
				by = created
			case at == "" && !strings.HasPrefix(line, "\t") && !runtimeText.MatchString(name):
				at = name
			}
		}
		if strings.HasPrefix(at, "testing/synctest") || strings.HasPrefix(at, "internal/synctest") {
			continue // the bubble's own
		}
		left = append(left, fmt.Sprintf("%s, started by %s", at, by))
	}
	return left
}

var (
	bubbleText  = regexp.MustCompile(`synctest bubble \d+`)
	runtimeText = regexp.MustCompile(`^(runtime|time|sync|internal/sync|internal/poll)\.`)
	// broadcasterText is a line of bubbleStacks about a goroutine that an EventBroadcaster of client-go has started and
	// that runs its code, not a handler of the program's.
	broadcasterText = regexp.MustCompile(`^k8s\.io/apimachinery/pkg/watch\.\(\*Broadcaster\)\.loop, |` +
		`^k8s\.io/(client-go/tools/(record|events)|apimachinery/pkg/(util/wait|watch))\..*, ` +
		`started by k8s\.io/client-go/tools/(record|events)\.`)
)
