package main

import (
	"context"
	"fmt"
)

// release is one of a program, its new one, in which no bug is known that Check could find.
type release struct {
	program
	runs  string // what of it runs
	test  string
	first string // what Check said at the first try
}

var releases = []release{
	{
		program: program{name: "trust-manager", module: "github.com/cert-manager/trust-manager", new: "v0.24.0",
			definitions: "deploy/crds/trust.cert-manager.io_bundles.yaml"},
		runs: "the controller of Bundles", test: "TestBundle",
		first: `5 findings, two bugs, both real by reading`,
	},
}

// try runs the test of a release; see program.try.
func (r release) try(ctx context.Context, only, logs bool) (tried, error) {
	return r.program.try(ctx, r.new, r.test, only, logs)
}

const rightHeader = `
## Releases without a known bug

Each was tried with nothing switched off. "first try" is what Check said before anything was mended for it, and "now"
what it says.

| program | release | what runs | test | first try | now | runs | CPU seconds |
|---|---|---|---|---|---|---|---|
`

func (r release) row(t tried) string {
	return fmt.Sprintf("| %s | %s | %s | %d | %s | %s | %d | %.1f |\n", r.name, r.new, r.runs, t.lines, r.first,
		t.found.summary(), t.found.runs, t.found.cpu.Seconds())
}
