package inspect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
)

// timeline is the runs and waits of a key as a row of bars, drawn as SVG. The lengths are logarithmic: runs of a
// millisecond and pauses of an hour are both to be seen.
type timeline struct {
	Bars       []bar
	Width      int
	From, To   time.Time
	HasPending bool
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
func timelineOf(k reconcile.KeyStatus, runs []keyRun) (t timeline) {
	var spans []span
	add := func(waits []reconcile.WaitRecord) {
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
		kind, to := "run", r.Started.Add(r.RunRecord.Took)
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
		t.HasPending = true
		t.draw(span{kind: "pending", from: k.At, to: k.Next})
	}
	return t
}

// tails are the kinds of the bar after the last run: what the key waits for now.
var tails = map[reconcile.KeyState]string{reconcile.KeyParked: string(reconcile.WaitParked),
	reconcile.KeyReady: string(reconcile.WaitQueue), reconcile.KeyBackingOff: string(reconcile.WaitBackoff),
	reconcile.KeyResting: string(reconcile.WaitHotLoop), reconcile.KeyPaused: string(reconcile.WaitPaused),
	reconcile.KeyScheduled: string(reconcile.WaitRequeue)}

// Span is the width of the picture: a few bars do not fill it.
func (t timeline) Span() int { return max(t.Width, 100) }

// draw adds a bar. Its length grows by the same step each time that its duration is ten times as long.
func (t *timeline) draw(s span) {
	d := s.to.Sub(s.from)
	width := 4 + int(12*math.Log10(1+float64(max(d, 0))/float64(100*time.Microsecond)))
	what := barWords[s.kind]
	if s.run > 0 {
		what += " at " + clock(s.from)
	}
	t.Bars = append(t.Bars, bar{t.Width, width, s.kind, what + ": " + duration(d), s.run})
	t.Width += width + 1
}

var barWords = map[string]string{"run": "Run", "failed": "Failed run", "idle": "Nothing to do",
	"pending":                   "Next run in",
	string(reconcile.WaitQueue): "Queued", string(reconcile.WaitParked): "Parked",
	string(reconcile.WaitHotLoop): "Resting, in a hot loop", string(reconcile.WaitBackoff): "Backing off",
	string(reconcile.WaitRequeue): "Scheduled", string(reconcile.WaitPaused): "Paused"}
