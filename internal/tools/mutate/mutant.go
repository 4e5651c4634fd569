package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one small change of one file: the bytes from start to end become text.
type mutant struct {
	id         int
	file       *source
	change     string // the kind of change, in a word or two
	start, end int
	text       string
	host       host
}

// A host is the piece of code around a change that weave can write twice, before and after.
type host struct {
	kind       hostKind
	start, end int
	name       string // of the variable, for a define
}

type hostKind int

const (
	boolean   hostKind = iota // an expression of type bool
	statement                 // one statement of a list
	define                    // name := value, where evaluating the value twice does no harm
	entry                     // the beginning of a function's body
)

type source struct {
	path string
	text []byte
	line []int // the offset of the first byte of each line
}

// lineOf is the number of the line of an offset, from 1.
func (s *source) lineOf(offset int) int {
	i, exact := slices.BinarySearch(s.line, offset)
	if exact {
		return i + 1
	}
	return i
}

// place is the file and the line of a change, such as delay.go:114.
func (m *mutant) place() string {
	return fmt.Sprintf("%s:%d", filepath.Base(m.file.path), m.file.lineOf(m.start))
}

// changed is the code from start to end with the change made.
func (m *mutant) changed(start, end int) string {
	return string(m.file.text[start:m.start]) + m.text + string(m.file.text[m.end:end])
}

// lines gives the line of the change before and after. Where the change spans several lines, the first one stands for
// all.
func (m *mutant) lines() (before, after string) {
	start := bytes.LastIndexByte(m.file.text[:m.start], '\n') + 1
	end := len(m.file.text)
	if i := bytes.IndexByte(m.file.text[m.end:], '\n'); i >= 0 {
		end = m.end + i
	}
	first := func(s string) string {
		line, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
		if rest != "" {
			line += " ..."
		}
		return line
	}
	before, after = first(string(m.file.text[start:end])), first(m.changed(start, end))
	if after == "" {
		after = "(deleted)"
	}
	return before, after
}
