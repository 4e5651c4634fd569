package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// check is one thing that has to be in order. It returns what there is to say.
type check struct {
	name string
	run  func(r *release) (said string, err error)
}

// checks are in the order in which they are made: the fast ones first.
var checks = []check{
	{"tree", (*release).tree},
	{"tags", (*release).tags},
	{"changelog", (*release).changelog},
	{"nested modules", (*release).nested},
	{"vet", (*release).vet},
	{"api", (*release).api},
	{"examples", (*release).examples},
	{"licences", (*release).licences},
	{"sbom", (*release).sbom},
	{"vulnerabilities", (*release).known},
}

// tree: what is tagged is what is committed, on main.
func (r *release) tree() (string, error) {
	status, err := r.git("status", "--porcelain")
	if err != nil {
		return "", err
	}
	if status != "" {
		return "", fmt.Errorf("there are changes that are not committed:\n%s", status)
	}
	branch, err := r.git("branch", "--show-current")
	if err != nil {
		return "", err
	}
	if branch := strings.TrimSpace(branch); branch != "main" {
		return "", fmt.Errorf("the branch is %q, and not main", branch)
	}
	return "clean, on main", nil
}

// tags: the version is not there, and not below the last one.
func (r *release) tags() (string, error) {
	for _, m := range r.modules {
		if found, err := r.git("tag", "--list", m.tag(r.version)); err != nil || strings.TrimSpace(found) != "" {
			return "", errors.Join(err, fmt.Errorf("the tag %s is there; a tag is never moved", m.tag(r.version)))
		}
	}
	last, err := r.last()
	if err != nil {
		return "", err
	}
	if last == "" {
		return "this is the first version", nil
	}
	if err := follows(last, r.version); err != nil {
		return "", err
	}
	return "the last version is " + last, nil
}

// changelogFile is written for users.
const changelogFile = ".github/CHANGELOG.md"

// section is what the changelog says of the version; empty: nothing.
func (r *release) section() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, changelogFile))
	if err != nil {
		return "", err
	}
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(r.version) + `(?: .*)?$`)
	at := heading.FindIndex(text)
	if at == nil {
		return "", nil
	}
	rest := string(text[at[1]:])
	if next := regexp.MustCompile(`(?m)^## `).FindStringIndex(rest); next != nil {
		rest = rest[:next[0]]
	}
	return strings.TrimSpace(rest), nil
}

// changelog: the version has a section with something in it.
func (r *release) changelog() (string, error) {
	section, err := r.section()
	if err != nil {
		return "", err
	}
	if section == "" {
		return "", fmt.Errorf("%s has no section %q, or nothing in it", changelogFile, "## "+r.version)
	}
	return fmt.Sprintf("%d lines", strings.Count(section, "\n")+1), nil
}

// nested: each nested module requires the others at the version, and the root replaces nothing.
func (r *release) nested() (string, error) {
	var errs []error
	if len(r.modules[0].file.Replace) > 0 {
		errs = append(errs, errors.New("the root has a replace directive, which does not reach those who import it"))
	}
	for _, m := range r.modules[1:] {
		for _, other := range r.modules {
			if is := requires(m, other); is != "" && is != r.version {
				errs = append(errs, fmt.Errorf("%s requires %s %s, and not %s", m.folder,
					other.file.Module.Mod.Path, is, r.version))
			}
		}
		if requires(m, r.modules[0]) == "" {
			errs = append(errs, fmt.Errorf("%s does not require the root", m.folder))
		}
	}
	return fmt.Sprintf("%d, at %s", len(r.modules)-1, r.version), errors.Join(errs...)
}

// vet: everything compiles, tests as well.
func (r *release) vet() (string, error) {
	return r.each("go vet ./...", func(m module) error {
		_, err := r.command(m.folder, "go", "vet", "./...")
		return err
	})
}

// examples: each public package has one that runs, and the other rules of the house hold.
func (r *release) examples() (string, error) {
	out, err := r.command(".", "go", "test", "-count=1", "-run", "EveryPackageHasAnExample|DependenciesAreListed",
		"./internal/house")
	if err == nil && strings.Contains(out, "no tests to run") {
		err = errors.New("internal/house has no such test")
	}
	return "each public package has one that runs; the dependencies are listed", err
}

// allowed are the licences that a dependency may have.
const allowed = "Apache-2.0,MIT,BSD-2-Clause,BSD-3-Clause,ISC"

// licences: of all that is linked.
func (r *release) licences() (string, error) {
	return r.each("all of "+allowed, func(m module) error {
		_, err := r.tool(m.folder, "go-licenses", "check", "./...", "--allowed_licenses="+allowed)
		return err
	})
}

// sbom writes the components of each module below .build.
func (r *release) sbom() (string, error) {
	into, err := filepath.Abs(filepath.Join(r.dir, ".build", "sbom"))
	if err := errors.Join(err, os.MkdirAll(into, 0o755)); err != nil {
		return "", err
	}
	return r.each("written below .build/sbom", func(m module) error {
		name := strings.ReplaceAll(strings.TrimPrefix(m.file.Module.Mod.Path, "github.com/"), "/", "-") + ".cdx.json"
		_, err := r.tool(m.folder, "cyclonedx-gomod", "mod", "-json", "-licenses", "-output", filepath.Join(into, name))
		return err
	})
}

// known: nothing calls code that is known to be vulnerable. What has been found is always refused. What could not be
// looked up is said, and refused unless the user has asked for it.
func (r *release) known() (string, error) {
	var found, unknown []error
	for _, m := range r.modules {
		_, err := r.tool(m.folder, "govulncheck", "-db", r.vulnerabilities, "./...")
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && exit.ExitCode() == 3:
			found = append(found, err)
		case err != nil:
			unknown = append(unknown, err)
		}
	}
	switch why := errors.Join(unknown...); {
	case len(found) > 0:
		return "", errors.Join(append(found, unknown...)...)
	case why == nil:
		return "nothing calls vulnerable code", nil
	case r.offline:
		return fmt.Sprintf("NOT CHECKED in %d of %d modules, and -offline was given: %v", len(unknown), len(r.modules),
			why), nil
	default:
		return "", fmt.Errorf("not all was checked; -offline releases without, -db names a copy of the database: %w",
			why)
	}
}

// each calls f with each module.
func (r *release) each(said string, f func(m module) error) (string, error) {
	var errs []error
	for _, m := range r.modules {
		if err := f(m); err != nil {
			errs = append(errs, err)
		}
	}
	return said, errors.Join(errs...)
}
