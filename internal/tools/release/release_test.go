package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository is a small one with a nested module, in order to be released as v0.1.0.
func repository(t *testing.T) (dir string) {
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26.0\n",
		"m.go":   "// Package m is one.\npackage m\n\n// F is exported.\nfunc F() {}\n\n// G is, too.\nfunc G() {}\n",
		"nested/go.mod": "module example.com/m/nested\n\ngo 1.26.0\n\nrequire example.com/m v0.1.0\n\n" +
			"replace example.com/m => ../\n",
		"nested/n.go": "// Package nested is another one.\npackage nested\n\nimport \"example.com/m\"\n\n" +
			"// N is exported.\nfunc N() { m.F() }\n",
		"examples/copied/go.mod": "module example.com/m/examples/copied\n\ngo 1.26.0\n\nrequire example.com/m v0.1.0\n",
		"examples/copied/go.sum": "",
		"examples/copied/main.go": "// Command copied has no replace directive.\npackage main\n\n" +
			"import \"example.com/m\"\n\nfunc main() { m.F() }\n",
		".github/CHANGELOG.md": "# Changelog\n\n## v0.1.0 - 2026-11-25\n\nThe first one.\n",
		"internal/house/h_test.go": "package house\n\nimport \"testing\"\n\n" +
			"func TestEveryPackageHasAnExample(t *testing.T) {}\n",
		"LICENSE":    apache(t),
		".gitignore": ".build\n",
	} {
		write(t, dir, name, text)
	}
	write(t, dir, "nested/LICENSE", apache(t))
	git(t, dir, "init", "-q", "-b", "main")
	commit(t, dir)
	return dir
}

func apache(t *testing.T) string {
	text, err := os.ReadFile("../../../LICENSE")
	require.NoError(t, err)
	return string(text)
}

func write(t *testing.T, dir, name, text string) {
	file := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

func replace(t *testing.T, dir, name, old, new string) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	write(t, dir, name, strings.ReplaceAll(string(text), old, new))
}

func git(t *testing.T, dir string, args ...string) string {
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func commit(t *testing.T, dir string) {
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "a change")
}

// attempt makes the checks that need no tools, and tags if they have passed. It returns what was said.
func attempt(t *testing.T, dir, version string) (string, error) {
	return attemptWithout(t, release{dir: dir, version: version}, "licences", "sbom", "vulnerabilities")
}

func attemptWithout(t *testing.T, r release, leftOut ...string) (string, error) {
	t.Setenv("GIT_COMMITTER_NAME", "a")
	t.Setenv("GIT_COMMITTER_EMAIL", "a@example.com")
	all := checks
	defer func() { checks = all }()
	checks = slices.DeleteFunc(slices.Clone(all), func(c check) bool { return slices.Contains(leftOut, c.name) })
	var said strings.Builder
	r.out = &said
	err := r.run()
	return said.String(), err
}

// TestEachBreakIsRefused plants one break after the other.
func TestEachBreakIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		break_ func(dir string)
		want   string
	}{
		"not committed": {func(dir string) { write(t, dir, "more.go", "package m\n") }, "not committed"},
		"another branch": {func(dir string) { git(t, dir, "switch", "-q", "-c", "other") },
			`the branch is "other"`},
		"no section": {func(dir string) {
			replace(t, dir, changelogFile, "## v0.1.0 - 2026-11-25", "## Unreleased")
			commit(t, dir)
		}, `no section "## v0.1.0"`},
		"an empty section": {func(dir string) {
			replace(t, dir, changelogFile, "The first one.", "\n## v0.0.9\n\nBefore.")
			commit(t, dir)
		}, "or nothing in it"},
		"a wrong nested version": {func(dir string) {
			replace(t, dir, "nested/go.mod", "m v0.1.0", "m v0.0.9")
			commit(t, dir)
		}, "nested requires example.com/m v0.0.9, and not v0.1.0"},
		"a replaced module": {func(dir string) {
			replace(t, dir, "go.mod", "go 1.26.0\n", "go 1.26.0\n\nreplace example.com/x => ../x\n")
			commit(t, dir)
		}, "the root has a replace directive"},
		"what does not compile": {func(dir string) {
			write(t, dir, "nested/n_test.go", "package nested\n\nvar _ int = \"\"\n")
			commit(t, dir)
		}, "go vet ./... in nested"},
		"a package without an example": {func(dir string) {
			replace(t, dir, "internal/house/h_test.go", "{}", "{ t.Fail() }")
			commit(t, dir)
		}, "EveryPackageHasAnExample"},
		"a tag that is there": {func(dir string) { git(t, dir, "tag", "nested/v0.1.0") },
			"the tag nested/v0.1.0 is there"},
		"a tag that cannot be made": {func(dir string) { git(t, dir, "tag", "nested") }, "cannot lock ref"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t)
			test.break_(dir)
			before := git(t, dir, "tag", "--list")
			_, err := attempt(t, dir, "v0.1.0")
			require.ErrorContains(t, err, test.want)
			require.Equal(t, before, git(t, dir, "tag", "--list"), "nothing is tagged")
		})
	}
	_, err := attempt(t, repository(t), "0.1.0")
	require.ErrorContains(t, err, "is no version")
}

// TestVersionsFollowEachOther releases three versions; what may not change has not.
func TestVersionsFollowEachOther(t *testing.T) {
	dir := repository(t)
	said, err := attempt(t, dir, "v0.1.0")
	require.NoError(t, err, said)
	require.Equal(t, "examples/copied/v0.1.0\nnested/v0.1.0\nv0.1.0\n", git(t, dir, "tag", "--list"))

	next := func(before, version, text string) {
		replace(t, dir, changelogFile, "# Changelog\n", "# Changelog\n\n## "+version+"\n\n"+text+"\n")
		replace(t, dir, "nested/go.mod", before, version)
		replace(t, dir, "examples/copied/go.mod", before, version)
		commit(t, dir)
	}
	replace(t, dir, "m.go", "\n// G is, too.\nfunc G() {}\n", "")
	next("v0.1.0", "v0.1.1", "One name less.")
	_, err = attempt(t, dir, "v0.1.1")
	require.ErrorContains(t, err, "v0.1.1 must not change what v0.1.0 had:\nm.G: removed")
	_, err = attempt(t, dir, "v0.0.9")
	require.ErrorContains(t, err, "the last version is v0.1.0")

	next("v0.1.1", "v0.2.0", "Something less.")
	_, err = attempt(t, dir, "v0.2.0")
	require.ErrorContains(t, err, "the changelog does not name what has changed since v0.1.0:\nm.G: removed")
	for _, other := range []string{"`G`", "m.Go and mm.G", "m.G2"} {
		replace(t, dir, changelogFile, "Something less.", other+": something less.")
		commit(t, dir)
		_, err = attempt(t, dir, "v0.2.0")
		require.ErrorContains(t, err, "the changelog does not name", other)
		replace(t, dir, changelogFile, other+": something less.", "Something less.")
	}
	replace(t, dir, changelogFile, "Something less.", "`m.G` is gone: call F.")
	commit(t, dir)
	said, err = attempt(t, dir, "v0.2.0")
	require.NoError(t, err)
	require.Contains(t, said, "1 changes since v0.1.0 that can break users, all in the changelog")

	write(t, dir, "more.go", "package m\n\n// H is new.\nfunc H() {}\n")
	next("v0.2.0", "v0.2.1", "`m.H` is new.")
	_, err = attempt(t, dir, "v0.2.1")
	require.NoError(t, err)
	replace(t, dir, "nested/n.go", "func N()", "func N(int)")
	next("v0.2.1", "v0.2.2", "`nested.N` takes a number.")
	_, err = attempt(t, dir, "v0.2.2")
	require.ErrorContains(t, err, "nested.N: changed from func() to func(int)")
}

// TestTheChangelogNames methods and fields with their types.
func TestTheChangelogNames(t *testing.T) {
	const server, packed = "serve.(*Server).Run", "example.com/m/packed"
	for text, name := range map[string]string{"(*Server).Run of serve": "", "Running `serve.Servers.Run`": "",
		"`serve.(*Server).Run` is gone.": server, "It was serve.Server.Run.": server, "example.com/m/packed2": "",
		"example.com/m/packed/x": "", "Package example.com/m/packed.": packed} {
		require.Equal(t, name == server, names(text, server), text)
		require.Equal(t, name == packed, names(text, packed), text)
	}
}

// What is not released yet is compared with what is.
func TestCompare(t *testing.T) {
	dir := repository(t)
	compare := func() (string, error) {
		var said strings.Builder
		err := (&release{dir: dir, out: &said}).compare()
		return said.String(), err
	}
	said, err := compare()
	require.NoError(t, err)
	require.Equal(t, "there is no version to compare with\n", said)
	git(t, dir, "tag", "v0.1.0")
	replace(t, dir, "m.go", "\n// G is, too.\nfunc G() {}\n", "")
	_, err = compare()
	require.ErrorContains(t, err, "the changelog does not name what has changed since v0.1.0:\nm.G: removed")
	replace(t, dir, changelogFile, "# Changelog\n", "# Changelog\n\n## Unreleased\n\n`m.G` is gone.\n")
	said, err = compare()
	require.NoError(t, err)
	require.Equal(t, "1 changes since v0.1.0 that can break users, all in the changelog\n", said)
}

// TestToolsRefuse what they look for: a licence, and code that is known to be vulnerable, in one module of several.
func TestToolsRefuse(t *testing.T) {
	dir := repository(t)
	try := func(r release) (string, error) {
		r.dir, r.version, r.tools, r.checkOnly = dir, "v0.1.0", "..", true
		return attemptWithout(t, r, "vet", "examples")
	}
	known := database(t)
	said, err := try(release{vulnerabilities: known})
	require.NoError(t, err, said)
	require.FileExists(t, filepath.Join(dir, ".build/sbom/example.com-m-nested.cdx.json"))

	_, err = try(release{vulnerabilities: "file:///nowhere"})
	require.ErrorContains(t, err, "vulnerabilities: not all was checked")
	said, err = try(release{vulnerabilities: "file:///nowhere", offline: true})
	require.NoError(t, err)
	require.Contains(t, said, "NOT CHECKED in 3 of 3 modules, and -offline was given")

	write(t, dir, "bad/go.mod", "module example.com/bad\n\ngo 1.26.0\n")
	write(t, dir, "bad/bad.go", "// Package bad is nobody's.\npackage bad\n\n// Bad is, too.\nfunc Bad() {}\n")
	write(t, dir, "bad/LICENSE", "All rights reserved.\n")
	write(t, dir, ".gitignore", ".build\nbad\n")
	replace(t, dir, "nested/go.mod", "example.com/m => ../\n",
		"example.com/m => ../\n\nrequire example.com/bad v1.0.0\n\nreplace example.com/bad v1.0.0 => ../bad\n")
	replace(t, dir, "nested/n.go", "import \"example.com/m\"",
		"import (\n\t\"strings\"\n\n\t\"example.com/bad\"\n\t\"example.com/m\"\n)")
	replace(t, dir, "nested/n.go", "m.F()", "m.F(); bad.Bad(); strings.ToTitle(\"\")")
	commit(t, dir)
	_, err = try(release{vulnerabilities: known})
	require.ErrorContains(t, err, "licences: ")
	require.ErrorContains(t, err, "vulnerabilities: ")
	require.ErrorContains(t, err, "GO-2026-0001")

	// The root cannot be looked at: that must not hide what nested calls.
	write(t, dir, "unused/broken.go", "package unused\n\nvar _ int = \"\"\n")
	commit(t, dir)
	_, err = try(release{vulnerabilities: known, offline: true})
	require.ErrorContains(t, err, "GO-2026-0001")
}

// database makes one of vulnerabilities, with one: strings.ToTitle.
func database(t *testing.T) (url string) {
	dir := t.TempDir()
	const modified = `"modified": "2026-01-01T00:00:00Z"`
	write(t, dir, "index/db.json", "{"+modified+"}")
	write(t, dir, "index/modules.json", `[{"path": "stdlib", "vulns": [{"id": "GO-2026-0001", `+modified+`}]}]`)
	write(t, dir, "index/vulns.json", `[{"id": "GO-2026-0001", `+modified+`}]`)
	write(t, dir, "ID/GO-2026-0001.json", `{"schema_version": "1.3.1", "id": "GO-2026-0001", `+modified+`,
		"published": "2026-01-01T00:00:00Z", "summary": "Bad is bad", "details": "It is.",
		"database_specific": {"url": "https://example.com/bad"}, "affected": [{
		"package": {"name": "stdlib", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [
		{"introduced": "0"}]}], "ecosystem_specific": {"imports": [{"path": "strings", "symbols": ["ToTitle"]}]}}]}`)
	return "file://" + dir
}

func TestPrepareWritesTheVersionIntoEachModule(t *testing.T) {
	dir := repository(t)
	files := []string{"nested/go.mod", "examples/copied/go.mod"} // the second has no replace directive
	for _, file := range files {
		replace(t, dir, file, "require example.com/m v0.1.0", "require example.com/m v0.0.0")
	}
	commit(t, dir)
	r := release{dir: dir, version: "v0.1.0", out: os.Stdout}
	require.NoError(t, r.prepare())
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		require.Contains(t, string(text), "require example.com/m v0.1.0\n", file)
	}
	require.Equal(t, "M examples/copied/go.mod\n M nested/go.mod", strings.TrimSpace(git(t, dir, "status", "--short")))
}
