package cluster

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFingerprintFollowsTheSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	print := func(flags string) string {
		sum, err := fingerprint(dir, flags)
		require.NoError(t, err)
		return sum
	}
	write("go.mod", "module m")
	write("main.go", "package main")
	first := print("-s")
	require.Equal(t, first, print("-s"))
	write("main_test.go", "package main")
	write("notes.txt", "hello")
	require.Equal(t, first, print("-s"), "neither is part of the binary")
	require.NotEqual(t, first, print("-s -w"))

	seen := map[string]bool{first: true}
	for _, change := range []func(){
		func() { write("main.go", "package main // changed") },
		func() { write("go.mod", "module n") },
		func() { write("go.sum", "sum") },
		func() { write("deep/down.go", "package deep") },
		func() { require.NoError(t, os.Rename(filepath.Join(dir, "main.go"), filepath.Join(dir, "other.go"))) },
	} {
		change()
		sum := print("-s")
		require.False(t, seen[sum], "a change that nobody would notice")
		seen[sum] = true
	}
}

func TestVersionFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "go.mod")
	require.NoError(t, os.WriteFile(path, []byte("require (\n\tk8s.io/kubernetes v1.37.1\n)\n"), 0o600))
	flags, err := versionFlags(path)
	require.NoError(t, err)
	for _, want := range []string{"gitVersion=v1.37.1 ", "gitMajor=1 ", "gitMinor=37 "} {
		require.Contains(t, flags, "-X k8s.io/component-base/version."+want)
	}
	require.NoError(t, os.WriteFile(path, []byte("require k8s.io/api v1.37.1\n"), 0o600))
	_, err = versionFlags(path)
	require.ErrorContains(t, err, "requires no version of k8s.io/kubernetes")
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
	require.NoError(t, runWithProgress(exec.Command("sh", "-c", script+"0"), &log))
	require.Contains(t, log.String(), "1 modules downloaded, 2 of about 2,200 packages compiled")

	err := runWithProgress(exec.Command("sh", "-c", script+"1"), &log)
	require.ErrorContains(t, err, "exit status 1\n# example.com/a/b", "what is no progress is shown when it fails")

	require.ErrorContains(t, runWithProgress(exec.Command("no-such-command"), &log), "needed in the PATH")
}

func TestRepositoryIsFoundFromAnyPackage(t *testing.T) {
	root, err := repository()
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "reconcile", "reconciletest", "cluster", "doc.go"))

	t.Chdir(filepath.Join(root, "internal", "controlplane", "plane"))
	again, err := repository()
	require.NoError(t, err)
	require.Equal(t, root, again, "a module below is not the root")

	t.Chdir("/")
	_, err = repository()
	require.ErrorContains(t, err, "run this inside a clone of it")
}
