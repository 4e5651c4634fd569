package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	stdruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing/synctest"
	"time"
)

// leaks is about goroutines that a program has started and that do not end with it. They have a minute, or wait for a
// time that comes later, as for the renewal of a certificate. It must be called when every program was killed.
//
// Those of an EventBroadcaster do not count: they wait for Events, of which there are none any more, and so many right
// programs leave them to the end of the process. Nor does one that filters a watch. Nor do those of a process that has
// failed before the end of the run, nor those of a program beside, nor those that the run without disturbances has
// left; see check.leaves. Nor as many as each start leaves; see eachStart.
//
// A run that has added none to the goroutines of the process has left none, unless it is told to look closely: those
// that earlier runs have left do not end, as in a bubble whose test has ended time stands still and nothing from
// outside may wake anyone. Where others have ended meanwhile, the end of the bubble shows what is left, and the run is
// repeated and looks closely.
func (r *run) leaks() {
	synctest.Wait()
	if !r.closely && stdruntime.NumGoroutine() <= r.goroutines || len(bubbleGoroutines()) == 0 {
		return
	}
	all, left := leftAfter(r, time.Minute)
	// A year passes at once, unless something is done in it all the time.
	began := realTime()
	for waits := time.Hour; len(left) > 0 && !r.scenario.isOff(ruleNoLeaks) && waits < year &&
		realTime()-began < busyFor; waits *= 2 {
		all, left = leftAfter(r, waits)
	}
	if len(left) > 0 && len(r.schedule.disturbances) == 0 {
		r.stays = eachStart(r, left)
		left = slices.DeleteFunc(left, func(g goroutine) bool { return r.stays[g.runs] > 0 })
	}
	if len(left) > 0 {
		r.breaks(leaking(left))
		return
	}
	r.crowded = len(all) > 0
}

// eachStart returns the functions of which each incarnation of a program has left as many goroutines, such as what
// tidies up a cache for as long as the process lives, and how many. The end of a process ends them. What is left with
// each event instead makes a process grow: of that there is more where more happens, in the steps than after a restart
// in the end, or in a run in which something goes wrong.
func eachStart(r *run, left []goroutine) map[string]int {
	counts := map[string]map[*process]int{}
	for _, g := range left {
		if counts[g.runs] == nil {
			counts[g.runs] = map[*process]int{}
		}
		counts[g.runs][r.gates.process(g.label)]++
	}
	stays := map[string]int{}
	for runs, of := range counts {
		if r.gates.alike(of) {
			stays[runs] = slices.Max(slices.Collect(maps.Values(of)))
		}
	}
	return stays
}

// alike reports whether all incarnations of the programs of these processes have the same number. There have to be two
// of each.
func (gs *gates) alike(of map[*process]int) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for p, n := range of {
		if p == nil {
			return false // nobody knows whose it is
		}
		again := false
		for _, other := range gs.launched {
			if other == p || other.Name != p.Name || other.incarnation == 0 || other.failed() {
				continue
			}
			if again = true; of[other] != n {
				return false
			}
		}
		if !again {
			return false
		}
	}
	return true
}

// leaking is about goroutines that are left, by what they run.
func leaking(left []goroutine) *breach {
	counts := map[string]int{}
	b := &breach{rule: ruleNoLeaks, detail: []string{"when the program has ended, goroutines are left that do not " +
		"end by themselves:"}}
	for _, g := range left {
		counts[g.String()]++
		b.where = append(b.where, g.runs)
	}
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		b.detail = append(b.detail, fmt.Sprintf("%d of %s", counts[text], text))
	}
	slices.Sort(b.where)
	b.where = slices.Compact(b.where)
	return b
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

// leftAfter returns the goroutines that are left after a time: all, and those that may not be left.
func leftAfter(r *run, d time.Duration) (all, left []goroutine) {
	time.Sleep(d)
	synctest.Wait()
	all = bubbleGoroutines()
	type leaver struct {
		runs    string
		process *process
	}
	counts := map[leaver]int{}
	return all, slices.DeleteFunc(slices.Clone(all), func(g goroutine) bool {
		p := r.gates.process(g.label)
		if r.leaves[g.runs] || librariesText.MatchString(g.String()) || p != nil && (p.failed() || p.incarnation == 0) {
			return true
		}
		counts[leaver{g.runs, p}]++
		return p != nil && counts[leaver{g.runs, p}] <= r.varies.stays[g.runs]
	})
}

// goroutine is what is known of one: where it is, but for packages runtime, time and sync, who has started it, and what
// it runs, from the beginning to the end; and its processLabel.
type goroutine struct{ at, by, runs, label string }

func (g goroutine) String() string { return fmt.Sprintf("%s, started by %s", g.at, g.by) }

// bubbleGoroutines returns the goroutines of this bubble but the caller's.
func bubbleGoroutines() []goroutine {
	buffer := make([]byte, 1<<20)
	length := stdruntime.Stack(buffer, true)
	for length == len(buffer) { // it is cut off
		buffer = make([]byte, 2*len(buffer))
		length = stdruntime.Stack(buffer, true)
	}
	all := strings.Split(string(buffer[:length]), "\n\n")
	mine := bubbleText.FindString(all[0])
	var others []goroutine
	for _, stack := range all[1:] {
		lines := strings.Split(stack, "\n")
		if mine == "" || bubbleText.FindString(lines[0]) != mine {
			continue
		}
		g := goroutine{label: labelIn(lines[0])}
		for _, line := range lines[1:] {
			name := line[:max(strings.LastIndex(line, "("), 0)] // without its arguments
			switch created, ok := strings.CutPrefix(line, "created by "); {
			case ok:
				g.by, _, _ = strings.Cut(created, " in goroutine ")
			case name == "" || strings.HasPrefix(line, "\t") || runtimeText.MatchString(name):
			default:
				g.at = cmp.Or(g.at, name)
				if !helperText.MatchString(name) {
					g.runs = name
				}
			}
		}
		if strings.HasPrefix(g.at, "testing/synctest") || strings.HasPrefix(g.at, "internal/synctest") {
			continue // the bubble's own
		}
		g.runs = cmp.Or(g.runs, g.String())
		others = append(others, g)
	}
	return others
}

var (
	bubbleText  = regexp.MustCompile(`synctest bubble \d+`)
	runtimeText = regexp.MustCompile(`^(runtime|time|sync|internal/sync|internal/poll)\.`)
	// helperText is about functions that run another one.
	helperText = regexp.MustCompile(`^(k8s\.io/apimachinery/pkg/util/wait|golang\.org/x/sync/errgroup|` +
		`github\.com/thermostat-go/thermostat/internal/lifecycle)\.|` +
		`^sigs\.k8s\.io/controller-runtime/pkg/manager\.\(\*runnableGroup\)`)
	// librariesText is the text of a goroutine that an EventBroadcaster of client-go has started and that runs its
	// code, not a handler of the program's, or one that hands on the events of a watch through a filter: when nobody
	// reads on, nothing ends it, and the caches of controller-runtime leave it so.
	librariesText = regexp.MustCompile(`^k8s\.io/apimachinery/pkg/watch\.\(\*(Broadcaster|filteredWatch)\)\.loop, |` +
		`^k8s\.io/(client-go/tools/(record|events)|apimachinery/pkg/(util/wait|watch))\..*, ` +
		`started by k8s\.io/client-go/tools/(record|events)\.`)
)
