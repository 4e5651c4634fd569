package house

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nested are the modules of ours beside the root that users import.
var nested = []string{"informer/ctrlruntime", "informer/packed", "reconcile/reconciletest/builtin",
	"reconcile/reconciletest/cel", "reconcile/traces"}

// published are all modules beside the root that have versions.
var published = append([]string{template}, nested...)

// TestGoGet packs the root module and the nested ones as a proxy would serve them, all at one version, and builds
// modules outside of the repository that import each package.
func TestGoGet(t *testing.T) {
	version, environment := publish(t)
	outside(t, environment, module, version, packages)
	for _, folder := range nested {
		user := outside(t, environment, path.Join(module, folder), version, []string{folder})
		require.Contains(t, run(t, user, environment, "go", "list", "-m", module), version, "the nested module's root")
	}
}

// publish packs all modules that users get, at one version, and returns an environment in which go finds them.
func publish(t *testing.T) (version string, environment []string) {
	mod := read(t, root, "go.mod")
	require.NotContains(t, mod, "replace ", "a replace directive does not reach those who import the module")
	// The go command takes for granted that a version never changes, so this one is named for what it holds.
	files := map[string][]file{}
	hash := sha256.New()
	for _, folder := range append([]string{""}, published...) {
		files[folder] = moduleFiles(t, folder)
		for _, f := range files[folder] {
			fmt.Fprintln(hash, f.name, len(f.content))
			hash.Write(f.content)
		}
	}
	version = fmt.Sprintf("v0.0.0-20000101000000-%x", hash.Sum(nil)[:6])
	proxy := t.TempDir()
	pack(t, proxy, module, version, mod, files[""])
	for _, folder := range published {
		mod := read(t, filepath.Join(root, folder), "go.mod")
		require.Contains(t, mod, "\t"+module+" v", "the nested module requires the root")
		// The step of a release that .github/RELEASING.md describes.
		edited := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(edited, "go.mod"), []byte(mod), 0o644))
		run(t, edited, nil, "go", "mod", "edit", "-require="+module+"@"+version)
		pack(t, proxy, path.Join(module, folder), version, read(t, edited, "go.mod"), files[folder])
	}

	env := goEnv(t, "GOMODCACHE", "GOPROXY")
	t.Cleanup(func() { forget(t, env["GOMODCACHE"], version) })
	forget(t, env["GOMODCACHE"], version) // of a run that was cut off
	return version, []string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + env["GOPROXY"], "GONOSUMDB=" + module,
		"GOFLAGS=-mod=mod -modcacherw", "GOWORK=off",
	}
}

// outside builds a module that gets a module of ours at a version and imports packages of it. It returns its folder.
// There is no main package: what compiles against the published modules links as it does here.
func outside(t *testing.T, environment []string, get, version string, imports []string) string {
	user := t.TempDir()
	var program strings.Builder
	program.WriteString("package user\n\nimport (\n")
	for _, p := range imports {
		program.WriteString("\t_ \"" + module + "/" + p + "\"\n")
	}
	program.WriteString(")\n")
	require.NoError(t, os.WriteFile(filepath.Join(user, "user.go"), []byte(program.String()), 0o644))
	run(t, user, environment, "go", "mod", "init", "example.com/user")
	run(t, user, environment, "go", "get", get+"@"+version)
	build := []string{"build", "."}
	if strings.HasSuffix(get, "/builtin") { // all of Kubernetes at the newest versions would be compiled for this
		build = []string{"list", "-deps", "."}
	}
	run(t, user, environment, "go", build...)
	require.Contains(t, run(t, user, environment, "go", "list", "-m", get), version)
	return user
}

type file struct {
	name    string
	content []byte
}

// moduleFiles returns the files of the module in a folder ("" is the root), as git knows them, with their names in it.
func moduleFiles(t *testing.T, folder string) (files []file) {
	dir := filepath.Join(root, folder)
	names := strings.Split(strings.TrimRight(run(t, dir, nil, "git", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard"), "\x00"), "\x00")
	var deeper []string // folders with a go.mod of their own are other modules
	for _, name := range names {
		if dir, ok := strings.CutSuffix(name, "/go.mod"); ok {
			deeper = append(deeper, dir+"/")
		}
	}
	for _, name := range names {
		if slices.ContainsFunc(deeper, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		require.NoError(t, err)
		files = append(files, file{name, content})
	}
	return files
}

// pack writes a module in the layout of the GOPROXY protocol (go.dev/ref/mod#goproxy-protocol). The mod file takes the
// place of the one among the files.
func pack(t *testing.T, proxy, module, version, mod string, files []file) {
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	info, err := json.Marshal(map[string]string{"Version": version, "Time": "2000-01-01T00:00:00Z"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, version+".info"), info, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, version+".mod"), []byte(mod), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644))

	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	require.NoError(t, err)
	defer archive.Close()
	w := zip.NewWriter(archive)
	for _, f := range files {
		if f.name == "go.mod" {
			f.content = []byte(mod)
		}
		entry, err := w.Create(module + "@" + version + "/" + f.name)
		require.NoError(t, err)
		_, err = entry.Write(f.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
}

// forget removes the version of all modules from the module cache.
func forget(t *testing.T, cache, version string) {
	for _, folder := range append([]string{""}, published...) {
		require.NoError(t, os.RemoveAll(filepath.Join(cache, path.Join(module, folder)+"@"+version)))
	}
	require.NoError(t, os.RemoveAll(filepath.Join(cache, "cache/download", module)))
}
