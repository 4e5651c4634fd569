package cluster

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// small is a program that compiles in a moment, for two versions of Kubernetes.
func small() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"go.mod.txt":              file("module example.com/small // k8s.io/kubernetes v1.37.1\n\ngo 1.26.0\n"),
		"kubernetes-1.9.mod.txt":  file("module example.com/small // k8s.io/kubernetes v1.9.4\n\ngo 1.25.0\n"),
		"kubernetes-1.9.sum.txt":  file(""),
		"kubernetes-1.36.mod.txt": file("module example.com/small // k8s.io/kubernetes v1.36.4\n\ngo 1.25.0\n"),
		"kubernetes-1.36.sum.txt": file(""),
		"main.go.txt": file("package main\n\nimport \"example.com/small/deep\"\n\n" +
			"func main() { deep.Say() }\n"),
		"deep/down.go.txt": file("package deep\n\nfunc Say() { println(\"hello\") }\n"),
		"main.go":          file("is no part of it"),
	}
}

func newest(t *testing.T, source fs.FS) release {
	r, err := choose(source, "")
	require.NoError(t, err)
	return r
}

func TestBuildOnce(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	t.Setenv("GOFLAGS", "-mod=vendor")
	t.Setenv("GOWORK", filepath.Join(t.TempDir(), "go.work"))
	var log bytes.Buffer
	dir, err := build(t.Context(), &log, small(), newest(t, small()), cache)
	require.NoError(t, err)
	require.Contains(t, log.String(), "compiling etcd")
	require.Equal(t, cache, filepath.Dir(dir))
	for _, name := range append([]string{"controlplane"}, programs...) {
		out, err := exec.Command(filepath.Join(dir, name)).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, "hello\n", string(out))
	}

	log.Reset()
	t.Setenv("PATH", "")
	again, err := build(t.Context(), &log, small(), newest(t, small()), cache)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	require.Empty(t, log.String())
}

func TestManyBuildAtOnce(t *testing.T) {
	cache := t.TempDir()
	var logs [4]bytes.Buffer
	var dirs [4]string
	var callers sync.WaitGroup
	for i := range dirs {
		callers.Go(func() {
			dir, err := build(t.Context(), &logs[i], small(), newest(t, small()), cache)
			if err != nil {
				t.Error(err)
			}
			dirs[i] = dir
		})
	}
	callers.Wait()
	built := 0
	for i := range dirs {
		require.Equal(t, dirs[0], dirs[i])
		built += bytes.Count(logs[i].Bytes(), []byte("compiling etcd"))
	}
	require.Equal(t, 1, built)
}

func TestBuildSaysWhyItFails(t *testing.T) {
	cache := t.TempDir()
	broken := small()
	broken["main.go.txt"].Data = []byte("package main\n\nfunc main() { nothing() }\n")
	_, err := build(t.Context(), t.Output(), broken, newest(t, broken), cache)
	require.ErrorContains(t, err, "build the control plane of Kubernetes v1.37.1: go build")
	require.ErrorContains(t, err, "undefined: nothing")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = build(ended, t.Output(), small(), newest(t, small()), cache)
	require.ErrorIs(t, err, context.Canceled)

	t.Setenv("PATH", "")
	_, err = build(t.Context(), t.Output(), small(), newest(t, small()), cache)
	require.ErrorIs(t, err, exec.ErrNotFound)
	require.ErrorContains(t, err, "the go command, which has to be in the PATH")

	left, err := filepath.Glob(filepath.Join(cache, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(cache, "lock")}, left, "a failed build leaves nothing")
}

func TestBuildCleansTheCache(t *testing.T) {
	cache := t.TempDir()
	dir, err := build(t.Context(), t.Output(), small(), newest(t, small()), cache)
	require.NoError(t, err)
	for name, days := range map[string]int{"controlplane-old": 31, "controlplane-new": 29, "building-1": 0} {
		path := filepath.Join(cache, name)
		require.NoError(t, os.Mkdir(path, 0o755))
		used := time.Now().AddDate(0, 0, -days)
		require.NoError(t, os.Chtimes(path, used, used))
	}
	long := time.Now().AddDate(0, 0, -100)
	require.NoError(t, os.Chtimes(dir, long, long))
	_, err = build(t.Context(), t.Output(), small(), newest(t, small()), cache) // notes the use
	require.NoError(t, err)

	changed := small()
	changed["main.go.txt"].Data = append(changed["main.go.txt"].Data, '\n')
	_, err = build(t.Context(), t.Output(), changed, newest(t, changed), cache)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(cache, "controlplane-old"))
	require.NoDirExists(t, filepath.Join(cache, "building-1"))
	require.DirExists(t, filepath.Join(cache, "controlplane-new"))
	require.DirExists(t, dir, "it was used a moment ago")
}

func TestFingerprintFollowsTheSources(t *testing.T) {
	source := small()
	print := func(r release) string {
		sum, err := fingerprint(source, r)
		require.NoError(t, err)
		return sum
	}
	r := newest(t, source)
	first := print(r)
	require.Equal(t, first, print(r))
	source["notes"] = &fstest.MapFile{Data: []byte("hello")}
	require.Equal(t, first, print(r), "it is no part of the binary")
	source["kubernetes-1.36.sum.txt"] = &fstest.MapFile{Data: []byte("sum")}
	require.Equal(t, first, print(r), "it is no part of this version")
	other, err := choose(source, "1.36")
	require.NoError(t, err)
	require.NotEqual(t, first, print(other))
	patched := r
	patched.version = "v1.37.2"
	require.NotEqual(t, first, print(patched))

	seen := map[string]bool{first: true}
	for _, change := range []func(){
		func() { source["main.go.txt"].Data = []byte("package main // changed") },
		func() { source["go.mod.txt"].Data = []byte("module n") },
		func() { source["go.sum.txt"] = &fstest.MapFile{Data: []byte("sum")} },
		func() { source["deep/down.go.txt"].Data = []byte("package deep // changed") },
		func() { source["other.go.txt"] = source["main.go.txt"]; delete(source, "main.go.txt") },
	} {
		change()
		sum := print(r)
		require.False(t, seen[sum], "a change that nobody would notice")
		seen[sum] = true
	}
}

func TestOnlyOneBuildsAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var log bytes.Buffer
	unlock, err := lock(t.Context(), &log, path)
	require.NoError(t, err)
	require.Empty(t, log.String())

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = lock(short, &log, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Contains(t, log.String(), "another process is building")

	unlock()
	unlock, err = lock(t.Context(), &log, path)
	require.NoError(t, err)
	unlock()
}

func TestProgress(t *testing.T) {
	var log bytes.Buffer
	script := "echo 'go: downloading example.com/a v1.0.0' >&2; echo example.com/a >&2; echo example.com/a/b >&2; " +
		"echo '# example.com/a/b' >&2; exit "
	require.NoError(t, runWithProgress(exec.Command("sh", "-c", script+"0"), controlPlanePackages, &log))
	require.Contains(t, log.String(), "1 modules downloaded, 2 of about 2700 packages compiled")

	err := runWithProgress(exec.Command("sh", "-c", script+"1"), controlPlanePackages, &log)
	require.ErrorContains(t, err, "exit status 1\n# example.com/a/b", "what is no progress is shown when it fails")

	require.ErrorContains(t, runWithProgress(exec.Command("no-such-command"), controlPlanePackages, &log),
		"has to be in the PATH")
}

func TestProgramsHaveAVersion(t *testing.T) {
	for name, pkg := range map[string]string{"etcd": "go.etcd.io/etcd/server/v3", "a/b": "example.com/b@v1.0.0",
		"": "example.com/c@v1.0.0", "d": "@v1.0.0"} {
		_, err := BuildPrograms(t.Context(), nil, map[string]string{name: pkg})
		require.ErrorContains(t, err, "want a file name, and a package with a version")
	}
}
