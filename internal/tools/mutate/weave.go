package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A woven file holds the code as it is and all of its mutants, each behind its own activeMutant(id).
type woven struct {
	source  *source
	text    string
	threads []thread
}

// A thread is what one mutant adds to a woven file. [start, end) holds all of it, with the code in between.
type thread struct {
	mutant              *mutant
	start, middle, tail int // the code in between goes from middle to tail
	end                 int
}

// weave puts the mutants of one file into its code. Hosts contain each other or do not meet, so that a stack knows
// which one to close.
func weave(file *source, mutants []*mutant) woven {
	mutants = slices.Clone(mutants)
	slices.SortStableFunc(mutants, func(a, b *mutant) int {
		return cmp.Or(cmp.Compare(a.host.start, b.host.start), cmp.Compare(b.host.end, a.host.end))
	})
	w := woven{source: file}
	var out strings.Builder
	var open []*thread
	written := 0
	copyTo := func(offset int) {
		out.Write(file.text[written:offset])
		written = offset
	}
	closeAllBefore := func(offset int) {
		for len(open) > 0 && open[len(open)-1].mutant.host.end <= offset {
			t := open[len(open)-1]
			open = open[:len(open)-1]
			copyTo(t.mutant.host.end)
			_, after := t.mutant.around()
			t.tail = out.Len()
			out.WriteString(after)
			t.end = out.Len()
			w.threads = append(w.threads, *t)
		}
	}
	for _, m := range mutants {
		closeAllBefore(m.host.start)
		copyTo(m.host.start)
		before, _ := m.around()
		t := &thread{mutant: m, start: out.Len()}
		out.WriteString(before)
		t.middle = out.Len()
		open = append(open, t)
	}
	closeAllBefore(len(file.text))
	copyTo(len(file.text))
	w.text = out.String()
	return w
}

// around is what a mutant puts before and after its host.
func (m *mutant) around() (before, after string) {
	active, changed := fmt.Sprintf("activeMutant(%d)", m.id), m.changed(m.host.start, m.host.end)
	switch m.host.kind {
	case boolean:
		return fmt.Sprintf("(%s && (%s) || !%s && (", active, changed, active), "))"
	case statement:
		return fmt.Sprintf("if %s { %s } else { ", active, changed), " }"
	case define:
		_, value, _ := strings.Cut(changed, ":=")
		return "", fmt.Sprintf("; if %s { %s = %s }", active, m.host.name, value)
	default: // entry
		return fmt.Sprintf(" if %s { %s };", active, changed), ""
	}
}

// blamed lists the mutants that an error of the compiler at a line and a column, both from 1, can come from: those
// whose own text is there or, if there is none, those around it. Column 0 stands for all of the line.
func (w woven) blamed(line, column int) []*mutant {
	from := 0
	for range line - 1 {
		from += strings.IndexByte(w.text[from:], '\n') + 1
	}
	to := from + strings.IndexByte(w.text[from:]+"\n", '\n')
	if column > 0 {
		from += column - 1
		to = from + 1
	}
	var own, around []*mutant
	for _, t := range w.threads {
		switch {
		case to <= t.start || t.end <= from:
		case from < t.middle || t.tail < to:
			own = append(own, t.mutant)
		default:
			around = append(around, t.mutant)
		}
	}
	if len(own) > 0 {
		return own
	}
	return around
}

// runtime is added to the package, with its name and one more than the highest id. Its variables are set before those
// of the package whose values have mutants, since those call it.
const runtime = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	activeMutantID, _ = strconv.Atoi(os.Getenv("MUTATE_ACTIVE"))
	mutantRecord, _   = os.OpenFile(os.Getenv("MUTATE_RECORD"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	mutantsSeen       [%d]atomic.Bool
)

func activeMutant(id int) bool {
	if mutantRecord != nil && !mutantsSeen[id].Load() {
		seeMutant(id)
	}
	return id == activeMutantID
}

func seeMutant(id int) {
	if !mutantsSeen[id].Swap(true) {
		mutantRecord.WriteString(strconv.Itoa(id) + "\n")
	}
}
`
