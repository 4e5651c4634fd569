package house

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write .github/DEPENDENCIES.md anew")

// licences are those that a dependency may have, each with a sentence of its text.
var licences = []struct{ name, sentence string }{
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD", "Redistribution and use in source and binary forms, with or without modification, are permitted"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
}

// TestDependenciesAreListed compares .github/DEPENDENCIES.md with what a binary of a user contains. The licences are
// read from the module cache.
func TestDependenciesAreListed(t *testing.T) {
	controller, tests := map[string]string{}, map[string]string{}
	for _, p := range packages {
		to := controller
		if strings.HasPrefix(p, "reconcile/reconciletest") || strings.HasSuffix(p, "test") || p == "reconcile/plan" {
			to = tests
		}
		maps.Copy(to, dependencies(t, p))
	}
	require.NotEmpty(t, controller)
	for path := range controller {
		delete(tests, path)
	}
	var page strings.Builder
	page.WriteString("# Dependencies\n\nThe modules whose code a binary contains that imports these packages, on " +
		"Linux, macOS or Windows. The versions are in\n[go.mod](../go.mod). This page is written by " +
		"`go test ./internal/house -run Dependencies -update`, and tested.\n")
	for _, part := range []struct {
		title   string
		modules map[string]string
	}{
		{"A controller: informer, workqueue, reconcile, leaderelection", controller},
		{"In addition a test with reconcile/reconciletest or reconcile/webhook/webhooktest, and reconcile/plan", tests},
	} {
		fmt.Fprintf(&page, "\n## %s\n\n| module | licence |\n|---|---|\n", part.title)
		for _, path := range slices.Sorted(maps.Keys(part.modules)) {
			fmt.Fprintf(&page, "| %s | %s |\n", path, licenceOf(t, path, part.modules[path]))
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, ".github/DEPENDENCIES.md"), []byte(page.String()), 0o644))
	}
	require.Equal(t, page.String(), read(t, root, ".github/DEPENDENCIES.md"),
		"the dependencies have changed: go test ./internal/house -run Dependencies -update")
}

// dependencies returns the other modules that a package brings in, with their folders.
func dependencies(t *testing.T, p string) map[string]string {
	found := map[string]string{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		packages := graph(t, system)
		for _, dep := range append(packages[module+"/"+p].Deps, module+"/"+p) {
			if m := packages[dep].Module; m != nil && m.Path != module {
				found[m.Path] = m.Dir
			}
		}
	}
	return found
}

// licenceOf returns the names of the licences in a module's files, and fails for a file that contains none of those
// that are known.
func licenceOf(t *testing.T, path, dir string) string {
	var names []string
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		if !strings.HasPrefix(strings.ToUpper(entry.Name()), "LICENSE") {
			continue
		}
		content := strings.Join(strings.Fields(read(t, dir, entry.Name())), " ")
		known := false
		for _, l := range licences {
			if strings.Contains(content, l.sentence) {
				names, known = append(names, l.name), true
			}
		}
		require.True(t, known, "%s of %s is a licence that this test does not know", entry.Name(), path)
	}
	require.NotEmpty(t, names, "%s has no licence", path)
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
