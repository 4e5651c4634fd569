package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func (p *pkg) count(r result) int {
	n := 0
	for _, t := range p.tried {
		if t.result == r {
			n++
		}
	}
	return n
}

// report prints the survivors of each package, then the scores.
func report(w io.Writer, packages []*pkg) {
	for _, p := range packages {
		if p.count(passed) == 0 {
			continue
		}
		fmt.Fprintf(w, "Survivors in %s:\n", p.name)
		for _, t := range p.inOrder() {
			if t.result == passed {
				fmt.Fprintf(w, "%s/%s\n", p.name, t)
			}
		}
		fmt.Fprintln(w)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "package\tmutants\tnot compiled\tnot reached\ttried\tkilled\ttimed out\tsurvived\tscore\ttime")
	for _, p := range packages {
		score, note := "-", ""
		if n := len(p.tried); n > 0 {
			score = fmt.Sprintf("%.1f %%", 100*float64(n-p.count(passed))/float64(n))
		}
		if p.interrupted {
			note = ", not all of the sample"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%v%s\n",
			p.name, p.found, p.uncompiled, len(p.unreached), len(p.tried),
			p.count(failed), p.count(timedOut), p.count(passed), score, p.took.Round(time.Second), note)
	}
	table.Flush()
}

func (p *pkg) inOrder() []trial {
	byPlace := func(a, b trial) int { return cmp.Compare(a.mutant.id, b.mutant.id) }
	return slices.SortedFunc(slices.Values(p.tried), byPlace)
}

// save writes all that is known about a package: each mutant that was tried, with the test that noticed it, those
// that no test reaches, and the tests that were left out.
func (p *pkg) save(dir string) error {
	var b strings.Builder
	fmt.Fprintln(&b, "result\tplace\tchange\tseconds\tby\tbefore\tafter")
	line := func(result string, m *mutant, took time.Duration, by string) {
		before, after := m.lines()
		fmt.Fprintf(&b, "%s\t%s\t%s\t%.1f\t%s\t%s\t%s\n", result, m.place(), m.change, took.Seconds(), by,
			before, after)
	}
	words := map[result]string{passed: "survived", failed: "killed", timedOut: "timed out"}
	for _, t := range p.inOrder() {
		line(words[t.result], t.mutant, t.took, t.by)
	}
	for _, m := range p.unreached {
		line("not reached", m, 0, "")
	}
	for _, w := range p.without {
		fmt.Fprintf(&b, "left out\t%s\n", w)
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(p.name)+".tsv"), []byte(b.String()), 0o644)
}
