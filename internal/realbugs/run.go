package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// findings is what Check has printed of a version.
type findings struct {
	all    []finding
	runs   int // of the whole search
	cpu    time.Duration
	output string
	broken string // why the test has failed, if it was not for findings
}

type finding struct {
	text     string
	rule     string
	runs     int // until it was found and shrunk
	timeline int // lines
	replay   string
}

var (
	oneFinding = regexp.MustCompile(`(?m)^ *\S+\.go:\d+: reconciletest\.Check: finding \d+ of \d+, `)
	runsOf     = regexp.MustCompile(`^after (\d+) runs? in `)
	ruleOf     = regexp.MustCompile(`by the rule "([^"]*)"`)
	replayOf   = regexp.MustCompile(`again, alone: Replay: (".*")`)
	stopped    = regexp.MustCompile(`reconciletest\.Check: (a run stands still, [^;]*)`)
	passed     = regexp.MustCompile(`(?m)^--- PASS: `)
	searched   = regexp.MustCompile(`(?m)(\d+) runs in \S+ \(`)
)

// runTest runs a test of the module in dir, and writes what it prints, and the CPU time that it took, to files there.
func runTest(ctx context.Context, dir, test string) error {
	c := exec.CommandContext(ctx, filepath.Join(dir, "check.test"), "-test.v", "-test.run", "^"+test+"$",
		"-test.timeout", "30m")
	c.Dir = dir
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	if err := os.WriteFile(filepath.Join(dir, test+".cpu"), []byte(cpu.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, test+".log"), out, 0o644)
}

// readTest reads what the last run of a test has written.
func readTest(dir, test string) (*findings, error) {
	out, err := os.ReadFile(filepath.Join(dir, test+".log"))
	if err != nil {
		return nil, err
	}
	cpu, err := os.ReadFile(filepath.Join(dir, test+".cpu"))
	if err != nil {
		return nil, err
	}
	f := read(string(out))
	if f.cpu, err = time.ParseDuration(string(cpu)); err != nil {
		return nil, err
	}
	if len(f.all) == 0 && !passed.Match(out) {
		f.broken, _, _ = strings.Cut(string(out[:min(len(out), 90)]), "\n")
		if m := stopped.FindSubmatch(out); m != nil {
			f.broken = string(m[1])
		}
	}
	return f, nil
}

// read reads what a test has printed.
func read(output string) *findings {
	f := &findings{output: output}
	if m := searched.FindStringSubmatch(output); m != nil {
		f.runs, _ = strconv.Atoi(m[1]) // the pattern has digits
	}
	at := oneFinding.FindAllStringIndex(output, -1)
	for i, from := range at {
		end := len(output)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		text := output[from[1]:end]
		one := finding{text: text}
		if m := runsOf.FindStringSubmatch(text); m != nil {
			one.runs, _ = strconv.Atoi(m[1])
		}
		if m := ruleOf.FindStringSubmatch(text); m != nil {
			one.rule = m[1]
		}
		if m := replayOf.FindStringSubmatch(text); m != nil {
			one.replay = m[1]
		}
		_, after, _ := strings.Cut(text, "what happened:\n")
		timeline, _, _ := strings.Cut(after, "again, alone:")
		one.timeline = strings.Count(timeline, "\n")
		f.all = append(f.all, one)
	}
	return f
}

// summary says in a word or two what was found.
func (f *findings) summary() string {
	switch {
	case f.broken != "":
		return "the test fails"
	case len(f.all) == 0:
		return "silent"
	case len(f.all) == 1:
		return "1 finding"
	}
	return fmt.Sprintf("%d findings", len(f.all))
}

// list writes a line for each finding of a program.
func (f *findings) list(b *strings.Builder, program string) {
	for _, one := range f.all {
		fmt.Fprintf(b, "- %s, %q:\n  `%s`\n", program, one.rule, one.replay)
	}
	if f.broken != "" {
		fmt.Fprintf(b, "- %s: `%s`\n", program, f.broken)
	}
}

// of returns the first finding that shows a bug, and the others.
func (f *findings) of(b bug) (found *finding, others []finding) {
	for _, one := range f.all {
		if found == nil && b.shows.MatchString(one.text) {
			found = &one
		} else {
			others = append(others, one)
		}
	}
	return found, others
}
