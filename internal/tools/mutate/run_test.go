package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var toy = map[string]string{
	"go.mod": "module example.com/toy\n\ngo 1.26\n",
	"pair/pair.go": `package pair

type four [2 + 2]int

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Count(n int) (c int) {
	for c < n {
		c++
	}
	return c
}

func Fits(n uint8) bool { return n < 255 }

func Unused(a int) int { return a + 1 }
`,
	"user/user.go": `package user

import "example.com/toy/pair"

func Next(a int) int { return pair.Unused(a) }
`,
	"user/user_test.go": `package user

import (
	"net"
	"testing"
)

func TestMax(t *testing.T) {
	if Next(1) != 2 {
		t.Fatal("wrong")
	}
}

func TestSockets(t *testing.T) {
	net.Listen("tcp", "127.0.0.1:0")
}
`,
	"pair/pair_test.go": `package pair

import (
	"net"
	"os"
	"testing"
	"time"
)

func TestBusy(t *testing.T) {
	busy, _ := time.ParseDuration(os.Getenv("TOY_IS_BUSY"))
	for end := time.Now().Add(busy); time.Now().Before(end); {
	}
	if Max(1, 2) != 2 {
		t.Fatal("wrong")
	}
}

func TestMax(t *testing.T) {
	if Max(1, 2) != 2 || Max(2, 1) != 2 {
		t.Fatal("wrong")
	}
}

func TestCount(t *testing.T) {
	if Count(3) != 3 {
		t.Fatal("wrong")
	}
}

func TestFits(t *testing.T) {
	if Fits(255) || !Fits(3) {
		t.Fatal("wrong")
	}
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func TestSockets(t *testing.T) {
	if _, err := listen(); err != nil || Unused(1) != 2 {
		t.Fatal("wrong")
	}
}

func TestBroken(t *testing.T) { t.Fatal("always") }
`,
}

func writeToy(t *testing.T) (root string) {
	root = t.TempDir()
	for name, text := range toy {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestAToyPackage tries all mutants of a small module: some are killed, one hangs, one survives, one does not
// compile, some are reached only by a test that is left out.
func TestAToyPackage(t *testing.T) {
	root := writeToy(t)
	c := config{sampleSize: 100, seed: 1, workers: 2, slowest: time.Minute, log: t.Logf}
	p := c.newPackage(root, "pair", t.TempDir())
	if err := c.run(t.Context(), p, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if p.uncompiled != 1 { // 256 is no uint8
		t.Errorf("%d mutants do not compile", p.uncompiled)
	}
	var survived, hung, unreached []string
	for _, trial := range p.tried {
		before, after := trial.mutant.lines()
		switch trial.result {
		case passed:
			survived = append(survived, before+" -> "+after)
		case timedOut:
			hung = append(hung, trial.by+": "+before+" -> "+after)
		case failed:
			if trial.by == "" {
				t.Errorf("nobody knows which test failed for %s", trial)
			}
		}
	}
	for _, m := range p.unreached {
		before, _ := m.lines()
		unreached = append(unreached, before)
	}
	equal := func(what string, got []string, want ...string) {
		t.Helper()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	equal("survived", survived, "if a > b { -> if a >= b {")
	equal("hung", hung, "TestCount: c++ -> (deleted)", "TestCount: c++ -> c--")
	line := "func Unused(a int) int { return a + 1 }"
	equal("unreached", unreached, line, line, line)
	without := strings.Join(p.without, ", ")
	if len(p.without) != 2 ||
		!strings.Contains(without, "TestSockets (needs") || !strings.Contains(without, "TestBroken (failed") {
		t.Errorf("left out: %s", without)
	}

	var text strings.Builder
	report(&text, []*pkg{p})
	if !strings.Contains(text.String(), "pair/pair.go:6\t> to >=\n\t- if a > b {\n\t+ if a >= b {\n") {
		t.Errorf("the report does not name the survivor:\n%s", text.String())
	}
	if entries, err := os.ReadDir(p.dir); err != nil || len(entries) != 2 {
		t.Errorf("the package's directory has %d files, %v", len(entries), err)
	}

	c.sampleSize = 5
	first, again := c.sample(p), c.sample(p)
	c.seed = 2
	if other := c.sample(p); len(first) != 5 || !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("a seed does not decide the sample: %v, %v, with another seed %v", first, again, other)
	}
	c.at = []string{"pair.go:6"}
	for _, m := range c.sample(p) {
		if before, _ := m.lines(); before != "if a > b {" {
			t.Errorf("asked for line 6, got %s", before)
		}
	}

	// What a busy machine makes slow is not killed by that.
	t.Setenv("TOY_IS_BUSY", "1s")
	for _, test := range p.tests {
		test.took = -900 * time.Millisecond
	}
	for _, trial := range p.tried {
		if trial.result != passed {
			continue
		}
		if o := p.try(t.Context(), trial.mutant, p.meeting(trial.mutant)); o.result != passed {
			t.Errorf("on a busy machine: %s by %s for %s", o.result, o.by, trial)
		}
	}

	out := c.newPackage(root, "pair", t.TempDir())
	if err := c.run(t.Context(), out, time.Now()); err != nil || len(out.tried) != 0 || !out.interrupted {
		t.Errorf("out of time: %v, %d tried", err, len(out.tried))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.run(ended, c.newPackage(root, "pair", t.TempDir()), time.Now().Add(time.Hour)); err == nil {
		t.Error("a run that is interrupted says nothing")
	}
}

// TestTheTestsOfAnotherPackage tries the mutants that only a package which uses theirs reaches, on their lines.
func TestTheTestsOfAnotherPackage(t *testing.T) {
	c := config{sampleSize: 100, seed: 1, workers: 2, slowest: time.Minute, log: t.Logf,
		at: []string{"pair.go:6", "pair.go:21"}, testsOf: []string{"pair", "user"}}
	p := c.newPackage(writeToy(t), "pair", t.TempDir())
	if err := c.run(t.Context(), p, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if len(p.unreached) != 0 {
		t.Errorf("%d mutants are reached by no test", len(p.unreached))
	}
	by := map[string]map[string]bool{}
	for _, trial := range p.tried {
		place := trial.mutant.place()
		if by[place] == nil {
			by[place] = map[string]bool{}
		}
		by[place][trial.by] = true
	}
	want := map[string]map[string]bool{
		"pair.go:6":  {"": true, "TestBusy": true, "TestMax": true},
		"pair.go:21": {"user.TestMax": true},
	}
	if !maps.EqualFunc(by, want, maps.Equal) {
		t.Errorf("killed by %v, want %v", by, want)
	}
	if without := strings.Join(p.without, ", "); !strings.Contains(without, "user.TestSockets (needs") {
		t.Errorf("left out: %s", without)
	}
}
