package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/perf/benchunit"
)

// table prints what was measured, a line for each measure as soon as it is known.
type table struct{ w io.Writer }

const layout = "%-72s %12s %12s %7s %9s  %s\n"

func (t table) head() { fmt.Fprintf(t.w, layout, "workload", "ours", "peer", "ratio", "target", "") }

// line prints one measure and says whether its targets are met.
func (t table) line(r row, m measure, f figures) (ok bool, err error) {
	ours, theirs := f[m.ours()][m.unit], f[m.theirs()][m.unit]
	if len(ours) == 0 || len(theirs) == 0 && m.ratio.kind != none {
		return false, fmt.Errorf("%s or %s has not reported %s", m.ours(), m.theirs(), m.unit)
	}
	our, peer, ratio := median(ours), "-", "-"
	ok = m.limit.meets(our)
	if len(theirs) > 0 { // some figures are ours alone
		their := median(theirs)
		peer, ok = m.show(their), ok && m.ratio.meets(our/their)
		if their != 0 {
			ratio = fmt.Sprintf("%.2f", our/their)
		}
	}
	t.print(r.part+": "+r.workload+", "+m.name, m.show(our), peer, ratio, m.target(), ok)
	return ok, nil
}

func (t table) print(what, ours, theirs, ratio, target string, ok bool) {
	verdict := "ok"
	if !ok {
		verdict = "SHORT"
	}
	fmt.Fprintf(t.w, layout, what, ours, theirs, ratio, target, verdict)
}

func (m measure) ours() string {
	if m.side == "" {
		return "thermostat"
	}
	return m.side
}

func (m measure) theirs() string {
	if m.peer == "" {
		return clientGo
	}
	return m.peer
}

func (m measure) target() string {
	switch {
	case m.ratio.kind == most:
		return fmt.Sprintf("<= %g", m.ratio.value)
	case m.ratio.kind == least:
		return fmt.Sprintf(">= %g", m.ratio.value)
	case m.limit.kind == most:
		return "<= " + m.show(m.limit.value)
	default:
		return ">= " + m.show(m.limit.value)
	}
}

// show writes a figure as people read it: 1.5M/s, 95ns.
func (m measure) show(v float64) string {
	number := benchunit.Scale(v, benchunit.ClassOf(m.unit))
	thing, per, _ := strings.Cut(m.unit, "/")
	switch {
	case per == "s":
		return number + "/s"
	case strings.HasSuffix(thing, "sec"):
		return number + "s"
	case strings.HasSuffix(thing, "B"):
		return number + "B"
	}
	return number
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
