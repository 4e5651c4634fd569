package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All that BEHAVIOURS.md names is there: 76 lines, each with code and a test. What the tests find is another matter.
func TestBehavioursAreWhereTheTableSays(t *testing.T) {
	text, err := os.ReadFile("BEHAVIOURS.md")
	require.NoError(t, err)
	declared := map[string]bool{} // functions, of the library with the name of their package
	for prefix, dir := range map[string]string{"": ".", "reconcile.": "../../reconcile",
		"objects.":   "../../reconcile/objects",
		"workqueue.": "../../workqueue", "informer.": "../../informer"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					declared[prefix+fn.Name.Name] = true
				}
			}
		}
	}
	isTest := func(name string) bool { return strings.HasPrefix(name[strings.Index(name, ".")+1:], "Test") }
	quoted := regexp.MustCompile("`([^`]+)`")
	number := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(cells[0], "| "))
		if err != nil {
			continue // a heading
		}
		number++
		require.Equal(t, number, n)
		for column, wantTest := range map[int]bool{2: false, 3: true} {
			names := quoted.FindAllStringSubmatch(cells[column], -1)
			require.NotEmpty(t, names, line)
			for _, name := range names {
				require.True(t, declared[name[1]], "%d names %s, which is not there", n, name[1])
				require.Equal(t, wantTest, isTest(name[1]), "%d: %s", n, name[1])
			}
		}
	}
	require.Equal(t, 76, number)
}

// The README's figures about this code are counted here, in the way that it gives.
func TestTheReadmeCountsRight(t *testing.T) {
	notCode := regexp.MustCompile(`(?m)^\s*(//.*)?$`)
	count := func(files ...string) string {
		n := 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				if !notCode.MatchString(strings.TrimSuffix(line, "\n")) {
					n++
				}
			}
		}
		return strconv.Itoa(n)
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, line := range []string{
		"| replicaset.go, scale.go, status.go, report.go | " +
			count("replicaset.go", "scale.go", "status.go", "report.go") + " |",
		"| claim.go | " + count("claim.go") + " |",
		"| victims.go | " + count("victims.go") + " |",
		"| rival.go | " + count("rival.go") + " |",
		"| **all** | " + count("replicaset.go", "scale.go", "status.go", "report.go", "claim.go", "victims.go",
			"rival.go") + " |",
		"has " + count("main.go", "flags.go") + " lines.",
	} {
		require.Contains(t, string(readme), line)
	}
}
