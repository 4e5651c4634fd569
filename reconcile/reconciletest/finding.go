package reconciletest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Finding is what runs of a program have shown to be wrong. Runs that break the same rule, with the same kinds of
// objects and fields, by the same kinds of disturbances, are one finding.
type Finding struct {
	// Rule is the rule that the program breaks, and Detail how.
	Rule   string
	Detail []string
	// Timeline is what happened, in at most 20 lines: steps, disturbances, writes and their answers. A line begins with
	// the time since the begin of the run, and writes with the incarnation that made them. It is the shortest of those
	// that Check has seen. With [Scenario.Replay] it is all that happened, with the reads.
	Timeline []string
	// Replay is for [Scenario.Replay].
	Replay string
	// Runs and Took say how many runs and how much real time it took to find and shrink it.
	Runs int
	Took time.Duration
	// Count is how many schedules have shown it.
	Count int

	about  []string // what the breaches are about, before shrinking and after it; see breach.about
	kinds  []string // of disturbances, sorted
	ended  bool     // nothing had to go wrong for it, so that the search was not begun
	length int      // how many lines the timeline would have without a bound
}

// String returns the finding as Check prints it.
func (f *Finding) String() string {
	var b strings.Builder
	also := ""
	if f.Count > 1 {
		also = fmt.Sprintf(", and by %d schedules in all", f.Count)
	}
	fmt.Fprintf(&b, "after %d runs in %s%s, by the rule %q:\n", f.Runs, f.Took.Round(time.Millisecond), also, f.Rule)
	for _, line := range f.Detail[:min(len(f.Detail), timelineLines)] {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	fmt.Fprintf(&b, "what happened:\n")
	for _, line := range f.Timeline {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	fmt.Fprintf(&b, "again, alone: Replay: %q", f.Replay)
	if strings.Contains(f.Replay, " "+backTo+" ") || strings.Contains(f.Replay, timeTravel) {
		fmt.Fprintf(&b, "\nit takes an old list, which an informer may get of a server before 1.34 or with a "+
			"client-go before 0.35; if the program needs newer ones, and lists nothing at resourceVersion 0 itself, "+
			"Off: %q, %q", backTo, timeTravel)
	}
	if f.Rule == ruleNoLeaks && len(f.kinds) == 0 {
		b.WriteString("\nthe search went on, and did not look at goroutines that run the same function any more")
	}
	if f.Rule == ruleIdempotent && len(f.kinds) == 0 && !f.ended {
		b.WriteString("\nthe search went on, and did not look at such updates any more")
	}
	if f.ended {
		b.WriteString("\nno disturbance was tried: every run would show this. Mend it, ")
		if slices.Contains(switchable, f.Rule) {
			fmt.Fprintf(&b, "or switch off the rule with Off: %q, ", f.Rule)
		}
		b.WriteString("and run Check again")
	}
	return b.String()
}

// alikeFindings puts findings together that break the same rule with the same kinds of objects and fields, and differ
// in the disturbance. The one with the shortest timeline comes first.
func alikeFindings(all []*Finding) [][]*Finding {
	var groups [][]*Finding
	for _, f := range all {
		i := slices.IndexFunc(groups, func(g []*Finding) bool { return g[0].Rule == f.Rule && g[0].what() == f.what() })
		if i < 0 {
			groups = append(groups, []*Finding{f})
		} else {
			groups[i] = append(groups[i], f)
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b *Finding) int { return a.length - b.length })
	}
	return groups
}

// what returns what the shrunk run is about.
func (f *Finding) what() string { return f.about[1] }

// others names findings that are like one that is shown.
func others(all []*Finding) string {
	var b strings.Builder
	if len(all) > 0 {
		b.WriteString("\nthe same by other disturbances:")
	}
	for _, f := range all {
		fmt.Fprintf(&b, "\n  Replay: %q, one of %d", f.Replay, f.Count)
	}
	return b.String()
}

// found notes a run that has shown something, which stands. It belongs to a finding that there is, or is a new one.
// about is what it was about before it was shrunk.
func (c *check) found(s schedule, o *ending, about string) {
	f := &Finding{Rule: o.failure.rule, Detail: o.failure.detail, Timeline: o.timeline, Replay: s.String(),
		Runs: c.runs, Took: time.Since(c.began), Count: 1,
		about: []string{about, o.failure.about()}, kinds: s.kinds(), length: o.length()}
	known := c.known(s, o)
	if known == nil {
		c.findings = append(c.findings, f)
		return
	}
	known.Count++
	known.about = append(known.about, about)
	if f.length < known.length {
		known.Detail, known.Timeline, known.Replay, known.length = f.Detail, f.Timeline, f.Replay, f.length
	}
}

// known returns the finding that a run belongs to, or nil. One with fewer disturbances, all of which the schedule has,
// will do: the others were not needed.
func (c *check) known(s schedule, o *ending) *Finding {
	kinds := s.kinds()
	for _, f := range c.findings {
		if f.Rule == o.failure.rule && slices.Contains(f.about, o.failure.about()) && !slices.ContainsFunc(f.kinds,
			func(kind string) bool { return !slices.Contains(kinds, kind) }) {
			return f
		}
	}
	return nil
}

// kinds returns the kinds of the disturbances of a schedule, each once.
func (s schedule) kinds() []string {
	kinds := []string{}
	for _, d := range s.disturbances {
		kinds = append(kinds, nameOfKind(d.what))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// length returns how many lines a timeline of the run would have without a bound: all but the reads.
func (o *ending) length() (n int) {
	for _, e := range o.trace {
		if e.weight != read {
			n++
		}
	}
	return n
}
