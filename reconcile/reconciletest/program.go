package reconciletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/client-go/rest"
)

// Program is one of several programs under test, for [Scenario.Programs].
type Program struct {
	// Name is what timelines, schedules and findings call it: letters, digits, and "-", "_" or "." between them.
	Name string
	// Run and User are those of a [Scenario] with one program.
	Run  func(ctx context.Context, cfg *rest.Config) error
	User string
}

var programName = regexp.MustCompile(`^[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*$`)

// programs returns the programs under test. One that a scenario has in Run has no name.
func (s *Scenario) programs() []Program {
	if len(s.Programs) == 0 {
		return []Program{{Run: s.Run, User: s.User}}
	}
	return s.Programs
}

// names returns what the programs are called, each of which a disturbance can hit alone: one that is empty without
// Scenario.Programs.
func (s *Scenario) names() []string {
	var names []string
	for _, p := range s.programs() {
		names = append(names, p.Name)
	}
	return names
}

func (s *Scenario) validatePrograms() error {
	if len(s.Programs) == 0 {
		return s.validateProgram("Scenario", s.Run, s.User)
	}
	if s.Run != nil || s.User != "" {
		return errors.New("Scenario.Programs are set, and Scenario.Run or Scenario.User as well: each of the " +
			"programs has its own")
	}
	for i, p := range s.Programs {
		at := fmt.Sprintf("Scenario.Programs[%d]", i)
		switch {
		case !programName.MatchString(p.Name):
			return fmt.Errorf(`%s.Name is %q: it has letters, digits, and "-", "_" or "." between them`, at, p.Name)
		case slices.Contains(s.names()[:i], p.Name):
			return fmt.Errorf("%s.Name is %q, and so is that of another one", at, p.Name)
		}
		if err := s.validateProgram(at, p.Run, p.User); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scenario) validateProgram(at string, run func(context.Context, *rest.Config) error, user string) error {
	switch {
	case run == nil:
		return fmt.Errorf("%s.Run is nil: it is the program to check", at)
	case user != "" && len(s.Server.Roles) == 0:
		return fmt.Errorf("%s.User is %q, and Scenario.Server.Roles are empty: they say what the user may do", at,
			user)
	case user == "" && len(s.Server.Roles) > 0:
		return fmt.Errorf("Scenario.Server.Roles are set, and %s.User is empty: it is the user that they bind", at)
	}
	return nil
}

// origin is a kind of requests of a program. Requests are counted by it.
type origin struct{ program, kind string }

func (o origin) String() string { return of(o.program, o.kind) }

// of says whose something is; a program that is the only one is not named.
func of(program, what string) string {
	if program == "" {
		return what
	}
	return program + ": " + what
}

// outlook is what a program watches of a resource.
type outlook struct{ program, resource string }

// hits reports whether a disturbance meets a program. One that names none meets all.
func (d disturbance) hits(program string) bool { return d.program == "" || d.program == program }

// hit reports whether the schedule has a disturbance of a kind that meets a program.
func (s schedule) hit(what, program string) bool {
	return slices.ContainsFunc(s.disturbances, func(d disturbance) bool { return d.what == what && d.hits(program) })
}

// hit returns the programs that a disturbance meets.
func (s *Scenario) hit(d disturbance) (all []Program) {
	for _, p := range s.programs() {
		if d.hits(p.Name) {
			all = append(all, p)
		}
	}
	return all
}

// among returns those of some processes that a disturbance meets.
func (d disturbance) among(processes []*process) (all []*process) {
	for _, p := range processes {
		if d.hits(p.Name) {
			all = append(all, p)
		}
	}
	return all
}

// each returns a disturbance once for each program.
func each(d disturbance, programs []Program) (all []disturbance) {
	for _, p := range programs {
		d.program = p.Name
		all = append(all, d)
	}
	return all
}

func compareOrigins(a, b origin) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.program, b.program))
}

func compareOutlooks(a, b outlook) int {
	return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.program, b.program))
}
