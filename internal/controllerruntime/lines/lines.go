// Package lines counts the lines of code of an operator that is written with two libraries, for the tables of READMEs.
//
// # Reading order
//
// lines.go is the whole package.
package lines

import (
	"flag"
	"fmt"
	"go/format"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of lines in README.md anew")

// Comparison says what is counted: the lines with a token of Go on them, in files as gofmt writes them. Generated code,
// package docs and tests are not.
type Comparison struct {
	Ours, Theirs string            // the folders of the operators; the Go types of both are in api/v1 of Ours
	Parts        map[string]string // by files; what is not named is "reconcile"
	Order        []string          // of the parts in the table, without types
	Without      string            // a part that only ours has, and that is not counted
}

// Check compares the operators, and returns how many lines each has. With -update it writes the table of README.md,
// which it compares otherwise.
func (c Comparison) Check(t *testing.T) (ours, theirs int) {
	here, there := c.count(t, c.Ours, ".", "api/v1"), c.count(t, c.Theirs, ".")
	if c.Without != "" {
		require.NotZero(t, here[c.Without])
		delete(here, c.Without)
	}
	scheme := here["scheme"] // and the list type: a client of controller-runtime needs both
	delete(here, "scheme")
	there["types"] = here["types"] + scheme
	main, err := os.ReadFile(filepath.Join(c.Ours, "main.go"))
	require.NoError(t, err)
	if strings.Contains(string(main), "v1.AddToScheme") {
		here["types"] += scheme
	}
	table := "| lines of code | controller-runtime | thermostat |\n|---|---|---|\n"
	for _, part := range append(c.Order, "types") {
		table += fmt.Sprintf("| %s | %d | %d |\n", part, there[part], here[part])
	}
	ours, theirs = sum(here), sum(there)
	table += fmt.Sprintf("| all | %d | %d |\n", theirs, ours)
	t.Log("\n" + table)
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), "| lines of code |")
	require.True(t, ok)
	was, after, _ := strings.Cut(rest, "\n\n")
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(before+table+"\n"+after), 0o644))
		return ours, theirs
	}
	require.Equal(t, table, "| lines of code |"+was+"\n", "go test with -update writes README.md anew")
	return ours, theirs
}

func sum(lines map[string]int) (n int) {
	for _, v := range lines {
		n += v
	}
	return n
}

// count returns the lines of code of the files in folders, by part.
func (c Comparison) count(t *testing.T, root string, folders ...string) map[string]int {
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
			part := c.Parts[filepath.ToSlash(name)]
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
