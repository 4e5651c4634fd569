package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const controlPlane = "../../../../internal/controlplane"

func TestTheCopyIsUpToDate(t *testing.T) {
	want, err := sources(controlPlane)
	require.NoError(t, err)
	require.Contains(t, want, "go.sum.txt")
	require.Contains(t, want, "plane/plane.go.txt")
	have, err := copies(".")
	require.NoError(t, err)
	const mend = "run: go generate ./reconcile/reconciletest/cluster"
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)), mend)
	for name := range want {
		require.True(t, want[name] == have[name], "%s differs from its source; %s", name, mend)
	}
}

func TestUpdateAddsChangesAndRemoves(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from, "main.go", "package main")
	write(t, from, "main_test.go", "package main")
	write(t, from, "go.mod", "module m")
	write(t, to, "gone.go.txt", "package main")
	write(t, to, "go.mod.txt", "module old")
	write(t, to, "notes.md", "kept")
	require.NoError(t, update(from, to))
	have, err := copies(to)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"main.go.txt": "package main", "go.mod.txt": "module m"}, have)
	require.FileExists(t, to+"/notes.md")
}

func write(t *testing.T, dir, name, content string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}
