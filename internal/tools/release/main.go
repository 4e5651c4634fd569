// Command release tags a version of this repository, if everything is in order. make release runs it.
//
//	release -version v0.1.0            check everything, and tag
//	release -version v0.1.0 -prepare   write the version into the go.mod files of the nested modules
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
	flag.Parse()
	do := r.run
	if *prepare {
		do = r.prepare
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one version that is to be tagged.
type release struct {
	dir, version       string
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
	for _, m := range r.modules {
		if m.folder != folder {
			continue
		}
		flags, err := r.flags(m)
		if err != nil {
			return "", err
		}
		if flags != "" {
			cmd.Env = append(cmd.Env, "GOFLAGS="+flags)
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

// flags are those of the go command for a module that has no replace directive for the root, as its copies must not
// have one: they name another go.mod, which has.
func (r *release) flags(m module) (string, error) {
	root := r.modules[0].file.Module.Mod.Path
	for _, replace := range m.file.Replace {
		if replace.Old.Path == root {
			return "", nil
		}
	}
	if requires(m, r.modules[0]) == "" {
		return "", nil
	}
	here, err := filepath.Abs(r.dir)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(here, m.folder)
	mod, err1 := os.ReadFile(filepath.Join(folder, "go.mod"))
	sum, err2 := os.ReadFile(filepath.Join(folder, "go.sum"))
	with := filepath.Join(r.scratch, strings.ReplaceAll(m.folder, "/", "-"))
	err3 := os.WriteFile(with+".mod", fmt.Appendf(mod, "\nreplace %s => %s\n", root, here), 0o644)
	err4 := os.WriteFile(with+".sum", sum, 0o644)
	return "-modfile=" + with + ".mod", errors.Join(err1, err2, err3, err4)
}

// tool runs a tool of internal/tools.
func (r *release) tool(folder, name string, args ...string) (string, error) {
	tools, err := filepath.Abs(filepath.Join(r.dir, "internal/tools"))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "tool", "-n", name)
	cmd.Dir = tools
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s is no tool of internal/tools: %s", name, out)
	}
	return r.command(folder, strings.TrimSpace(string(out)), args...)
}
