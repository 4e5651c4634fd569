package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

type config struct {
	sampleSize int
	seed       uint64
	workers    int
	slowest    time.Duration
	skip       *regexp.Regexp
	testsOf    []string // packages whose tests are run too, as directories of the module
	at         []string // places, such as delay.go:114; none stands for all
	since      string
	log        func(format string, args ...any)
}

func main() {
	c := config{log: log.New(os.Stderr, "", log.Ltime).Printf}
	root := flag.String("dir", ".", "the directory of the module")
	total := flag.Duration("for", time.Hour, "how long all packages may take together")
	skip := flag.String("skip", "", "a pattern of tests to leave out")
	tests := flag.String("tests", "", "packages whose tests are run too, such as reconcile,reconcile/inspect")
	flag.IntVar(&c.sampleSize, "n", 300, "how many mutants of each package to try, at most")
	flag.Uint64Var(&c.seed, "seed", 1, "decides which mutants are tried")
	flag.IntVar(&c.workers, "workers", 2, "how many mutants to try at once")
	flag.DurationVar(&c.slowest, "slowest", 10*time.Second, "leave out tests that take more of a processor")
	at := flag.String("at", "", "try only the mutants on these lines, such as delay.go:114,limiter.go:20")
	flag.StringVar(&c.since, "since", "", "try only the mutants on lines that changed since this commit")
	flag.Parse()
	c.at, c.testsOf = list(*at), list(*tests)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mutate(ctx, c, *root, *skip, *total, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// list takes apart what has commas between its parts.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// mutate tries all packages, each for an equal share of the time that is left, and reports what it got to, also if it
// is interrupted.
func mutate(ctx context.Context, c config, root, skip string, total time.Duration, names []string) (err error) {
	if len(names) == 0 {
		return errors.New("name the packages, as directories of the module")
	}
	if skip != "" {
		if c.skip, err = regexp.Compile(skip); err != nil {
			return err
		}
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	results := filepath.Join(root, ".build", "mutants")
	if err := os.MkdirAll(results, 0o755); err != nil {
		return err
	}
	end := time.Now().Add(total)
	var packages []*pkg
	var wrong error
	for i, name := range names {
		work, err := os.MkdirTemp("", "mutate")
		if err != nil {
			return err
		}
		p := c.newPackage(root, name, work)
		packages = append(packages, p)
		share := time.Until(end) / time.Duration(len(names)-i)
		wrong = errors.Join(wrong, c.run(ctx, p, time.Now().Add(share)), p.save(results), os.RemoveAll(work))
	}
	var text bytes.Buffer
	report(&text, packages)
	if err := os.WriteFile(filepath.Join(results, "report.txt"), text.Bytes(), 0o644); err != nil {
		return err
	}
	_, err = os.Stdout.Write(text.Bytes())
	return errors.Join(wrong, err)
}
