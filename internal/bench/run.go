package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// bench runs the Go benchmarks.
type bench struct {
	count    int
	dir      string             // for what lives as long as this process
	raw      io.Writer          // takes what the benchmarks print
	binaries map[string]string  // test binaries by the package they were built from
	done     map[string]figures // of the workloads that have been run, by their benchmark and the number of cores
}

// encodedEnv names a folder where the servers of the benchmarks keep what they have encoded, so that not each of a long
// run does it anew.
const encodedEnv = "THERMOSTAT_BENCH_ENCODED"

// rateEnv is how many events a second a benchmark is to send.
const rateEnv = "THERMOSTAT_BENCH_RATE"

// figures are what the sides of a workload reported: by side, then by unit, one for each run.
type figures map[string]map[string][]float64

// run runs the sides of a workload in turn.
func (b *bench) run(ctx context.Context, r row) (figures, error) {
	if r.cpu == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		r.cpu = "" // so that a workload which others have measured on all cores is not run again
	}
	if f, done := b.done[r.bench+r.cpu]; done && r.rate == "" { // at another rate it is another workload
		return f, nil
	}
	binary, err := b.build(ctx, r.home)
	if err != nil {
		return nil, err
	}
	pattern := "^Benchmark" + strings.ReplaceAll(r.bench, "/", "$/^") + "$"
	patterns := []string{pattern}
	if r.apart {
		patterns = nil
		for _, side := range r.sides() {
			patterns = append(patterns, pattern+"/^"+side+"$")
		}
	}
	env := append(os.Environ(), encodedEnv+"="+b.dir)
	if r.rate != "" {
		peer := r.measures[0].theirs()
		reached := b.done[r.rate][peer]["events/s"]
		if len(reached) == 0 {
			return nil, fmt.Errorf("it needs what %s reached in %s", peer, r.rate)
		}
		env = append(env, fmt.Sprintf("%s=%.0f", rateEnv, median(reached)/2))
	}
	all := figures{}
	b.done[r.bench+r.cpu] = all
	for range b.count * max(r.often, 1) {
		for _, pattern := range patterns {
			args := []string{"-test.run=^$", "-test.benchmem", "-test.timeout=10m", "-test.bench=" + pattern,
				"-test.benchtime=" + r.time}
			if r.cpu != "" {
				args = append(args, "-test.cpu="+r.cpu)
			}
			cmd := exec.CommandContext(ctx, binary, args...)
			var out, trouble bytes.Buffer
			cmd.Dir, cmd.Env = r.home, env
			cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, b.raw), &trouble
			if err := cmd.Run(); err != nil {
				return nil, fmt.Errorf("%w\n%s%s", err, &out, &trouble)
			}
			if err := all.read(&out); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// build returns the test binary of the package in a folder, as seen from this one.
func (b *bench) build(ctx context.Context, home string) (string, error) {
	if binary, ok := b.binaries[home]; ok {
		return binary, nil
	}
	binary := filepath.Join(b.dir, fmt.Sprintf("%d.test", len(b.binaries)))
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, ".")
	cmd.Dir, cmd.Stderr = home, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the benchmarks: %w", err)
	}
	b.binaries[home] = binary
	return binary, nil
}

// sides are all that the measures compare.
func (r row) sides() (sides []string) {
	seen := map[string]bool{}
	for _, m := range r.measures {
		for _, side := range []string{m.ours(), m.theirs()} {
			if !seen[side] {
				seen[side] = true
				sides = append(sides, side)
			}
		}
	}
	return sides
}

// read adds what benchmarks have printed. The last part of a benchmark's name is the side.
func (f figures) read(out io.Reader) error {
	results := benchfmt.NewReader(out, "output")
	for results.Scan() {
		switch rec := results.Result().(type) {
		case *benchfmt.Result:
			_, parts := rec.Name.Parts()
			for len(parts) > 0 && parts[len(parts)-1][0] == '-' { // the number of cores
				parts = parts[:len(parts)-1]
			}
			if len(parts) == 0 {
				return fmt.Errorf("the benchmark %s has no sides", rec.Name)
			}
			side := string(parts[len(parts)-1][1:])
			if f[side] == nil {
				f[side] = map[string][]float64{}
			}
			for _, v := range rec.Values {
				f[side][v.Unit] = append(f[side][v.Unit], v.Value)
			}
		case *benchfmt.SyntaxError:
			return errors.New(rec.Error())
		}
	}
	return results.Err()
}
