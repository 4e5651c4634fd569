package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// overview is the page of a Manager.
type overview struct {
	moment
	status.Manager
	Notices []notice
	Recent  []recentKey
}

// notice is something that needs attention.
type notice struct {
	Tone, Text, Link string
}

// recentKey is a key with its latest run.
type recentKey struct {
	Controller string
	status.RunSummary
	Runs int // of the key, among the latest of its controller
}

// maxRecentKeys is how many keys the overview shows with their latest run.
const maxRecentKeys = 20

func overviewOf(m status.Manager) view {
	o := overview{moment: moment{m.At}, Manager: m, Notices: notices(m),
		Recent: recentKeys(m.Controllers)}
	return view{title: "Overview", template: "overview", body: o, data: m}
}

// recentKeys returns the keys that have run last, the latest first: each once, so that one that runs all the time does
// not hide the others.
func recentKeys(controllers []status.Controller) (all []recentKey) {
	for _, c := range controllers {
		at := make(map[reconcile.Key]int) // the index in all
		for _, r := range c.Recent {
			key := reconcile.Key{Namespace: r.Namespace, Name: r.Name}
			i, ok := at[key]
			if !ok {
				i = len(all)
				at[key], all = i, append(all, recentKey{Controller: c.Name, RunSummary: r})
			}
			all[i].Runs++
		}
	}
	slices.SortStableFunc(all, func(a, b recentKey) int { return b.Started.Compare(a.Started) })
	return all[:min(len(all), maxRecentKeys)]
}

// longParked is how long a key may be parked before the overview mentions it: within this time the loop asks the
// server itself.
const longParked = 10 * time.Second

// notices returns what needs attention, the worst first.
func notices(s status.Manager) (all []notice) {
	for _, why := range s.NotHealthy {
		all = append(all, notice{"bad", why, ""})
	}
	for _, inf := range s.Informers {
		if text := cacheNotice(inf, s.At); text != "" {
			tone := "bad"
			if inf.Reason == nil && !inf.Silent {
				tone = "wait" // the first list goes on
			}
			all = append(all, notice{tone, text, ""})
		}
	}
	for _, why := range s.NotReady {
		// Of informers the lines above say more, and the line below says what the Manager waits for.
		if !strings.HasPrefix(why, "informer ") && why != s.WaitsFor {
			all = append(all, notice{"wait", why, ""})
		}
	}
	switch {
	case s.Stage == status.StageWorking:
	case s.WaitsFor != "":
		all = append(all, notice{"wait", s.WaitsFor, ""})
	default:
		all = append(all, notice{"wait", "The Manager is " + words(s.Stage) + ", so no key is reconciled.", ""})
	}
	for _, c := range s.Controllers {
		for _, n := range []struct {
			tone  string
			count int
			text  string
			state status.KeyState
		}{
			{"bad", c.Stuck, "call%s of Reconcile hang%s although %s context has ended", status.KeyStuck},
			{"bad", c.Hot, "key%s repeat%s %s runs without an end", status.KeyResting},
			{"bad", c.Failed, "key%s failed for good and rest%s until something changes; the error is on %s page",
				status.KeyFailed},
			{"bad", c.Invalid, "key%s rest%s because %s object is invalid", status.KeyInvalid},
			{"bad", c.Failing, "key%s fail%s, and will be tried again; the last error is on %s page",
				status.KeyBackingOff},
			{"wait", c.Paused, "key%s wait%s until %s pause is ended", status.KeyPaused},
		} {
			if n.count > 0 {
				all = append(all, notice{n.tone, c.Name + ": " + counted(n.count, n.text), keysURL(c.Name, n.state)})
			}
		}
		if c.LongestParked >= longParked {
			all = append(all, notice{"wait", fmt.Sprintf("%s: %s, the longest for %s", c.Name,
				counted(c.Parked, "key%s wait%s for caches to show what %s last run wrote"), duration(c.LongestParked)),
				keysURL(c.Name, status.KeyParked)})
		}
		if c.Panicking > 0 {
			all = append(all, notice{"bad", c.Name + ": " + counted(c.Panicking,
				"object%s make%s a function of %s source panic, so changes may be missed; the log has the stack"), ""})
		}
	}
	return all
}

// cacheNotice says why the cache of an informer does not follow its server, or is empty.
func cacheNotice(inf status.Informer, now time.Time) string {
	if inf.Silent {
		return fmt.Sprintf("The cache of %s may miss changes: the server has sent nothing for %s, not even a bookmark",
			inf.Name, duration(now.Sub(inf.LastProgress)))
	}
	if inf.State == "" || inf.State == string(informer.Live) {
		return ""
	}
	text := "The cache of " + inf.Name + " is " + words(inf.State)
	if !inf.Since.IsZero() {
		text = "The cache of " + inf.Name + " has been " + words(inf.State) + " for " + duration(now.Sub(inf.Since))
	}
	if inf.Reason != nil {
		text += ": " + errorText(inf.Reason)
	}
	return text
}

// counted puts a number before a sentence whose three gaps depend on it: the plural's s, the singular verb's s, and
// its or their.
func counted(n int, format string) string {
	if n == 1 {
		return "1 " + fmt.Sprintf(format, "", "s", "its")
	}
	return count(n) + " " + fmt.Sprintf(format, "s", "", "their")
}
