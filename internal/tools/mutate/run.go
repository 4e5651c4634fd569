package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"
)

// A pkg is a package that is changed, with the tests that are tried.
type pkg struct {
	name   string // as given: workqueue
	dir    string
	work   string   // for temporary files
	suites []*suite // its own tests first

	found       int
	uncompiled  int
	mutants     []*mutant // those that compile
	tests       []*test
	without     []string // the tests that are not run, with the reason
	unreached   []*mutant
	tried       []trial
	took        time.Duration
	interrupted bool
}

func (c config) newPackage(root, name, work string) *pkg {
	p := &pkg{name: name, dir: filepath.Join(root, name), work: work}
	p.suites = []*suite{{dir: p.dir, binary: filepath.Join(work, "test")}}
	for i, other := range c.testsOf {
		if other != name {
			binary := filepath.Join(work, fmt.Sprintf("test%d", i))
			p.suites = append(p.suites, &suite{dir: filepath.Join(root, other), prefix: other + ".", binary: binary})
		}
	}
	return p
}

// A trial is what came of one mutant.
type trial struct {
	mutant *mutant
	outcome
	took time.Duration
}

// slow is how long a test takes that is run only for a mutant which the others let through.
const slow = time.Second

// run tries a sample of the mutants of a package, until the deadline. It fills in p as far as it gets.
func (c config) run(ctx context.Context, p *pkg, deadline time.Time) error {
	begin := time.Now()
	defer func() { p.took = time.Since(begin) }()
	files, all, err := findAll(p.dir)
	if err != nil {
		return err
	}
	if c.since != "" {
		if all, err = changedSince(ctx, p.dir, c.since, all); err != nil {
			return err
		}
	}
	p.found = len(all)
	for i, m := range all {
		m.id = i + 1
	}
	if err := p.compileAll(ctx, files, all); err != nil {
		return err
	}
	p.uncompiled = p.found - len(p.mutants)
	c.log("%s: %d mutants compiled in %v", p.name, len(p.mutants), time.Since(begin).Round(time.Second))
	for _, s := range p.suites {
		tests, without, err := c.choose(ctx, s)
		if err != nil {
			return err
		}
		p.tests, p.without = append(p.tests, tests...), append(p.without, without...)
	}
	if together := p.try(ctx, &mutant{}, p.tests); together.result != passed {
		return fmt.Errorf("%s: the tests fail with nothing changed: %s %s", p.name, together.by, together.result)
	}
	c.log("%s: %d tests chosen after %v, %d left out",
		p.name, len(p.tests), time.Since(begin).Round(time.Second), len(p.without))

	p.unreached = slices.DeleteFunc(slices.Clone(p.mutants), func(m *mutant) bool { return len(p.meeting(m)) > 0 })
	sample := c.sample(p)
	trials := make([]trial, len(sample))
	inParallel(c.workers, len(sample), func(i int) {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return
		}
		begin := time.Now()
		o := p.try(ctx, sample[i], p.meeting(sample[i]))
		if ctx.Err() != nil {
			return
		}
		trials[i] = trial{mutant: sample[i], outcome: o, took: time.Since(begin)}
		if o.result == passed {
			c.log("%s", trials[i])
		}
	})
	p.tried = slices.DeleteFunc(trials, func(t trial) bool { return t.mutant == nil })
	p.interrupted = len(p.tried) < len(sample)
	return ctx.Err()
}

// sample picks the mutants to try, out of those that a test comes across: the same ones for the same seed and code.
func (c config) sample(p *pkg) []*mutant {
	reached := slices.DeleteFunc(slices.Clone(p.mutants), func(m *mutant) bool {
		return len(p.meeting(m)) == 0 || len(c.at) > 0 && !slices.Contains(c.at, m.place())
	})
	// The order depends on nothing but the seed and the number of mutants, so that one that is reached by chance
	// changes little.
	order := rand.New(rand.NewPCG(c.seed, 0)).Perm(p.found + 1)
	slices.SortFunc(reached, func(a, b *mutant) int { return order[a.id] - order[b.id] })
	return reached[:min(c.sampleSize, len(reached))]
}

// meeting lists the tests that come across a mutant. No other one can tell.
func (p *pkg) meeting(m *mutant) []*test {
	return slices.DeleteFunc(slices.Clone(p.tests), func(t *test) bool { return !t.meets[m.id] })
}

// try runs tests with a mutant, the quick ones of all suites first, until one fails.
func (p *pkg) try(ctx context.Context, m *mutant, tests []*test) outcome {
	for _, isSlow := range []bool{false, true} {
		for _, s := range p.suites {
			some := slices.DeleteFunc(slices.Clone(tests), func(t *test) bool {
				return t.suite != s || (t.took >= slow) != isSlow
			})
			if len(some) == 0 {
				continue
			}
			if o := s.try(ctx, m, some); o.result != passed {
				o.by = s.prefix + o.by
				return o
			}
		}
	}
	return outcome{result: passed}
}

// try runs tests with a mutant until one fails. A test has four times as long as without a mutant, and 4 s. If it takes
// longer, the machine may be busy with something else: that counts only if the test, with nothing changed, takes less
// than half of that now. Else there is more time.
func (s *suite) try(ctx context.Context, m *mutant, tests []*test) outcome {
	for patience := time.Duration(2); ; patience *= 2 {
		half := func(t *test) time.Duration { return patience * (t.took + time.Second) }
		whole := func(t *test) time.Duration { return 2 * half(t) }
		o := s.test(ctx, tests, whole, fmt.Sprintf("MUTATE_ACTIVE=%d", m.id))
		if o.result != timedOut || patience >= mostPatience {
			return o
		}
		slowest := slices.DeleteFunc(slices.Clone(tests), func(t *test) bool { return t.name != o.by })
		if len(slowest) > 0 && s.test(ctx, slowest, half).result == passed {
			return o
		}
	}
}

// mostPatience bounds how often try gives a test more time.
const mostPatience = 32

func (t trial) String() string {
	before, after := t.mutant.lines()
	return fmt.Sprintf("%s\t%s\n\t- %s\n\t+ %s", t.mutant.place(), t.mutant.change, before, after)
}
