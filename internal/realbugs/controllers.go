package main

import (
	"context"
	"fmt"
	"strings"
)

// controller is one that is taken to be right, so that Check has to be silent about it.
type controller struct {
	// test is the name of its test, without Test: that of the controller.
	test string
	// first says what Check said at the first try.
	first string
}

// try is a set of controllers that were tried at the same time, for a section of RESULTS.md.
type try struct {
	header        string
	rows, details strings.Builder
}

// tries returns the sections, in the order of program.nth: those of Kubernetes, and the first tries after them.
func tries() []*try {
	return []*try{{header: controllersHeader}, {header: laterHeader}, {header: latestHeader},
		{header: fourthHeader}, {header: fifthHeader}, {header: sixthHeader}, {header: seventhHeader}}
}

const controllersHeader = `
## Controllers of kube-controller-manager

Each controller of Kubernetes v1.37.1 by itself, as its main makes it, with a scenario that was written before any was
run. Nothing is switched off. README.md judges the findings. No schedule begins after a minute, or after what
RECONCILETEST_LIMIT says, which was 30 s at the first try and 15 s now: the number of runs depends on the machine.

| controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|
`

const laterHeader = `
## A second first try

Controllers of six modules that Check had not seen before, each by itself, as its main makes it, with a scenario that
was written before any was run. Nothing is switched off. README.md judges the findings. No schedule begins after what
RECONCILETEST_LIMIT says, which was 20 s at the first try, and now.

| program | release | controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|---|---|
`

const latestHeader = `
## A third first try

Controllers of two modules that Check had not seen before, with scenarios that were written and compiled before any was
run, after the mends of the second try. Nothing is switched off. README.md judges the findings. No schedule begins after
what RECONCILETEST_LIMIT says, which was 30 s at the first try, and 20 s or 30 s now. The machine was busy, so that few
did, as the runs say, of which about ten have no disturbance: "silent" is weaker here than above.

| program | release | controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|---|---|
`

const fourthHeader = `
## A fourth first try

Controllers of modules that Check had not seen before, with scenarios that were written and compiled before any was run,
after the mends of the third try. Nothing is switched off. README.md judges the findings. No schedule begins after what
RECONCILETEST_LIMIT says, which was 40 s at the first try, and 12 s now.

| program | release | controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|---|---|
`

const fifthHeader = `
## A fifth first try

Controllers of modules that Check had not seen before, with scenarios that were written and compiled before any was run,
after the mends of the fourth try. Nothing is switched off. README.md judges the findings. No schedule begins after what
RECONCILETEST_LIMIT says.

| program | release | controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|---|---|
`

const sixthHeader = `
## A sixth first try

Controllers of modules that Check had not seen before, with scenarios that were written and compiled before any was run,
after the mends of the fifth try. Nothing is switched off. README.md judges the findings. No schedule begins after what
RECONCILETEST_LIMIT says, which was 40 s at the first try.

| program | release | controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|---|---|
`

const seventhHeader = `
## A seventh first try

Controllers of modules that Check had not seen before, with scenarios that were written and compiled before any was run,
after the mends of the sixth try. Nothing is switched off. README.md judges the findings. No schedule begins after what
RECONCILETEST_LIMIT says, which was 40 s at the first try.

| program | release | controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|---|---|
`

// section returns what RESULTS.md says of a try, or nothing if nothing was tried.
func (t *try) section() string {
	if t.rows.Len() == 0 {
		return ""
	}
	return t.header + t.rows.String() + "\nFound now:\n\n" + t.details.String()
}

// run runs the tests of all controllers of a program. only: it compiles the tests, and does no more. logs: it reads
// those of the last runs.
func (t *try) run(ctx context.Context, p program, only, logs bool) error {
	if len(p.controllers) == 0 {
		return nil
	}
	dir, err := folder(p, p.new)
	if err == nil && !logs {
		err = build(ctx, p, p.new, dir)
	}
	if err != nil || only {
		return err
	}
	of := ""
	if p.nth > 0 {
		of = p.name + " | " + p.new + " | "
	}
	for _, c := range p.controllers {
		if !logs {
			if err := runTest(ctx, dir, "Test"+c.test); err != nil {
				return fmt.Errorf("%s: %w", c.test, err)
			}
		}
		found, err := readTest(dir, "Test"+c.test)
		if err != nil {
			return fmt.Errorf("%s: %w", c.test, err)
		}
		fmt.Fprintf(&t.rows, "| %s%s | %s | %s | %d | %.1f |\n", of, c.test, c.first, found.summary(), found.runs,
			found.cpu.Seconds())
		found.list(&t.details, c.test)
	}
	return nil
}
