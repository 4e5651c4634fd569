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

const controllersHeader = `
## Controllers of %s %s

Each controller by itself, as its main makes it, with a scenario that was written before any was run. Nothing is
switched off. README.md judges the findings. No schedule begins after a minute, or after what RECONCILETEST_LIMIT says,
which was 30 s at the first try and 20 s now: the number of runs depends on the machine.

| controller | first try | now | runs | CPU seconds |
|---|---|---|---|---|
`

// silence runs the tests of all controllers of a program, and returns a table and what was found. only: it compiles
// the tests, and does no more. logs: it reads those of the last runs.
func silence(ctx context.Context, p program, only, logs bool) (string, error) {
	if len(p.controllers) == 0 {
		return "", nil
	}
	dir, err := folder(p, p.new)
	if err == nil && !logs {
		err = build(ctx, p, p.new, dir)
	}
	if err != nil || only {
		return "", err
	}
	var rows, details strings.Builder
	for _, c := range p.controllers {
		if !logs {
			if err := runTest(ctx, dir, "Test"+c.test); err != nil {
				return "", fmt.Errorf("%s: %w", c.test, err)
			}
		}
		found, err := readTest(dir, "Test"+c.test)
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.test, err)
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %d | %.1f |\n", c.test, c.first, found.summary(), found.runs,
			found.cpu.Seconds())
		found.list(&details, c.test)
	}
	return fmt.Sprintf(controllersHeader, p.name, p.new) + rows.String() + "\nFound now:\n\n" + details.String(), nil
}
