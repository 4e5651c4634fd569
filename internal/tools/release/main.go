// Command release tags a version of this repository, if everything is in order. make release runs it.
//
//	release -version v0.1.0            check everything, and tag
//	release -version v0.1.0 -prepare   write the version into the go.mod files of the nested modules
//	release -api                       say what has changed since the last version that can break users
//
// # Reading order
//
// main.go, checks.go (what has to be in order, one function each), api.go (what has changed for users).
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

func main() {
	r := release{out: os.Stdout}
	flag.StringVar(&r.dir, "dir", ".", "root of the repository")
	flag.StringVar(&r.version, "version", "", "version to be released, such as v0.1.0")
	flag.StringVar(&r.vulnerabilities, "db", "https://vuln.go.dev", "database of known vulnerabilities")
	flag.BoolVar(&r.offline, "offline", false, "release although the database cannot be reached; it is said")
	flag.BoolVar(&r.checkOnly, "check", false, "tag nothing")
	prepare := flag.Bool("prepare", false, "write the version into the nested modules, and check nothing")
	compare := flag.Bool("api", false, "compare the API with the last version, and check nothing else")
	flag.Parse()
	r.tools = filepath.Join(r.dir, "internal/tools")
	do := r.run
	switch {
	case *prepare:
		do = r.prepare
	case *compare:
		do = r.compare
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one version that is to be tagged.
type release struct {
	dir, version       string
	tools              string // folder of the module whose go.mod has the tools
	vulnerabilities    string
	offline, checkOnly bool
	out                io.Writer

	modules []module // the root is the first one
	scratch string   // a folder for files that are not needed afterwards
}

// module is one that users get, with a tag of its own.
type module struct {
	folder string // "." for the root
	file   *modfile.File
}

func (m module) tag(version string) string { return path.Join(m.folder, version) }

// untagged are folders whose modules no other module imports: tools, tests, programs.
var untagged = []string{"internal/", "examples/etcd"}

// run makes all checks, which it names, and tags if none has failed.
func (r *release) run() error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("%q is no version such as v0.1.0", r.version)
	}
	if err := r.load(); err != nil {
		return err
	}
	var err error
	if r.scratch, err = os.MkdirTemp("", "release"); err != nil {
		return err
	}
	defer os.RemoveAll(r.scratch)
	var failed []error
	for _, c := range checks {
		said, err := c.run(r)
		switch {
		case err != nil:
			fmt.Fprintf(r.out, "%-16s REFUSED: %v\n", c.name, err)
			failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
		default:
			fmt.Fprintf(r.out, "%-16s %s\n", c.name, said)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("%s is not tagged:\n%w", r.version, err)
	}
	if r.checkOnly {
		return nil
	}
	var tags []string
	for _, m := range r.modules {
		tag := m.tag(r.version)
		if _, err := r.git("tag", "-a", tag, "-m", tag); err != nil {
			for _, tag := range tags { // all or none
				_, again := r.git("tag", "--delete", tag)
				err = errors.Join(err, again)
			}
			return err
		}
		tags = append(tags, tag)
	}
	fmt.Fprintf(r.out, "tagged; to publish it: git push --atomic origin main %s\n", strings.Join(tags, " "))
	return nil
}

// load finds the modules.
func (r *release) load() error {
	names, err := r.git("ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(names) {
		folder := path.Dir(name)
		skip := false
		for _, u := range untagged {
			skip = skip || folder == u || strings.HasSuffix(u, "/") && strings.HasPrefix(folder, u)
		}
		if skip {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		file, err := modfile.Parse(name, data, nil)
		if err != nil {
			return err
		}
		m := module{folder, file}
		if folder == "." {
			r.modules = append([]module{m}, r.modules...)
		} else {
			r.modules = append(r.modules, m)
		}
	}
	if len(r.modules) == 0 || r.modules[0].folder != "." {
		return fmt.Errorf("%s has no go.mod", r.dir)
	}
	return nil
}

// compare says what the changelog has yet to name under "Unreleased".
func (r *release) compare() error {
	r.version = "Unreleased"
	if err := r.load(); err != nil {
		return err
	}
	said, err := r.api()
	if err == nil {
		fmt.Fprintln(r.out, said)
	}
	return err
}

// prepare writes the version into the go.mod of each nested module.
func (r *release) prepare() error {
	if err := r.load(); err != nil {
		return err
	}
	for _, m := range r.modules[1:] {
		for _, other := range r.modules {
			if requires(m, other) == "" {
				continue
			}
			if err := m.file.AddRequire(other.file.Module.Mod.Path, r.version); err != nil {
				return err
			}
		}
		text, err := m.file.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.dir, m.folder, "go.mod"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// requires is the version of another module that m requires; empty: it does not.
func requires(m, other module) string {
	for _, require := range m.file.Require {
		if require.Mod.Path == other.file.Module.Mod.Path {
			return require.Mod.Version
		}
	}
	return ""
}

func (r *release) git(args ...string) (string, error) { return r.command(".", "git", args...) }

// command runs a program in a folder of the repository. The error has what it wrote.
func (r *release) command(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = filepath.Join(r.dir, folder)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if at := slices.IndexFunc(r.modules, func(m module) bool { return m.folder == folder }); at > 0 {
		var err error
		if cmd.Dir, err = r.buildable(r.modules[at]); err != nil {
			return "", err
		}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s in %s: %w\n%s%s", name, strings.Join(args, " "), folder, err, out, stderr.String())
	}
	return string(out), err
}

// buildable is a folder in which a nested module can be built: its own, or, if it has no replace directive for the
// root, as what users copy must not have one, a copy with such a directive and the root's LICENSE, which the go command
// gives a module that has none.
func (r *release) buildable(m module) (string, error) {
	dir := filepath.Join(r.dir, m.folder)
	root := r.modules[0].file.Module.Mod.Path
	replaces := func(r *modfile.Replace) bool { return r.Old.Path == root }
	if requires(m, r.modules[0]) == "" || slices.ContainsFunc(m.file.Replace, replaces) {
		return dir, nil
	}
	copied := filepath.Join(r.scratch, m.folder)
	if _, err := os.Stat(copied); err == nil {
		return copied, nil
	}
	here, err := filepath.Abs(r.dir)
	if err := errors.Join(err, os.CopyFS(copied, os.DirFS(dir))); err != nil {
		return "", err
	}
	licence, err1 := os.ReadFile(filepath.Join(here, "LICENSE"))
	goMod, err2 := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	with := fmt.Appendf(goMod, "\nreplace %s => %s\n", root, here)
	return copied, errors.Join(os.WriteFile(filepath.Join(copied, "LICENSE"), licence, 0o644),
		os.WriteFile(filepath.Join(copied, "go.mod"), with, 0o644))
}

// tool runs a tool of internal/tools.
func (r *release) tool(folder, name string, args ...string) (string, error) {
	cmd := exec.Command("go", "tool", "-n", name)
	cmd.Dir = r.tools
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s is no tool of internal/tools: %s", name, out)
	}
	return r.command(folder, strings.TrimSpace(string(out)), args...)
}
