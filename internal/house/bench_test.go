package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// make bench runs for a quarter of an hour, and no test runs it. So a benchmark that has moved, or that no longer
// reports a figure, would be found when somebody needs its figures.
func TestTheBenchFindsItsBenchmarks(t *testing.T) {
	const bench = "../bench"
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(bench, "rows.go"), nil, 0)
	require.NoError(t, err)
	rows := 0
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		row := stringFields(literal)
		if row["bench"] == "" {
			return true
		}
		rows++
		name := regexp.MustCompile(`^\w+`).FindString(row["bench"])
		source := testsOf(t, filepath.Join(bench, row["home"]))
		require.True(t, strings.Contains(source, "func Benchmark"+name+"(b *testing.B)"),
			"the row %q: Benchmark%s of %q",
			row["workload"], name, row["home"])
		ast.Inspect(literal, func(n ast.Node) bool {
			if of, ok := n.(*ast.CompositeLit); ok && of != literal {
				unit := stringFields(of)["unit"]
				require.True(t, unit == "" || reports(source, unit), "the row %q: nothing reports %s", row["workload"],
					unit)
			}
			return true
		})
		return true
	})
	require.Greater(t, rows, 30)
}

// reports reports whether benchmarks of a source report that unit. The bench reads nanoseconds as seconds.
func reports(source, unit string) bool {
	switch unit {
	case "sec/op", "allocs/op", "B/op":
		return true
	}
	return strings.Contains(source, strconv.Quote(unit)) ||
		strings.Contains(source, strconv.Quote(strings.Replace(unit, "sec", "ns", 1)))
}

// stringFields returns the fields of a struct literal that are strings.
func stringFields(literal *ast.CompositeLit) map[string]string {
	fields := map[string]string{}
	for _, e := range literal.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		name, isName := pair.Key.(*ast.Ident)
		value, isLiteral := pair.Value.(*ast.BasicLit)
		if isName && isLiteral && value.Kind == token.STRING {
			fields[name.Name], _ = strconv.Unquote(value.Value)
		}
	}
	return fields
}

// testsOf returns the text of the tests of a package.
func testsOf(t *testing.T, dir string) (text string) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, name := range files {
		text += read(t, dir, filepath.Base(name))
	}
	return text
}
