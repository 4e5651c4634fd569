package main

import (
	"errors"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// last is the last version that was released; empty: there is none.
func (r *release) last() (string, error) {
	tags, err := r.git("tag", "--list", "v*")
	if err != nil {
		return "", err
	}
	versions := slices.DeleteFunc(strings.Fields(tags), func(v string) bool { return !semver.IsValid(v) })
	if len(versions) == 0 {
		return "", nil
	}
	return slices.MaxFunc(versions, semver.Compare), nil
}

// follows returns an error if a version cannot come after another one.
func follows(last, version string) error {
	if semver.Compare(version, last) <= 0 {
		return fmt.Errorf("the last version is %s, which is not below %s", last, version)
	}
	if semver.Major(version) != semver.Major(last) && semver.Major(version) != "v1" {
		return fmt.Errorf("%s needs other module paths, which end in /%s", version, semver.Major(version))
	}
	return nil
}

// mayBreak reports whether a version may change what the last one had: before v1.0.0 a minor version may. So may what
// is not released yet.
func mayBreak(last, version string) bool {
	if semver.Major(last) != "v0" {
		return semver.Major(version) != semver.Major(last)
	}
	return semver.MajorMinor(version) != semver.MajorMinor(last)
}

// api: what the last version exported is as it was. A version that may change it names each change in the changelog.
func (r *release) api() (string, error) {
	last, err := r.last()
	if err != nil || last == "" {
		return "there is no version to compare with", err
	}
	before, err := os.MkdirTemp("", "release")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(before)
	if _, err := r.git("worktree", "add", "--detach", before, last); err != nil {
		return "", err
	}
	defer func() { _, _ = r.git("worktree", "remove", "--force", before) }()
	section, err := r.section()
	if err != nil {
		return "", err
	}
	var broken []string
	for _, m := range r.modules {
		if strings.HasPrefix(m.folder, "examples/") {
			continue // a program
		}
		if _, err := os.Stat(filepath.Join(before, m.folder, "go.mod")); err != nil {
			continue // it was no module then
		}
		changes, err := r.changes(filepath.Join(before, m.folder), filepath.Join(r.dir, m.folder), m)
		if err != nil {
			return "", err
		}
		broken = append(broken, changes...)
	}
	if !mayBreak(last, r.version) && len(broken) > 0 {
		return "", fmt.Errorf("%s must not change what %s had:\n%s", r.version, last, strings.Join(broken, "\n"))
	}
	var unsaid []string
	for _, change := range broken {
		if name, _, _ := strings.Cut(change, ": "); !names(section, name) {
			unsaid = append(unsaid, change)
		}
	}
	if len(unsaid) > 0 {
		return "", fmt.Errorf("the changelog does not name what has changed since %s:\n%s", last,
			strings.Join(unsaid, "\n"))
	}
	return fmt.Sprintf("%d changes since %s that can break users, all in the changelog", len(broken), last), nil
}

// names reports whether a text has a name with its package, and its type if it is a method or field. Of the receiver
// (*T) the name T is enough.
func names(text, name string) bool {
	plain := strings.NewReplacer("(*", "", "(", "", ")", "")
	whole := `(?:^|[^\w./])` + regexp.QuoteMeta(plain.Replace(name)) + `(?:$|[^\w./]|[./](?:$|\W))`
	return regexp.MustCompile(whole).MatchString(plain.Replace(text))
}

// changes are those between two folders of a module that can break users.
func (r *release) changes(before, now string, m module) (broken []string, err error) {
	old, err := r.exported(before, m)
	if err != nil {
		return nil, err
	}
	current, err := r.exported(now, m)
	if err != nil {
		return nil, err
	}
	for path, p := range old {
		if current[path] == nil {
			broken = append(broken, path+": the package is gone")
			continue
		}
		for _, change := range apidiff.Changes(p, current[path]).Changes {
			if !change.Compatible {
				broken = append(broken, filepath.Base(path)+"."+change.Message)
			}
		}
	}
	slices.Sort(broken)
	return broken, nil
}

// exported are the packages of a module that users can import, by their paths.
func (r *release) exported(dir string, m module) (map[string]*types.Package, error) {
	cfg := &packages.Config{Dir: dir, Env: append(os.Environ(), "GOWORK=off"),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps}
	loaded, err := packages.Load(cfg, "./...")
	if err != nil {
		return nil, err
	}
	found := map[string]*types.Package{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, errors.Join(fmt.Errorf("%s in %s", p.PkgPath, dir), p.Errors[0])
		}
		inside := strings.TrimPrefix(p.PkgPath, m.file.Module.Mod.Path) + "/"
		if p.Name != "main" && !strings.Contains(inside, "/internal/") && !strings.HasPrefix(inside, "/examples/") {
			found[p.PkgPath] = p.Types
		}
	}
	return found, nil
}
