package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"
)

// options are those of the command line.
type options struct {
	count           int
	raw, save, plot string // files to write; empty: none
	list            bool
	parts           []string // none: all that need not be asked for
}

func main() {
	var o options
	flag.IntVar(&o.count, "count", 5, "how often each side is run; the median counts")
	flag.StringVar(&o.raw, "raw", "", "write the output of the Go benchmarks to this file, for benchstat")
	flag.StringVar(&o.save, "save", "", "write the table to this file, too, with the date and the machine")
	flag.StringVar(&o.plot, "plot", "", "plot how costs grow to this SVG file, if the part growth is run")
	flag.BoolVar(&o.list, "list", false, "list the parts and their workloads, and run nothing")
	flag.Parse()
	o.parts = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.list && len(o.parts) == 0 {
		o.parts = known()
	}
	chosen, grow, err := choose(o.parts)
	if err != nil {
		return err
	}
	if o.list {
		for _, r := range chosen {
			fmt.Printf("%-10s %s\n", r.part, r.workload)
		}
		for _, g := range grow {
			fmt.Printf("%-10s %s\n", growthPart, g.title)
		}
		return nil
	}
	if o.count < 1 {
		return fmt.Errorf("-count is %d; it takes at least one run to have a median, and five to believe it", o.count)
	}
	dir, err := os.MkdirTemp("", "thermostat-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	raw, closeRaw, err := create(o.raw)
	if err != nil {
		return err
	}
	defer closeRaw()
	var saved bytes.Buffer // written at the end, so that a run that fails leaves the file as it is
	out := table{io.MultiWriter(os.Stdout, &saved)}
	b := bench{count: o.count, dir: dir, raw: raw, binaries: map[string]string{}, done: map[string]figures{}}
	fmt.Fprintf(&saved, "Measured on %s, medians of %d, %s, %d cores of %s\n\n", time.Now().Format("2 January 2006"),
		o.count, runtime.Version(), runtime.GOMAXPROCS(0), processor())

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
	more, err := b.grow(ctx, out, grow, o.plot)
	if err != nil {
		return err
	}
	if o.save != "" {
		if err := os.WriteFile(o.save, saved.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if short += more; short > 0 {
		return fmt.Errorf("%d of the targets are not met", short)
	}
	return nil
}

// create creates a file for output, or returns a writer that takes everything if the name is empty.
func create(name string) (w io.Writer, closeFile func() error, err error) {
	if name == "" {
		return io.Discard, func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}

// processor is the model of the processor, where the system tells it.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(model)
			}
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
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
