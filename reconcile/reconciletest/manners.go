package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// mostConflicts is how many writes of one object in a row may be about an old version of it. A queue that waits
	// twice as long after each failure, from 5 ms on, makes 14 in a minute, and each may be five of
	// retry.RetryOnConflict, as those of Kubernetes' StatefulSet controller are.
	mostConflicts = 75
	// mostBroken is how often a request may come again in a pause that the server has asked for: an event may bring a
	// key back before its time.
	mostBroken = 3
	// mostRefused is how often the server may refuse a write as invalid since the last step.
	mostRefused = 5
	// mostAtRest is how many requests a second a program may make when there is nothing to do.
	mostAtRest = 10
)

// manners is what a run notes of the program's requests, to judge how it deals with the server.
type manners struct {
	paused    map[repeat]pause
	conflicts map[caller]int            // in a row
	refused   usage                     // rights that the program wanted and does not have
	failed    map[string]lostWrite      // writes that failed and were not repeated, by their text
	refusals  map[caller]map[uint64]int // writes that were refused with 422, by their content, since the last step
	invalids  map[string]int            // the same, of the whole run, by their text
	beyond    map[string]string         // by kind of request: what the server has no model of
	asked     []origin                  // of all requests, in order
	atRest    int                       // requests since the last write, when the program came to rest
}

// pause is one that the server has asked for. It refuses the request again as long as the pause lasts.
type pause struct {
	until  time.Time
	broken int                  // how often in a row the request has come all the same
	each   map[string]time.Time // by goroutine that was refused: until when it is to wait
}

// lostWrite is a write that has failed: how, and the object that it was about, with its own name. A creation has
// no name.
type lostWrite struct {
	how, object string
	conflict    bool
	at          time.Duration // since the begin of the run
}

func newRefusals() map[caller]map[uint64]int { return make(map[caller]map[uint64]int) }

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
		failed: make(map[string]lostWrite), refusals: newRefusals(), invalids: make(map[string]int),
		beyond: make(map[string]string)}
}

// heed notes a request of the program that was answered, and what the schedule did to it. It returns what is wrong with
// it, or nil.
func (m *manners) heed(g *gate, hit disturbance, since time.Duration) *breach {
	who, text := caller{g.process, g.request}, g.String()
	m.asked = append(m.asked, g.origin())
	if g.code == http.StatusForbidden && g.api == nil {
		for _, right := range g.process.link.lacks() {
			m.refused[right] = true
		}
	}
	if g.code == http.StatusNotImplemented && g.api == nil {
		m.lies(g)
	}
	delete(m.failed, text)
	about := fmt.Sprintf("%s %s/%s", g.request.Resource.GroupResource(), g.request.Namespace, g.request.Name)
	if g.api != nil {
		about = aboutAPI(g.host)
	}
	switch {
	case g.request.Writes() && slices.Contains([]string{refuse429, refuse500, timeout504, outage, unanswered},
		hit.what):
		m.failed[text] = lostWrite{how: fmt.Sprintf("%s at %.3fs", hit, since.Seconds()), object: about, at: since}
	case g.code == http.StatusConflict && (g.request.Verb == "update" || g.request.Verb == "patch"):
		m.failed[text] = lostWrite{fmt.Sprintf("%s was a conflict at %.3fs", text, since.Seconds()), about, true, since}
	case g.request.Writes() && g.code > 0 && g.code < http.StatusBadRequest:
		// After a conflict the program may want something else of the object.
		maps.DeleteFunc(m.failed, func(_ string, f lostWrite) bool { return f.conflict && f.object == about })
	}
	m.refuses(repeat{who, g.content}, g)
	return cmp.Or(m.waits(repeat{who, g.content}, g, hit), m.gives(who, g))
}

// lies notes a request that lies beyond what the server has a model of. A program that records an Event does not wait
// for an answer, so that this explains nothing.
func (m *manners) lies(g *gate) {
	what, kind := g.process.link.beyondModel(), of(g.process.Name, g.kind())
	if _, known := m.beyond[kind]; !known && g.request.Resource.Resource != "events" {
		m.beyond[kind] = what
	}
}

// waits is about Retry-After: the same request, with the same content, may not come again and again before its time. It
// is silent about creations, which do not name their object, and about other incarnations, which cannot know. Two
// workers may want the same of one object: who has waited as long as it was told to itself may come, whatever the
// others were told meanwhile.
func (m *manners) waits(who repeat, g *gate, hit disturbance) *breach {
	p := m.paused[who]
	if hit.what != refuse429 || g.request.Name == "" {
		delete(m.paused, who)
		return nil
	}
	if p.each == nil {
		p.each = make(map[string]time.Time)
	}
	own, again := p.each[g.by]
	if g.at.Before(p.until) && (!again || g.at.Before(own)) {
		p.broken++
	} else {
		p.broken = 0 // client-go waits ten times before it gives the error to the program
	}
	p.until = time.Now().Add(pauseAsked)
	p.each[g.by] = p.until
	m.paused[who] = p
	if p.broken <= mostBroken {
		return nil
	}
	text := fmt.Sprintf("%s came again %d times, each less than %s after the server had refused it with 429 and "+
		"Retry-After: %.0f (in a program on this library an informer.Gate makes all requests wait)", g,
		p.broken, pauseAsked, pauseAsked.Seconds())
	return &breach{rule: ruleWaits, where: []string{g.kind()}, detail: []string{text}}
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
	return &breach{rule: ruleInsists, where: []string{g.kind()}, detail: []string{fmt.Sprintf(
		"%s: %d conflicts in a row", g, m.conflicts[who])}}
}

// idles is about requests when there is nothing to do. Leases and Events do not count.
func (r verdict) idles() {
	if most := mostAtRest * int(quiet/time.Second) * len(r.scenario.programs()); r.atRest > most {
		r.fail(ruleQuiet, fmt.Sprintf("%d requests in the %s in which nothing was left to do, and %d are "+
			"allowed; the last ones: %v", r.atRest, quiet, most, r.asked[max(0, len(r.asked)-5):]))
	}
}

// refuses notes writes that the server refuses as invalid.
func (m *manners) refuses(who repeat, g *gate) {
	if g.code != http.StatusUnprocessableEntity || !g.request.Writes() {
		if g.request.Writes() && g.request.Name != "" && g.code > 0 && g.code < http.StatusBadRequest {
			delete(m.refusals, who.caller) // what was refused is not what it wants any more
		}
		delete(m.refusals[who.caller], who.content)
		return
	}
	if m.refusals[who.caller] == nil {
		m.refusals[who.caller] = make(map[uint64]int)
	}
	m.refusals[who.caller][who.content]++
	m.invalids[g.String()]++
}

// valid is about writes that the server has refused as invalid mostRefused times since the last step, and refuses again
// while nothing else happens: the program goes on without a hope.
func (r verdict) valid() {
	if r.failure != nil || r.scenario.isOff(ruleValid) {
		return
	}
	before := map[repeat]int{}
	for who, all := range r.refusals {
		for content, n := range all {
			if n >= mostRefused {
				before[repeat{who, content}] = n
			}
		}
	}
	if len(before) == 0 {
		return
	}
	r.run.pass(settleTime)
	wrong := &breach{rule: ruleValid}
	for who, n := range before {
		if now := r.refusals[who.caller][who.content]; now > n {
			wrong.where = append(wrong.where, (&gate{request: who.request}).kind())
			wrong.detail = append(wrong.detail, fmt.Sprintf("%s: refused with 422 %d times since the last step, each "+
				"time with the same content", of(who.process.Name, who.request.String()), now))
		}
	}
	if len(wrong.where) > 0 {
		slices.Sort(wrong.where)
		slices.Sort(wrong.detail)
		r.breaks(wrong)
	}
}

// blame replaces what a run has shown by its reason, if that is known: rights that are missing, a webhook that nothing
// serves, or writes that failed and were not repeated, if what is not as it should be is what they were about. Rights
// come first: a program that may not keep its certificate serves no webhook.
func (r verdict) blame() {
	if r.failure == nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(r.beyond)) {
		r.failure.detail = append(r.failure.detail, fmt.Sprintf("the program was refused, with 501, %s: %s", kind,
			r.beyond[kind]))
	}
	shown := append([]string{fmt.Sprintf("by the rule %q:", r.failure.rule)}, r.failure.detail...)
	if len(r.manners.refused) > 0 {
		if r.failure.rule != ruleRights && !r.scenario.isOff(ruleRights) {
			r.failure = nil
			r.rights()
			r.failure.detail = append(r.failure.detail, shown...)
		}
		return
	}
	if r.server.hosts.unserved() != "" && !r.scenario.isOff(ruleServed) {
		if r.failure.rule != ruleServed {
			r.failure = nil
			r.webhooks()
			r.failure.detail = append(r.failure.detail, shown...)
		}
		return
	}
	if wiped, ok := r.authors.wiped(r.ideal); ok && r.failure.rule != ruleForeign {
		r.name(wiped.at...)
		r.failure.detail = append(r.failure.detail, wiped.text)
	}
	objects := r.failure.objects
	if r.failure.rule == ruleConverges && r.ideal != nil {
		for _, d := range r.unlikeIdeal(r.last) {
			objects = append(objects, d.object)
		}
	}
	lost, all := r.lost(objects)
	if len(lost) == 0 || r.scenario.isOff(ruleRepeats) {
		return
	}
	lost = append([]string{"never repeated:"}, lost...)
	if all {
		r.failure = &breach{rule: ruleRepeats, detail: append(lost, shown...), where: r.failure.where}
	} else {
		r.failure.detail = append(r.failure.detail, lost...)
	}
}

// lost returns the writes that failed, were never repeated, and are about one of some objects, and whether they are
// about all of them.
func (r verdict) lost(objects []string) (lost []string, all bool) {
	all = true
	keys := r.keys()
	for _, object := range objects {
		found := false
		for _, text := range slices.Sorted(maps.Keys(r.failed)) {
			f := r.failed[text]
			if f.object != object && keys[f.object] != object &&
				(!strings.HasSuffix(f.object, "/") || !strings.HasPrefix(object, f.object)) {
				continue
			}
			found = true
			r.name(f.at)
			if !slices.Contains(lost, f.how) {
				lost = append(lost, f.how)
			}
		}
		all = all && found
	}
	return lost, all
}
