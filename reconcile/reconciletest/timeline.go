package reconciletest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// timelineLines is the most lines that the timeline of a failure has.
const timelineLines = 20

// weight says how much a line of the timeline matters: the lightest go first when there are too many.
type weight int

const (
	read   weight = iota
	beside        // a write of the world
	wrote
	hurt // a disturbance
	turn // a step, a start, a crash
)

// line is a line of the timeline.
type line struct {
	at     time.Duration // since the begin of the run
	weight weight
	text   string
	kind   string   // of the request; empty: it is none
	wrote  []string // the objects that it has changed, named as in a snapshot
	named  bool     // the finding speaks of it
	// changes are what it has changed on the server.
	changes []event
}

func (e line) String() string { return fmt.Sprintf("%9.3fs  %s", e.at.Seconds(), e.text) }

// journal is what has happened in a run, line by line.
type journal struct {
	begin time.Time
	trace []line
}

func (j *journal) note(w weight, format string, args ...any) {
	j.trace = append(j.trace, line{at: time.Since(j.begin), weight: w, text: fmt.Sprintf(format, args...)})
}

// disturb notes that a disturbance happens.
func (r *run) disturb(d disturbance) {
	r.happened[d] = true
	r.note(hurt, "%s", d)
}

func (j *journal) noteRequest(w weight, g *gate) {
	answer := fmt.Sprint(g.code)
	if g.code == 0 {
		answer = "not seen by the server"
	}
	change := ""
	if g.code > 0 && g.code < 400 && len(g.changes) == 0 && !g.altered {
		change = ", nothing changes"
	}
	for _, e := range g.changes {
		switch {
		case e.old == nil:
			change += fmt.Sprintf(", %s made", e.object.GetName())
		case e.object == nil:
			change += fmt.Sprintf(", %s gone", e.old.GetName())
		}
	}
	j.note(w, "%s: %s: %s%s", g.process, g.request, answer, change)
	last := &j.trace[len(j.trace)-1]
	last.kind, last.changes = g.kind(), g.changes
	if g.altered {
		last.wrote = append(last.wrote, aboutAPI(g.host))
	}
	if g.later > 0 {
		last.text += fmt.Sprintf(", which the program sees %s later", g.later)
	}
	if g.unawaited {
		last.text += ", for which the program did not wait"
	}
	for _, e := range g.changes {
		last.wrote = append(last.wrote, snapshotName(e.resource, cmp.Or(e.object, e.old)))
	}
}

// snapshotName names an object as a snapshot does.
func snapshotName(r schema.GroupResource, o object) string {
	return fmt.Sprintf("%s %s/%s", r, o.GetNamespace(), o.GetName())
}

func (j *journal) noteRead(g *gate) {
	old := ""
	if g.request.Verb == "watch" && g.code == http.StatusUnprocessableEntity && g.process.link.old() {
		old = ", since the server that the disturbance leads to streams no lists; the program lists instead"
	}
	j.note(read, "%s: %s: %d%s", g.process, g.request, g.code, old)
}

// name says that the finding speaks of the requests at some times, so that they are among the lines that it shows.
func (j *journal) name(times ...time.Duration) {
	for i, e := range j.trace {
		if e.kind != "" && slices.Contains(times, e.at) {
			j.trace[i].named = true
		}
	}
}

// whole returns all that happened, reads as well.
func (j *journal) whole() (texts []string) {
	for _, e := range folded(j.trace) {
		texts = append(texts, e.String())
	}
	return texts
}

// timeline returns what happened, in at most [timelineLines] lines. Reads are left out, and so is what is far from the
// disturbances, if there is too much; what the finding speaks of goes last.
func (j *journal) timeline() []string {
	lines := slices.DeleteFunc(slices.Clone(j.trace), func(e line) bool { return e.weight == read && !e.named })
	lines = folded(lines)
	for len(lines) > timelineLines-2 { // two lines may say what is left out
		first := slices.IndexFunc(lines, func(e line) bool { return e.weight == hurt })
		mayGo := isWrite
		if slices.ContainsFunc(lines, func(e line) bool { return isWrite(e) && !e.named }) {
			mayGo = func(e line) bool { return isWrite(e) && !e.named }
		} else if !slices.ContainsFunc(lines, isWrite) {
			mayGo = func(line) bool { return true }
		}
		victim, far := -1, -1
		for i, e := range lines {
			distance := min(i, len(lines)-1-i) // from the ends
			if first >= 0 {
				distance = max(i-first, first-i)
			}
			if distance >= far && mayGo(e) {
				victim, far = i, distance
			}
		}
		lines = slices.Delete(lines, victim, victim+1)
	}
	var texts []string
	for _, e := range lines {
		texts = append(texts, e.String())
	}
	if left := len(j.trace) - len(lines); left > 0 {
		texts = append(texts, fmt.Sprintf("%11s%d more lines, of reads and of writes far from this, are left out; "+
			"Replay shows all", "", left))
	}
	return texts
}

// folded puts one line in place of lines that repeat the ones before them, as those of a hot loop do.
func folded(lines []line) (short []line) {
	for i := 0; i < len(lines); {
		times, of := 1, 1
		for period := 1; period <= 4; period++ {
			n := 1
			for i+(n+1)*period <= len(lines) && slices.EqualFunc(lines[i:i+period],
				lines[i+n*period:i+(n+1)*period], repeated) {
				n++
			}
			if n > 2 {
				times, of = n, period
				break
			}
		}
		short = append(short, lines[i:i+of]...)
		if times > 1 {
			last := lines[i+times*of-1]
			what := "line"
			if of > 1 {
				what = fmt.Sprintf("%d lines", of)
			}
			last.text = fmt.Sprintf("the %s before, %d times more until now", what, times-1)
			short = append(short, last)
		}
		i += times * of
	}
	return short
}

// repeated reports whether a line may stand for another one, which the finding does not speak of.
func repeated(a, b line) bool { return a.text == b.text && !b.named }

func isWrite(e line) bool { return e.weight <= wrote }

// partAt says where two runs of one schedule go apart; empty: the program is deterministic.
func partAt(one, other []line) string {
	for i := range max(len(one), len(other)) {
		text := func(trace []line) string {
			if i < len(trace) {
				return trace[i].text
			}
			return "no more requests"
		}
		if text(one) != text(other) {
			return fmt.Sprintf(": line %d of one is %q, of the other %q", i+1, text(one), text(other))
		}
	}
	return ""
}
