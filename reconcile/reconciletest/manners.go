package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

const (
	// mostConflicts is how many writes of one object in a row may be about an old version of it. A queue that waits
	// twice as long after each failure, from 5 ms on, makes 14 in a minute.
	mostConflicts = 30
	// mostBroken is how often a request may come again in a pause that the server has asked for: an event may bring a
	// key back before its time.
	mostBroken = 3
	// mostAtRest is how many requests a second a program may make when there is nothing to do.
	mostAtRest = 10
)

// manners is what a run notes of the program's requests, to judge how it deals with the server.
type manners struct {
	paused    map[repeat]pause
	conflicts map[caller]int    // in a row
	refused   usage             // rights that the program wanted and does not have
	failed    map[string]string // writes that failed and were not repeated, with what became of them
	asked     []string          // the kinds of all requests, in order
	atRest    int               // requests since the last write, when the program came to rest
}

// pause is one that the server has asked for. It refuses the request again as long as the pause lasts.
type pause struct {
	until  time.Time
	broken int // how often the request has come all the same
}

// caller is one incarnation that makes one request.
type caller struct {
	process *process
	request Request
}

// repeat is a caller with the content of the request: two keys of a program may write one object, each in its own time.
type repeat struct {
	caller
	content uint64
}

func newManners() manners {
	return manners{paused: make(map[repeat]pause), conflicts: make(map[caller]int), refused: make(usage),
		failed: make(map[string]string)}
}

// heed notes a request of the program that was answered, and what the schedule did to it. It returns what is wrong with
// it, or nil.
func (m *manners) heed(g *gate, hit disturbance, since time.Duration) *breach {
	who, text := caller{g.process, g.request}, g.request.String()
	m.asked = append(m.asked, g.kind())
	if g.code == http.StatusForbidden {
		m.refused[use{g.request.Namespace, g.request.Resource.Group, g.request.asks().Resources[0],
			g.request.Verb}] = true
	}
	delete(m.failed, text)
	switch {
	case slices.Contains([]string{refuse429, refuse500, timeout504, outage}, hit.what) && g.request.Writes():
		m.failed[text] = fmt.Sprintf("%s at %.3fs", hit, since.Seconds())
	case g.code == http.StatusConflict && (g.request.Verb == "update" || g.request.Verb == "patch"):
		m.failed[text] = fmt.Sprintf("%s was a conflict at %.3fs", text, since.Seconds())
	}
	return cmp.Or(m.waits(repeat{who, g.content}, g, hit), m.gives(who, g))
}

// waits is about Retry-After: the same request, with the same content, may not come again and again before its
// time. It is silent about
// creations, which do not name their object, and about other incarnations, which cannot know.
func (m *manners) waits(who repeat, g *gate, hit disturbance) *breach {
	p := m.paused[who]
	if hit.what != refuse429 || g.request.Name == "" {
		delete(m.paused, who)
		return nil
	}
	if g.at.Before(p.until) {
		p.broken++
	}
	p.until = time.Now().Add(pauseAsked)
	m.paused[who] = p
	if p.broken <= mostBroken {
		return nil
	}
	return &breach{ruleWaits, []string{fmt.Sprintf("%s came again %d times, each less than %s after the server had "+
		"refused it with 429 and Retry-After: %.0f (in a program on this library an informer.Gate makes all requests "+
		"wait)", g.request, p.broken, pauseAsked, pauseAsked.Seconds())}}
}

// pauses reports whether the server has asked to wait with a request, and the pause is not over.
func (m *manners) pauses(g *gate) bool {
	return g.at.Before(m.paused[repeat{caller{g.process, g.request}, g.content}].until)
}

// gives is about conflicts: who repeats a write without a newer version of the object only burdens the server.
func (m *manners) gives(who caller, g *gate) *breach {
	if g.request.Name == "" || !g.request.Writes() {
		return nil
	}
	if g.code != http.StatusConflict {
		delete(m.conflicts, who)
		return nil
	}
	m.conflicts[who]++
	if m.conflicts[who] <= mostConflicts {
		return nil
	}
	return &breach{"does not insist on a conflict", []string{fmt.Sprintf("%s: %d conflicts in a row", g.request,
		m.conflicts[who])}}
}

// idles is about requests when there is nothing to do. Leases and Events do not count.
func (r verdict) idles() {
	if most := mostAtRest * int(quiet/time.Second); r.atRest > most {
		r.fail("is quiet at rest", fmt.Sprintf("%d requests in the %s in which nothing was left to do, and %d are "+
			"allowed; the last ones: %v", r.atRest, quiet, most, r.asked[max(0, len(r.asked)-5):]))
	}
}

// blame replaces what a run has shown by its reason, if that is known: rights that are missing, or writes that failed
// and were not repeated.
func (r verdict) blame() {
	if r.failure == nil {
		return
	}
	shown := append([]string{"it breaks the rule \"" + r.failure.rule + "\":"}, r.failure.detail...)
	switch r.failure.rule {
	case ruleConverges, ruleIdempotent, ruleSameEnd:
		if len(r.failed) > 0 && len(r.manners.refused) == 0 {
			lost := slices.Sorted(maps.Values(r.failed))
			r.failure = &breach{"repeats a write that failed", append(append([]string{"never repeated:"}, lost...),
				shown...)}
		}
	}
	if len(r.manners.refused) > 0 && r.failure.rule != ruleRights {
		r.failure = nil
		r.rights()
		r.failure.detail = append(r.failure.detail, shown...)
	}
}
