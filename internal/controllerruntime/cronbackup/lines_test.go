package main

import (
	"flag"
	"fmt"
	"go/format"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of lines in README.md anew")

// parts says to which part a file belongs; what is not named is "reconcile".
var parts = map[string]string{
	"main.go": "wiring", "api/v1/types.go": "types", "api/v1/register.go": "scheme", "webhooks.go": "webhooks",
}

// TestLines prints the table of README.md: the lines of code of both operators, those with a token of Go on them, in
// files as gofmt writes them. Generated code, package docs and tests are not counted, nor are the webhooks and the
// second version, which only ours has; what wires them up is. With -update it writes the table.
func TestLines(t *testing.T) {
	ours, theirs := count(t, example, ".", "api/v1"), count(t, ".", ".")
	require.NotZero(t, ours["webhooks"])
	delete(ours, "webhooks")
	scheme := ours["scheme"] // and the list type: a client of controller-runtime needs both
	delete(ours, "scheme")
	theirs["types"] = ours["types"] + scheme
	if main, err := os.ReadFile(filepath.Join(example, "main.go")); strings.Contains(string(main), "v1.AddToScheme") {
		require.NoError(t, err)
		ours["types"] += scheme
	}
	table := "| lines of code | controller-runtime | thermostat |\n|---|---|---|\n"
	for _, part := range []string{"wiring", "reconcile", "types"} {
		table += fmt.Sprintf("| %s | %d | %d |\n", part, theirs[part], ours[part])
	}
	table += fmt.Sprintf("| all | %d | %d |\n", sum(theirs), sum(ours))
	t.Log("\n" + table)
	require.LessOrEqual(t, sum(ours), sum(theirs))
	if *update {
		page, err := os.ReadFile("README.md")
		require.NoError(t, err)
		before, rest, ok := strings.Cut(string(page), "| lines of code |")
		require.True(t, ok)
		_, after, _ := strings.Cut(rest, "\n\n")
		require.NoError(t, os.WriteFile("README.md", []byte(before+table+"\n"+after), 0o644))
	}
}

func sum(lines map[string]int) (n int) {
	for _, v := range slices.Collect(maps.Values(lines)) {
		n += v
	}
	return n
}

// count returns the lines of code of the files in folders, by part.
func count(t *testing.T, root string, folders ...string) map[string]int {
	lines := map[string]int{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			require.NoError(t, err)
			base := filepath.Base(name)
			if strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "zz_generated") || base == "doc.go" {
				continue
			}
			part := parts[filepath.ToSlash(name)]
			if part == "" {
				part = "reconcile"
			}
			lines[part] += linesOf(t, file)
		}
	}
	require.NotEmpty(t, lines, root)
	return lines
}

func linesOf(t *testing.T, file string) int {
	code, err := os.ReadFile(file)
	require.NoError(t, err)
	formatted, err := format.Source(code)
	require.NoError(t, err)
	require.Equal(t, string(formatted), string(code), "%s is not as gofmt writes it", file)
	files := token.NewFileSet()
	f := files.AddFile(file, -1, len(code))
	var s scanner.Scanner
	s.Init(f, code, nil, 0) // without comments
	with := map[int]bool{}
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return len(with)
		}
		if kind == token.SEMICOLON && literal == "\n" {
			continue // the scanner's own
		}
		first := f.Line(at)
		for line := first; line <= first+strings.Count(literal, "\n"); line++ {
			with[line] = true
		}
	}
}
