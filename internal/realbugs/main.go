package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("realbugs", flag.ContinueOnError)
	save := flags.String("save", "", "`file` for the table; empty: standard output")
	verbose := flags.Bool("v", false, "show what Check prints")
	only := flags.Bool("build", false, "compile the tests, and do no more")
	logs := flags.Bool("logs", false, "run nothing, and read the logs of the last runs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, plain, err := chosenBy(flags.Args())
	if err != nil {
		return err
	}
	var rows, right, details strings.Builder
	var errs []error
	silences := tries()
	for _, p := range chosen {
		if err := silences[p.nth].run(ctx, p, *only, *logs); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		for _, b := range p.bugs {
			r := &trial{program: p, bug: b}
			err := r.of(ctx, *only, *logs)
			switch {
			case err != nil:
				errs = append(errs, err)
				fmt.Fprintf(&details, "- %s was not tried: `%v`\n", b.published, err)
				continue
			case *only:
				continue
			}
			if *verbose {
				fmt.Fprintf(os.Stderr, "\n# %s\n\n%s\n\n# fixed\n\n%s\n", b.published, r.old.output, r.fixed.output)
			}
			rows.WriteString(r.row())
			details.WriteString(r.details())
		}
	}
	for _, r := range plain {
		t, err := r.try(ctx, *only, *logs)
		switch {
		case err != nil:
			errs = append(errs, err)
			fmt.Fprintf(&details, "- %s was not tried: `%v`\n", r.name, err)
			continue
		case *only:
			continue
		}
		if *verbose {
			fmt.Fprintf(os.Stderr, "\n# %s\n\n%s\n", r.name, t.found.output)
		}
		right.WriteString(r.row(t))
		t.found.list(&details, r.name+" "+r.new)
	}
	if *only {
		return errors.Join(errs...)
	}
	text := header + rows.String() + rightHeader + right.String() + "\n## What else was found\n\n" +
		details.String()
	for _, t := range silences {
		text += t.section()
	}
	if *save == "" {
		_, err := io.WriteString(os.Stdout, text)
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, os.WriteFile(*save, []byte(text), 0o644))...)
}

// chosenBy returns the programs and the releases that arguments name; all, if there are none.
func chosenBy(args []string) (chosen []program, plain []release, err error) {
	if len(args) == 0 {
		return programs, releases, nil
	}
	for _, p := range programs {
		if slices.Contains(args, p.name) {
			chosen = append(chosen, p)
		}
	}
	for _, r := range releases {
		if slices.Contains(args, r.name) {
			plain = append(plain, r)
		}
	}
	for _, arg := range args {
		if !slices.ContainsFunc(chosen, func(p program) bool { return p.name == arg }) &&
			!slices.ContainsFunc(plain, func(r release) bool { return r.name == arg }) {
			return nil, nil, fmt.Errorf("no program %s", arg)
		}
	}
	return chosen, plain, nil
}

// tried is a test that was run on a version of a program.
type tried struct {
	lines int // of the test
	found *findings
}

// try runs a test on a version of a program. only: it compiles it, and does no more. logs: it reads that of the last
// run.
func (p program) try(ctx context.Context, version, test string, only, logs bool) (t tried, err error) {
	dir, err := folder(p, version)
	if err == nil && !logs {
		if err = build(ctx, p, version, dir); err == nil && !only {
			err = runTest(ctx, dir, test)
		}
	}
	if err == nil && !only {
		t.found, err = readTest(dir, test)
	}
	if err == nil {
		t.lines, err = lines(dir)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", p.name, version, err)
	}
	return t, err
}

// trial is a bug, as it was looked for in both versions.
type trial struct {
	program
	bug
	lines      int // of the test
	old, fixed *findings
}

// of looks for the bug in both versions; see try.
func (t *trial) of(ctx context.Context, only, logs bool) error {
	for _, of := range []struct {
		version string
		into    **findings
	}{{t.program.old, &t.old}, {t.new, &t.fixed}} {
		if of.version == "" {
			continue
		}
		tried, err := t.program.try(ctx, of.version, t.test, only, logs)
		if err != nil {
			return err
		}
		*of.into, t.lines = tried.found, tried.lines
	}
	return nil
}

// lines counts those of a test that are not empty.
func lines(dir string) (n int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(data)) {
			if strings.TrimSpace(line) != "" {
				n++
			}
		}
	}
	return n, nil
}

const header = `# Published bugs in real controllers

Made by "make realbugs". README.md says which bugs were chosen before any was tried, and what was learned.

"found" is the rule by which Check has found the published bug in the release that has it, "runs" how many runs of the
program that took, with shrinking, and "lines" the length of the timeline. "CPU seconds" and "of" are those of the whole
search, which goes on after a finding, and its runs. "test" is the number of lines of the test that are not empty.
"there" is what Check says of the release with the fix, and "first try" what it said before anything was mended for it.

| bug | release | found | runs | of | CPU seconds | test | lines | fix | there | runs | CPU seconds | first try |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

func (t *trial) row() string {
	found, _ := t.old.of(t.bug)
	by, runs, timeline := "not found", "", ""
	switch {
	case found != nil:
		by, runs, timeline = found.rule, fmt.Sprint(found.runs), fmt.Sprint(found.timeline)
	case t.old.broken != "":
		by = "the test fails"
	}
	row := fmt.Sprintf("| [%s: %s](%s) | %s | %s | %s | %d | %.1f | %d | %s |", t.name, t.about, t.published,
		t.program.old, by, runs, t.old.runs, t.old.cpu.Seconds(), t.lines, timeline)
	if t.fixed == nil {
		return row + " there is none | | | | |\n"
	}
	return row + fmt.Sprintf(" %s | %s | %d | %.1f | %s |\n", t.new, t.fixed.summary(), t.fixed.runs,
		t.fixed.cpu.Seconds(), t.first)
}

// details lists the findings that are not the published bug.
func (t *trial) details() string {
	var b strings.Builder
	_, others := t.old.of(t.bug)
	(&findings{all: others, broken: t.old.broken}).list(&b, t.name+" "+t.program.old)
	if t.fixed != nil {
		t.fixed.list(&b, t.name+" "+t.new)
	}
	return b.String()
}
