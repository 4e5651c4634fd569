package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

const (
	// quiet is how long nothing has to change for a cluster to be at rest, and for a program to be done on a fork.
	quiet = 10 * time.Second
	limit = 4 * time.Minute
)

// trial is one operator on a control plane of its own.
type trial struct {
	operator
	*plane
	log      io.Writer
	versions map[string]*built
	outcome
}

// outcome is what a trial has measured.
type outcome struct {
	objects, pods int // before the plans
	now, next     result
	planWrites    int // of the plans, by the audit log
}

// result is of one version.
type result struct {
	*comparison
	report *plan.Report
	took   time.Duration // the plan
}

// try runs a trial.
func try(ctx context.Context, o operator, log io.Writer) (*outcome, error) {
	t := &trial{operator: o, log: log, versions: map[string]*built{}}
	for _, version := range []string{o.old, o.new} {
		b, err := build(ctx, o, version)
		if err != nil {
			return nil, err
		}
		t.versions[version] = b
	}
	var err error
	if t.plane, err = newPlane(ctx); err != nil {
		return nil, err
	}
	err = t.run(ctx)
	if err != nil {
		t.showLogs()
	}
	return &t.outcome, errors.Join(err, t.Close())
}

func (t *trial) run(ctx context.Context) error {
	if err := t.apply(ctx, t.versions[t.old].definitions...); err != nil {
		return err
	}
	running, err := t.start(ctx, "old", t.old, t.kubeconfig)
	if err != nil {
		return err
	}
	var before state
	for _, file := range t.files {
		if err := t.apply(ctx, filepath.Join("testdata", file)); err != nil {
			return err
		}
		if before, err = atRest(ctx, t.Config(), quiet, limit); err != nil {
			return err
		}
	}
	// The definitions of the new version come first, as in the notes of each release.
	if err := t.apply(ctx, t.versions[t.new].definitions...); err != nil {
		return err
	}
	if err := t.await(ctx); err != nil {
		return err
	}
	if before, err = atRest(ctx, t.Config(), quiet, limit); err != nil {
		return err
	}
	t.objects = len(before)
	for name := range before {
		if name.resource == "pods" {
			t.pods++
		}
	}
	plans := map[string]*planned{}
	for _, version := range []string{t.old, t.new} {
		if plans[version], err = t.plan(ctx, version); err != nil {
			return fmt.Errorf("the plan of %s: %w", version, err)
		}
	}
	for _, version := range []string{t.old, t.new} {
		if err := running.Terminate(ctx); err != nil {
			return err
		}
		_, from, err := t.entries(0)
		if err != nil {
			return err
		}
		if running, err = t.start(ctx, "real-"+version, version, t.kubeconfig); err != nil {
			return err
		}
		time.Sleep(quiet) // it has to start, and may wait for a Lease
		after, err := atRest(ctx, t.Config(), quiet, limit)
		if err != nil {
			return err
		}
		log, _, err := t.entries(from)
		if err != nil {
			return err
		}
		p := plans[version]
		c, err := compared(before, p.after, after, p.writes, writesOf(log, account))
		if err != nil {
			return err
		}
		c.podsPredicted = p.report.Pods()
		r := result{comparison: c, report: p.report, took: p.took}
		if version == t.old {
			t.now, before = r, after // what it has written it would not write again
		} else {
			t.next = r
		}
	}
	if err := running.Terminate(ctx); err != nil {
		return err
	}
	return t.countWrites()
}

// apply applies files of manifests, again and again for a while: a kind may be defined by the operator.
func (t *trial) apply(ctx context.Context, files ...string) error {
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := cluster.Decode(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
			if err = t.Apply(ctx, objects...); err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

func (t *trial) start(ctx context.Context, name, version, kubeconfig string) (*cluster.Process, error) {
	var args []string
	for _, arg := range t.args {
		args = append(args, strings.ReplaceAll(arg, "{kubeconfig}", kubeconfig))
	}
	return t.Run(ctx, cluster.Command{Name: name, Path: t.versions[version].binary, Args: args,
		Env: []string{"KUBECONFIG=" + kubeconfig}})
}

// await waits until the old version has made what it is tried for: it may wait for a Lease at first.
func (t *trial) await(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		all, err := resources(t.Config())
		if err != nil {
			return err
		}
		s, err := read(ctx, t.Config(), all)
		if err != nil {
			return err
		}
		missing := ""
		for _, need := range t.needs {
			found := false
			for name := range s {
				found = found || name.resource == need
			}
			if !found {
				missing = need
			}
		}
		if missing == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s %s has made no %s", t.name, t.old, missing)
		}
	}
}

// planned is a plan, and the state of its fork at its end.
type planned struct {
	report *plan.Report
	writes []write
	after  state
	took   time.Duration
}

// planner is the user agent of the plans.
const planner = "plan"

func (t *trial) plan(ctx context.Context, version string) (p *planned, err error) {
	cfg := rest.CopyConfig(t.audited)
	cfg.UserAgent = planner
	fork, err := plan.Fork(ctx, cfg, plan.Options{World: plan.Healthy})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fork.Close()) }()
	began := time.Now()
	process, err := t.start(ctx, "plan-"+version, version, fork.Kubeconfig())
	if err != nil {
		return nil, err
	}
	defer func() { _ = process.Kill(context.WithoutCancel(ctx)) }() // it has ended, as a rule
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p = &planned{}
	if p.report, err = fork.Settle(limited, quiet); err != nil {
		return nil, err
	}
	p.took = time.Since(began)
	if err := process.Terminate(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(t.log, "\n# %s %s\n\n", t.name, version)
	if err := p.report.WriteText(t.log); err != nil {
		return nil, err
	}
	all, err := resources(fork.Config())
	if err != nil {
		return nil, err
	}
	if p.after, err = read(ctx, fork.Config(), all); err != nil {
		return nil, err
	}
	names, err := names(fork.Config())
	if err != nil {
		return nil, err
	}
	p.writes, err = plannedOf(p.report, names)
	return p, err
}

// names is the resource of each kind, both with their group.
func names(cfg *rest.Config) (map[string]string, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	_, groups, err := d.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, list := range groups {
		group, _, ok := strings.Cut(list.GroupVersion, "/")
		if !ok {
			group = ""
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			name := r.Name
			if group != "" {
				name += "." + group
			}
			all[r.Kind+"."+group] = name
		}
	}
	return all, nil
}

// countWrites counts what the plans have written to the cluster.
func (t *trial) countWrites() error {
	log, _, err := t.entries(0)
	for _, e := range log {
		if e.UserAgent == planner && e.Verb != "get" && e.Verb != "list" {
			t.planWrites++
		}
	}
	return err
}

// showLogs prints the end of what the operators have printed.
func (t *trial) showLogs() {
	files, err := filepath.Glob(filepath.Join(t.Dir(), "*.log"))
	if err != nil {
		return
	}
	for _, file := range files {
		base := filepath.Base(file)
		if !strings.HasPrefix(base, "old") && !strings.HasPrefix(base, "plan-") && !strings.HasPrefix(base, "real-") {
			continue
		}
		if data, err := os.ReadFile(file); err == nil {
			fmt.Fprintf(t.log, "\n%s:\n%s\n", base, data[max(0, len(data)-4000):])
		}
	}
}
