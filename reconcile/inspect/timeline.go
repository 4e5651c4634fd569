package inspect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// timeline is the runs and waits of a key as a row of bars, drawn as SVG. The lengths are logarithmic: runs of a
// millisecond and pauses of an hour are both to be seen.
type timeline struct {
	Bars     []bar
	Width    int
	From, To time.Time
	Pending  bool // the last bar is the time from now until To, the next run
}

// bar is a run, a wait, or a time of which nothing is remembered.
type bar struct {
	X, Width int
	Kind     string // of the style sheet: run, failed, idle, or a WaitReason
	Title    string
	Run      int // the number of the run, or 0
}

// span is a bar before it is drawn.
type span struct {
	kind     string
	from, to time.Time
	run      int
}

// timelineOf draws the runs, the earliest first, and what the key waits for now.
func timelineOf(k status.Key, runs []keyRun) (t timeline) {
	var spans []span
	add := func(waits []status.Wait) {
		for _, w := range waits {
			to := w.To
			if to.IsZero() {
				to = k.At
			}
			spans = append(spans, span{string(w.For), w.From, to, 0})
		}
	}
	for _, r := range runs {
		add(r.Waits)
		kind, to := "run", r.Started.Add(r.Run.Took)
		switch {
		case r.Going:
			to = k.At
		case r.Error != nil || tone(r.Result) == "bad":
			kind = "failed"
		}
		spans = append(spans, span{kind, r.Started, to, r.Number})
	}
	add(k.Waits)
	if len(spans) == 0 {
		return t
	}
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	t.From, t.To = spans[0].from, k.At
	end := t.From
	for _, s := range spans {
		if s.from.After(end) {
			t.draw(span{kind: "idle", from: end, to: s.from})
		} else {
			s.from = end // a wait that overlaps the one before it
		}
		if s.to.After(s.from) || s.run > 0 {
			t.draw(s)
			end = s.to
		}
	}
	if k.At.After(end) {
		t.draw(span{kind: cmp.Or(tails[k.State], "idle"), from: end, to: k.At})
	}
	if k.Next.After(k.At) {
		t.Pending, t.To = true, k.Next
		t.draw(span{kind: "pending", from: k.At, to: k.Next})
	}
	return t
}

// tails are the kinds of the bar after the last run: what the key waits for now.
var tails = map[status.KeyState]string{status.KeyParked: string(status.WaitParked),
	status.KeyReady: string(status.WaitQueue), status.KeyBackingOff: string(status.WaitBackoff),
	status.KeyResting: string(status.WaitHotLoop), status.KeyPaused: string(status.WaitPaused),
	status.KeyScheduled: string(status.WaitRequeue)}

// Short reports whether the picture has so few bars that it does not fill the page.
func (t timeline) Short() bool { return t.Width < 100 }

// Legend returns the kinds of bars that are in the picture.
func (t timeline) Legend() (kinds []barKind) {
	for _, k := range barKinds {
		if slices.ContainsFunc(t.Bars, func(b bar) bool { return b.Kind == k.Kind }) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// draw adds a bar. Its length grows by the same step each time that its duration is ten times as long.
func (t *timeline) draw(s span) {
	d := s.to.Sub(s.from)
	width := 4 + int(12*math.Log10(1+float64(max(d, 0))/float64(100*time.Microsecond)))
	what := ""
	for _, k := range barKinds {
		if k.Kind == s.kind {
			what = k.title
		}
	}
	if s.run > 0 {
		what += " at " + clock(s.from)
	}
	t.Bars = append(t.Bars, bar{t.Width, width, s.kind, what + ": " + duration(d), s.run})
	t.Width += width + 1
}

// barKind is a kind of bars, and what it is called in the legend and in a bar's title.
type barKind struct{ Kind, Word, title string }

var barKinds = []barKind{{"run", "run", "Run"}, {"failed", "failed", "Failed run"},
	{string(status.WaitQueue), "queued", "Queued"}, {string(status.WaitParked), "parked", "Parked"},
	{string(status.WaitBackoff), "backing off", "Backing off"},
	{string(status.WaitHotLoop), "resting", "Resting, in a hot loop"},
	{string(status.WaitRequeue), "scheduled", "Scheduled"}, {string(status.WaitPaused), "paused", "Paused"},
	{"idle", "nothing to do", "Nothing to do"}, {"pending", "to come", "Next run in"}}
