package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("upgrades", flag.ContinueOnError)
	save := flags.String("save", "", "`file` for the table; empty: standard output")
	verbose := flags.Bool("v", false, "show the reports")
	only := flags.Bool("build", false, "compile the operators, and do no more")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := io.Discard
	if *verbose {
		log = os.Stderr
	}
	var text strings.Builder
	text.WriteString(header)
	var details strings.Builder
	var errs []error
	chosen, err := chosenBy(flags.Args())
	if err != nil {
		return err
	}
	for _, o := range chosen {
		if *only {
			for _, version := range []string{o.old, o.new} {
				if _, err := build(ctx, o, version); err != nil {
					errs = append(errs, err)
				}
			}
			continue
		}
		tried, err := try(ctx, o, log)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.name, err))
			fmt.Fprintf(&details, "- %s@%s was not tried to its end: `%v`\n", o.name, o.old, err)
			continue
		}
		text.WriteString(tried.now.row(o, o.old, tried) + tried.next.row(o, o.new, tried))
		for _, r := range []result{tried.now, tried.next} {
			details.WriteString(r.details(o))
		}
	}
	if details.Len() == 0 {
		details.WriteString("Nothing.\n")
	}
	text.WriteString("\n## What was not as predicted\n\n" + details.String() + footer)
	if *only {
		return errors.Join(errs...)
	}
	if *save == "" {
		_, err := io.WriteString(os.Stdout, text.String())
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, os.WriteFile(*save, []byte(text.String()), 0o644))...)
}

// chosenBy returns the operators that arguments name, as NAME or NAME@VERSION; all, if there are none.
func chosenBy(args []string) (chosen []operator, err error) {
	if len(args) == 0 {
		return operators, nil
	}
	names := func(o operator, arg string) bool { return arg == o.name || arg == o.name+"@"+o.old }
	for _, arg := range args {
		if !slices.ContainsFunc(operators, func(o operator) bool { return names(o, arg) }) {
			return nil, fmt.Errorf("no operator %s", arg)
		}
	}
	for _, o := range operators {
		if slices.ContainsFunc(args, func(arg string) bool { return names(o, arg) }) {
			chosen = append(chosen, o)
		}
	}
	return chosen, nil
}

const header = `# Upgrades of operators, predicted and done

Made by "make upgrades": what is compared is said in doc.go.

The first row of an operator is the plan of the version that runs, which should find nothing; the second one is that of
the new version. Predicted and came are objects that are made, changed or deleted, a status apart from the rest; missed
and wrong are those that only one of both has. Different are fields of objects that both have written, of those that
were compared. Times are not compared.

Pods predicted is the number in the report, and pods ended are those that have gone in the cluster, where the
controllers of Kubernetes roll the templates: a pod of the same name is another one. Those that have ended in the
cluster and not on the fork are missed, and the other way round wrong.

| operator | runs | planned | objects, pods | predicted | came | missed | wrong | different | pods predicted | ` +
	`pods ended | missed, wrong | plan | its writes |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

const footer = `
The dependencies of prometheus-operator and external-snapshotter are those of internal/upgrades where these are newer,
and the old version of each operator is compiled with the dependencies of the new one. The version is linked into
prometheus-operator and cloud-on-k8s, as their makefiles do it for a release: prometheus-operator writes it into the tag
of an image.
`

func (r result) row(o operator, version string, all *outcome) string {
	settled := r.took.Round(time.Second).String()
	if !r.report.Settled {
		settled += ", not settled"
	}
	return fmt.Sprintf("| %s | %s | %s | %d, %d | %d | %d | %d | %d | %d of %d | %d | %d | %d, %d | %s | %d |\n",
		o.name, o.old, version, all.objects, all.pods, r.predicted, r.came, len(r.missed), len(r.wrong),
		len(r.different), r.fields, r.podsPredicted, r.podsEnded, len(r.podsMissed), len(r.podsWrong), settled,
		all.planWrites)
}

func (r result) details(o operator) string {
	var b strings.Builder
	for _, part := range []struct {
		title string
		lines []string
	}{{"missed", r.missed}, {"wrong", r.wrong}, {"different", r.different},
		{"missed", r.podsMissed}, {"wrong", r.podsWrong}} {
		for _, line := range part.lines {
			fmt.Fprintf(&b, "- %s, %s: `%s`\n", o.name, part.title, line)
		}
	}
	return b.String()
}
