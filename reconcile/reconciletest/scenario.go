package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// Scenario is what [Check] runs again and again: a program, what its users do, and what must hold.
type Scenario struct {
	// Run is the program under test, as main runs it: it makes its clients from cfg, works until ctx ends, and returns
	// when everything that it has started has ended. Check calls it once for each incarnation of the program. What it
	// remembers must live inside: a variable outside of Run would survive the crash.
	//
	// cfg belongs to the incarnation. ctx carries a logger that discards.
	Run func(ctx context.Context, cfg *rest.Config) error
	// Server is what the program meets: custom resources, roles, namespaces. Each run has a server of its own.
	Server Options
	// User makes the requests of the program, and may do what Server.Roles grant; see [ServiceAccount].
	User string
	// Programs are several programs that work on the same objects, in place of Run and User. Each of them crashes, sees
	// old caches and meets failures by itself. Empty: there is one.
	Programs []Program
	// World is what the cluster does beside the program: pods get ready, Jobs end, claims are bound. Nil: nothing.
	World *World
	// Outside are HTTP APIs of others that the programs use, by the hosts of their URLs, such as "dns.example.com".
	// Check calls the functions once for each run. While it runs, http.DefaultTransport and its clones lead to them,
	// over HTTP and HTTPS: a program that has a transport of its own has to be given that one. A request
	// belongs to the program whose ctx of Run it carries, or else to the one that has started its goroutine. The State
	// of each API must be that of the run in which nothing goes wrong: nothing is made twice, and nothing is left. A
	// host that is asked and is not here is a finding, unless the test has put a fake in memory in the place of
	// http.DefaultTransport before: then that is asked, without a disturbance. Steps reach the APIs without one, too.
	// Empty: there are none.
	Outside map[string]func() API
	// Beside are programs that run all the time and that no disturbance meets, such as a stand-in for a
	// controller of somebody else's. They have time between the steps also when the program is down.
	Beside []func(ctx context.Context, cfg *rest.Config) error
	// Steps are what users do, in order. Each begins when the program has nothing more to write after the one before.
	Steps []Step
	// Settled returns an error as long as the program has not reached what the last step asks for. It looks with [Get]
	// and [List]. Nil: the end of the run without disturbances is what the others must reach.
	Settled func(s *Server) error
	// Always returns an error if a write of the program must not have happened. Check calls it after each write, before
	// the program sees the answer, except for one second after a step that comes while the program is at work: it may
	// have read before, and know better the next time. Nil: every write may happen.
	Always func(w Write, s *Server) error
	// Mask removes from an object what may differ between two runs that end alike, such as a counter of tries. An
	// object of which it leaves nothing (o.Object = nil) is not compared at all. Masked already are names that the
	// server generates, also where a program uses one again, the numbers of ControllerRevisions, also in their names,
	// UIDs, versions, times, whether Endpoints say when their last change was triggered, and what Check has seen to
	// differ without a mistake; with go test -v it logs that. So are hashes in the names of ReplicaSets and
	// ControllerRevisions, which count collisions, if their controller has been made anew under its name. What a
	// program hands out, such as ranges of addresses, depends on what it has handed out before, and needs a Mask. The
	// rules that compare ends heed it, and so do "comes to rest" and "is idempotent": a write that changes only what it
	// removes does not count there. One that changes a time does. Settled and Always see all. Nil: nothing else.
	Mask func(o *unstructured.Unstructured)
	// Off switches off rules and disturbances by their names, those of the lists in the doc comment of Check and in the
	// package's: "is idempotent", "cold start". The name of a disturbance may be followed by what it is at: "delete
	// persistentvolumeclaims", "crash after create jobs", and begin with the program that it meets, if there are
	// several: "scaler: cold start". With "ends alike" and "is reversible" off, Settled alone says
	// what the end must be. Check logs what is off. Empty: nothing.
	Off []string

	// Explore runs all schedules with so many disturbances of each sort, in place of the search: Check ends when all
	// are done, and go test -v logs that, or how many were left out by Limit, Budget or Findings, or because go test's
	// -timeout is near; and in how many all of their disturbances have happened. Its number grows with each write of
	// the program; several are for short scenarios. Zero: the search.
	Explore Exhaustive

	// Seed chooses the schedules with several disturbances, the names that the server generates, and the random numbers
	// of this library, by moving the clock of the run by less than a second.
	Seed uint64
	// Budget is the real time for schedules with several disturbances. Zero: 2 s, or with Explore no bound. The
	// environment variable RECONCILETEST_BUDGET, such as 10m, replaces it. It is no bound for the whole: the schedules
	// with one disturbance come before, and those in which the program misses a step and meets an old cache, or misses
	// an answer and has a late cache. All of them are run, however long that takes, unless there is a Limit. Fewer
	// steps make fewer of them.
	Budget time.Duration
	// Limit is the real time after which Check begins no schedule with a disturbance any more, for slow machines. Zero:
	// there is no limit. The environment variable RECONCILETEST_LIMIT, such as 30s, replaces it. What is left out is
	// the end: each kind of disturbance comes once before any of them comes again. With go test -v Check logs how much
	// was left out; Check fails if that was everything. The runs without disturbances come before, and they and the
	// replays of a run that fails take the time that they need.
	Limit time.Duration
	// Parallel runs one schedule on each core (GOMAXPROCS) at the same time. What is found is the same, in the same
	// order. The functions of the scenario must be safe for that: a variable outside of Run is shared between runs. So
	// it is for programs that keep nothing in variables of their packages, as those of this library do not. Where
	// other tests take all cores already, as with go test ./..., it saves little.
	Parallel bool
	// Findings is how many different findings end the search; those that differ only in the disturbance count once.
	// Zero: 10.
	Findings int
	// Replay runs one schedule only, the text that a failure has printed, until it fails: at most 10 times, since a
	// program that is not deterministic may need luck. Empty: all of them.
	Replay string
}

// Write is a write of the program that the server has accepted, for [Scenario.Always].
type Write struct {
	Request
	// Program is its name in [Scenario.Programs]; empty: it is the only one.
	Program string
	// Incarnation counts the starts of the program, from 1.
	Incarnation int
	// Old is the object before the write and New after it: nil for a creation and a deletion. Both are copies.
	Old, New *unstructured.Unstructured
}

// waits returns how long the steps take that wait, of those from a number on, which counts from 1.
func (s *Scenario) waits(from int) (d time.Duration) {
	for _, step := range s.Steps[max(0, from-1):] {
		d += step.wait
	}
	return d
}

// parse reads a schedule of the scenario.
func (s *Scenario) parse(text string) (schedule, error) {
	read, err := parseSchedule(text, len(s.Steps))
	if err == nil && s.World == nil && (read.has(worldSlow) || read.has(worldFails)) {
		err = fmt.Errorf("%q needs a Scenario.World", text)
	}
	for _, d := range read.disturbances {
		if err == nil {
			err = s.validateHit(d)
		}
		if err == nil && (d.what == worldSlow || d.what == worldFails) && !s.World.does(d.of) {
			err = fmt.Errorf("%q: the world does nothing about %s", text, d.of)
		}
	}
	return read, err
}

// validateHit returns an error if the scenario does not say which program a disturbance meets.
func (s *Scenario) validateHit(d disturbance) error {
	switch {
	case d.program != "" && !slices.Contains(s.names(), d.program):
		return fmt.Errorf("%q: there is no program %s", d, d.program)
	case d.program != "" && (slices.Contains(ofAll, d.what) || slices.Contains(ofObjects, d.what)):
		return fmt.Errorf("%q: it is not about a program", d)
	case d.program == "" && atGate(d) && !slices.Contains(s.names(), ""):
		return fmt.Errorf("%q: it is one of several programs that makes the request", d)
	}
	return nil
}

func (s *Scenario) validate() error {
	if err := s.validatePrograms(); err != nil {
		return err
	}
	switch {
	case len(s.Steps) == 0:
		return errors.New("Scenario.Steps is empty: the program would have nothing to do")
	case s.Budget < 0:
		return fmt.Errorf("Scenario.Budget is %s: it must not be negative", s.Budget)
	case s.Findings < 0:
		return fmt.Errorf("Scenario.Findings is %d: it must not be negative", s.Findings)
	case s.Limit < 0:
		return fmt.Errorf("Scenario.Limit is %s: it must not be negative", s.Limit)
	}
	for i, step := range s.Steps {
		if step.do == nil {
			return fmt.Errorf("Scenario.Steps[%d] is empty: make steps with Apply, ApplyYAML, Delete or StepFunc", i)
		}
	}
	if err := s.World.validate(); err != nil {
		return err
	}
	for host, make := range s.Outside {
		if host == "" || make == nil {
			return fmt.Errorf("Scenario.Outside[%q] is empty: it is a host, with what makes its API", host)
		}
	}
	for i, run := range s.Beside {
		if run == nil {
			return fmt.Errorf("Scenario.Beside[%d] is nil", i)
		}
	}
	if err := s.Explore.validate(); err != nil {
		return err
	}
	return s.validateOff()
}
