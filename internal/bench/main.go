package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	count := flag.Int("count", 5, "how often each side is run; the median counts")
	raw := flag.String("raw", "", "write the output of the Go benchmarks to this file, for benchstat")
	svg := flag.String("plot", "", "plot how costs grow to this SVG file, if the part growth is run")
	list := flag.Bool("list", false, "list the parts and their workloads, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *count, *raw, *svg, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, count int, raw, svg string, list bool, parts []string) error {
	if list && len(parts) == 0 {
		parts = known()
	}
	chosen, grow, err := choose(parts)
	if err != nil {
		return err
	}
	if list {
		for _, r := range chosen {
			fmt.Printf("%-10s %s\n", r.part, r.workload)
		}
		for _, g := range grow {
			fmt.Printf("%-10s %s\n", growthPart, g.title)
		}
		return nil
	}
	if count < 1 {
		return fmt.Errorf("-count is %d; it takes at least one run to have a median, and five to believe it", count)
	}
	out := table{os.Stdout}
	b := bench{count: count, raw: io.Discard, binaries: map[string]string{}, done: map[string]figures{}}
	if b.dir, err = os.MkdirTemp("", "thermostat-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if raw != "" {
		f, err := os.Create(raw)
		if err != nil {
			return err
		}
		defer f.Close()
		b.raw = f
	}

	short := 0
	out.head()
	for _, r := range chosen {
		figures, err := b.run(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.bench, err)
		}
		for _, m := range r.measures {
			ok, err := out.line(r, m, figures)
			if err != nil {
				return fmt.Errorf("%s: %w", r.bench, err)
			}
			if !ok {
				short++
			}
		}
	}
	more, err := b.grow(ctx, out, grow, svg)
	if err != nil {
		return err
	}
	if short += more; short > 0 {
		return fmt.Errorf("%d of the targets are not met", short)
	}
	return nil
}

// known are the parts that there are.
func known() (parts []string) {
	for _, r := range rows {
		parts = append(parts, r.part)
	}
	return slices.Compact(append(parts, growthPart))
}

// choose returns the rows and growths of the given parts; if there is none, everything but the rows that want to be
// asked for.
func choose(parts []string) (chosen []row, grow []growth, err error) {
	for _, p := range parts {
		if !slices.Contains(known(), p) {
			return nil, nil, fmt.Errorf("there is no part %q; there are %s", p, strings.Join(known(), ", "))
		}
	}
	for _, r := range rows {
		if len(parts) == 0 && !r.asked || slices.Contains(parts, r.part) {
			chosen = append(chosen, r)
		}
	}
	if len(parts) == 0 || slices.Contains(parts, growthPart) {
		grow = growths
	}
	return chosen, grow, nil
}
