package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/examples/etcd/load"
)

// story is what happens while clients read and write.
type story struct {
	*stage
	say     *screen
	clients *load.Load
	began   time.Time
	marks   []mark
	table   []string
}

// act is one thing that happens. It returns when the operator has nothing more to do.
type act struct {
	title, name string
	do          func(ctx context.Context) (result string, err error)
}

// tell tells the story.
func tell(ctx context.Context, say *screen, plotted string) (err error) {
	say.line("A control plane on this machine, with five nodes that run etcd as processes. The first time, " +
		"Kubernetes\n" +
		"and two versions of etcd are compiled, which takes minutes.")
	began := time.Now()
	stage, err := open(ctx, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	say.line("   => ready after %.1f s", time.Since(began).Seconds())
	say.line("\n1. The operator, and an EtcdCluster of three members of etcd %s.", older)
	began = time.Now()
	if err := errors.Join(stage.operate(ctx), stage.create(ctx, older, nil)); err != nil {
		return err
	}
	if _, err := stage.until(ctx, "three members", settled); err != nil {
		return err
	}
	say.line("   => three members vote after %.1f s", time.Since(began).Seconds())
	s := &story{stage: stage, say: say, began: time.Now(),
		clients: load.Start(ctx, load.Options{Endpoints: stage.endpoints})}
	defer s.clients.Stop()
	for i, a := range s.acts() {
		if err := s.play(ctx, i+2, a); err != nil {
			return err
		}
	}
	return s.end(plotted)
}

func (s *story) acts() []act {
	return []act{
		{"Four clients write increasing numbers, and four check what they read. The bars are writes a second.",
			"clients", s.watch},
		{"kill -9 of the leader.", "kill -9 of the leader", s.kill},
		{"The disk of another member is lost. It never starts on the empty one: a new member takes its place.",
			"a disk is lost", s.loseDisk},
		{"Five members: each one learns before it votes.", "five members", s.size(5)},
		{"And back to three.", "three members", s.size(3)},
		{"An upgrade to etcd " + newer + ", one member at a time, the leader last.", "upgrade to " + newer, s.upgrade},
		{"A backup: a Job takes a snapshot and checks it by etcd's own hash. The clients rest from here on, so that\n" +
			"   nothing is newer than the backup.", "backup", s.backUp},
		{"All is destroyed: the EtcdCluster, its members and their disks.", "all is destroyed", s.destroy},
		{"A new EtcdCluster from the backup.", "restore", s.restore},
		{"The clients go on. What was acknowledged before the backup must be there.", "clients again", s.goOn},
	}
}

// play plays one act, and draws what the clients see meanwhile.
func (s *story) play(ctx context.Context, number int, a act) error {
	s.say.line("\n%d. %s", number, a.title)
	s.marks = append(s.marks, mark{time.Since(s.began).Seconds(), a.name})
	s.clients.Lap()
	began := time.Now()
	type outcome struct {
		result string
		err    error
	}
	done := make(chan outcome, 1)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		result, err := a.do(ctx)
		done <- outcome{result, err}
	})
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-second.C:
			s.say.draw(s.clients.Seconds(), s.clients.Report())
		case o := <-done:
			if o.err != nil {
				return o.err
			}
			s.sum(a.name, o.result, time.Since(began), s.clients.Lap())
			return nil
		}
	}
}

// sum says what an act has come to.
func (s *story) sum(name, result string, took time.Duration, lap load.Report) {
	if requests(lap) == 0 {
		s.say.line("   => %s; after %.1f s", result, took.Seconds())
		s.table = append(s.table, fmt.Sprintf("   %-28s %7.1f s   (the clients rest)", name, took.Seconds()))
		return
	}
	failed := lap.Writes.Failed + lap.Reads.Failed
	s.say.line("   => %s; longest gap %.2f s, %d of %d requests failed", result, lap.Writes.Gap.Seconds(), failed,
		requests(lap))
	s.table = append(s.table, fmt.Sprintf("   %-28s %7.1f s  %8d writes  %8d reads  %5d failed  gap %.2f s", name,
		took.Seconds(), lap.Writes.Done, lap.Reads.Done, failed, lap.Writes.Gap.Seconds()))
}

func requests(r load.Report) int {
	return r.Writes.Done + r.Writes.Failed + r.Reads.Done + r.Reads.Failed
}

// end says what the clients have seen in all.
func (s *story) end(plotted string) error {
	report := s.clients.Stop()
	s.say.line("\nWhat the clients have seen:\n\n%s\n", strings.Join(s.table, "\n"))
	s.say.line("%d writes acknowledged, %d reads; lost writes and reads that went back: %d; longest gap %.2f s.",
		report.Writes.Done, report.Reads.Done, len(report.Wrong), report.Writes.Gap.Seconds())
	if plotted != "" {
		if err := plot(plotted, s.clients.Seconds(), s.marks); err != nil {
			return err
		}
		path, err := filepath.Abs(plotted)
		if err != nil {
			return err
		}
		s.say.line("The plot is %s", path)
	}
	verdict := s.clients.Judge(context.Background(), time.Minute)
	s.say.line("The histories were %s.", verdict)
	if wrong := append(report.Wrong, verdict.Wrong...); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

func (s *story) watch(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(8 * time.Second):
		return "the clients are served", nil
	}
}

// members returns the names of the members, the leader first.
func (s *story) members(ctx context.Context) (names []string, err error) {
	now, err := s.until(ctx, "rest", settled)
	if err != nil {
		return nil, err
	}
	for _, m := range now.Status.Members {
		names = append(names, m.Name)
		if m.Name == now.Status.Leader {
			names[0], names[len(names)-1] = names[len(names)-1], names[0]
		}
	}
	return names, nil
}

func (s *story) kill(ctx context.Context) (string, error) {
	names, err := s.members(ctx)
	if err != nil {
		return "", err
	}
	err = s.pool.Kill(ctx, s.key(names[0]), "etcd")
	if err := errors.Join(err, s.restarted(ctx, names[0])); err != nil {
		return "", err
	}
	if _, err := s.watch(ctx); err != nil { // the members elect a leader, and the operator sees it
		return "", err
	}
	now, err := s.until(ctx, "a leader", settled)
	if err != nil {
		return "", err
	}
	return names[0] + " led and runs again, " + now.Status.Leader + " leads", nil
}

func (s *story) loseDisk(ctx context.Context) (string, error) {
	names, err := s.members(ctx)
	if err != nil {
		return "", err
	}
	lost := names[1]
	if err := s.pool.LoseDisk(ctx, s.key(lost)); err != nil {
		return "", err
	}
	if _, err := s.until(ctx, "the loss to be seen", degraded); err != nil {
		return "", err
	}
	now, err := s.until(ctx, "another member", settled)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s was replaced, the cluster has %d members again", lost, now.Status.Ready), nil
}

func (s *story) size(n int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := s.patch(ctx, `{"spec":{"size":%d}}`, n); err != nil {
			return "", err
		}
		_, err := s.until(ctx, fmt.Sprintf("%d members", n), settled)
		return fmt.Sprintf("%d members vote", n), err
	}
}

func (s *story) upgrade(ctx context.Context) (string, error) {
	if err := s.patch(ctx, `{"spec":{"version":%q}}`, newer); err != nil {
		return "", err
	}
	_, err := s.until(ctx, "etcd "+newer, settled)
	return "all members run " + newer, err
}
