package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A test is one that is run for mutants: where nothing is changed it passes, within the time that is given.
type test struct {
	suite *suite
	name  string
	took  time.Duration
	meets map[int]bool // the ids of the mutants that it comes across
}

// outside are the packages that a test uses to start processes or to reach real sockets, the control plane among
// them.
var outside = []string{"os/exec", "net/http/httptest", "reconciletest/cluster", "internal/netproxy"}

// beyondProcess names the tests of a package that need more than their own process: those that use a package of
// outside, or net.Listen or net.Dial, themselves or through a function of the package's tests.
func beyondProcess(dir string) (map[string]bool, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	calls, found := map[string][]string{}, map[string]bool{}
	for _, p := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		reach := map[string]bool{}
		for _, imported := range file.Imports {
			whole, _ := strconv.Unquote(imported.Path.Value)
			isImported := func(o string) bool { return whole == o || strings.HasSuffix(whole, "/"+o) }
			if slices.ContainsFunc(outside, isImported) {
				name := path.Base(whole)
				if imported.Name != nil {
					name = imported.Name.Name
				}
				reach[name] = true
			}
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok {
						found[f.Name.Name] = found[f.Name.Name] || reach[x.Name] ||
							x.Name == "net" && (n.Sel.Name == "Listen" || n.Sel.Name == "Dial")
					}
				case *ast.Ident:
					calls[f.Name.Name] = append(calls[f.Name.Name], n.Name)
				}
				return true
			})
		}
	}
	for more := true; more; {
		more = false
		for caller, called := range calls {
			if !found[caller] && slices.ContainsFunc(called, func(c string) bool { return found[c] }) {
				found[caller], more = true, true
			}
		}
	}
	return found, nil
}

// choose lists the tests of a suite that serve, each with the mutants that it comes across, and says of each of the
// others why not. It runs every test by itself, as many at once as there are workers, as the mutants will be.
func (c config) choose(ctx context.Context, s *suite) ([]*test, []string, error) {
	beyond, err := beyondProcess(s.dir)
	if err != nil {
		return nil, nil, err
	}
	list := exec.CommandContext(ctx, s.binary, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = s.dir
	names, err := list.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("the tests of %s: %w", s.dir, err)
	}
	var tests []*test
	var without []string
	for name := range strings.FieldsSeq(string(names)) {
		switch {
		case beyond[name]:
			without = append(without, s.prefix+name+" (needs more than its process)")
		case c.skip != nil && c.skip.MatchString(name):
			without = append(without, s.prefix+name+" (as told)")
		default:
			tests = append(tests, &test{suite: s, name: name, meets: map[int]bool{}})
		}
	}
	why := make([]string, len(tests))
	inParallel(c.workers, len(tests), func(i int) {
		t, record := tests[i], s.binary+"."+tests[i].name+".record"
		begin := time.Now()
		// Other work on the machine makes a test last longer, but hardly takes more of the processor's time.
		limit := func(*test) time.Duration { return 3 * c.slowest }
		o := s.test(ctx, tests[i:i+1], limit, "MUTATE_RECORD="+record)
		t.took = time.Since(begin)
		switch {
		case o.result != passed:
			why[i] = fmt.Sprintf("%s%s (%s after %.1f s with nothing changed)",
				s.prefix, t.name, o.result, t.took.Seconds())
			return
		case o.cpu > c.slowest:
			why[i] = fmt.Sprintf("%s%s (takes %.1f s of a processor)", s.prefix, t.name, o.cpu.Seconds())
			return
		}
		seen, _ := os.ReadFile(record) // there is none if the test comes across no mutant
		for id := range strings.FieldsSeq(string(seen)) {
			if n, err := strconv.Atoi(id); err == nil {
				t.meets[n] = true
			}
		}
	})
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	for i := range slices.Backward(tests) {
		if why[i] != "" {
			without, tests = append(without, why[i]), slices.Delete(tests, i, i+1)
		}
	}
	return tests, without, nil
}

type result string

const (
	passed   result = "passed"
	failed   result = "failed"
	timedOut result = "timed out"
)

type outcome struct {
	result result
	by     string        // the test that failed, or the one that ran when time was up
	cpu    time.Duration // what it took of the processors' time
}

// memory is how many kilobytes of addresses a test may have. A mutant that grows without end fails instead of taking
// the machine.
const memory = 8 << 20

// test runs tests of the suite until one fails, or takes longer than its limit.
func (s *suite) test(ctx context.Context, tests []*test, limit func(*test) time.Duration, env ...string) outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watcher{limits: map[string]time.Duration{}}
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
		w.limits[t.name] = limit(t)
		w.all += limit(t)
	}
	w.alarm = time.AfterFunc(w.all, func() { cancel(errTooLong) })
	defer w.alarm.Stop()
	limited := fmt.Sprintf(`ulimit -v %d 2>/dev/null; exec "$0" "$@"`, memory)
	cmd := exec.CommandContext(ctx, "sh", "-c", limited, s.binary,
		"-test.run", "^("+strings.Join(names, "|")+")$", "-test.failfast", "-test.v", "-test.timeout=0")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	cmd.Stdout, cmd.Stderr = w, w
	err := cmd.Run()
	o := outcome{result: failed, by: cmp.Or(w.failed, w.last)}
	if ended := cmd.ProcessState; ended != nil {
		o.cpu = ended.UserTime() + ended.SystemTime()
	}
	switch {
	case err == nil:
		o.result, o.by = passed, ""
	case errors.Is(context.Cause(ctx), errTooLong):
		o.result, o.by = timedOut, w.last
	}
	return o
}

var errTooLong = errors.New("a test takes too long")

// A watcher reads what tests print. It remembers the test that failed first and the one that began last, and holds
// each one to its limit unless tests run at the same time: then all of them together have the time of all.
type watcher struct {
	limits       map[string]time.Duration
	all          time.Duration // the sum of limits
	alarm        *time.Timer
	atOnce       bool
	failed, last string
	rest         []byte // the beginning of a line whose end is to come
}

var (
	began   = regexp.MustCompile(`^=== (RUN|CONT|PAUSE) +([^\s/]+)`)
	failing = regexp.MustCompile(`^\s*--- FAIL: ([^\s/]+)`)
)

func (w *watcher) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			break
		}
		w.rest = rest
		if m := began.FindSubmatch(line); m != nil {
			w.atOnce = w.atOnce || string(m[1]) == "PAUSE"
			w.begin(string(m[2]))
		}
		if m := failing.FindSubmatch(line); m != nil && w.failed == "" {
			w.failed = string(m[1])
		}
	}
	if len(w.rest) > 1<<16 { // no line that matters is that long
		w.rest = nil
	}
	return len(b), nil
}

func (w *watcher) begin(name string) {
	if name == w.last {
		return // a subtest
	}
	w.last = name
	if w.atOnce {
		w.alarm.Reset(w.all)
	} else if limit, ok := w.limits[name]; ok {
		w.alarm.Reset(limit)
	}
}

// inParallel calls do with 0 to n-1, at most workers at a time.
func inParallel(workers, n int, do func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, workers)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			do(i)
			<-slots
		})
	}
	wg.Wait()
}
