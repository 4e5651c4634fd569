package testbed

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

// packages are those whose functions a BEHAVIOURS.md may name, seen from an example's folder. An example's own have no
// prefix.
var packages = map[string]string{"": ".", "reconcile.": "../../reconcile", "debts.": "../../reconcile/internal/debts",
	"objects.": "../../reconcile/objects", "workqueue.": "../../workqueue", "informer.": "../../informer",
	"command.": "../internal/command"}

// CheckBehaviours checks that all that BEHAVIOURS.md names is there: rows, each with code and a test. What the tests
// find is another matter.
func CheckBehaviours(t *testing.T, rows int) {
	t.Helper()
	text, err := os.ReadFile("BEHAVIOURS.md")
	require.NoError(t, err)
	declared := map[string]bool{}
	for prefix, dir := range packages {
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
	require.Equal(t, rows, number)
}

var notCode = regexp.MustCompile(`(?m)^\s*(//.*)?$`)

// Lines counts the lines of code of files, without comments and blanks.
func Lines(t *testing.T, files ...string) string {
	t.Helper()
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
