package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const firstReading = "examples/loop"

// inAnHour is how many lines the functions have, at most, that the first reading names for an hour.
const inAnHour = 600

// TestTheFirstReadingNamesFunctionsThatExist is about the links of its README such as [`writer.commit`](writer.go): the
// file has a function or type of that name.
func TestTheFirstReadingNamesFunctionsThatExist(t *testing.T) {
	readme := read(t, root, firstReading+"/README.md")
	_, hour, ok := strings.Cut(readme, "\n## One hour in the real code\n")
	require.True(t, ok)
	lines, found := 0, map[string]map[string]int{}
	link := regexp.MustCompile("\\[`([\\w.]+)`\\]\\(([\\w./]+\\.go)\\)")
	for _, named := range link.FindAllStringSubmatch(readme, -1) {
		name, file := named[1], filepath.Join(root, firstReading, named[2])
		if found[file] == nil {
			found[file] = declarations(t, file)
		}
		require.NotZero(t, found[file][name], "%s has no %s", named[2], name)
	}
	inTheHour := map[string]bool{}
	for _, named := range link.FindAllStringSubmatch(hour, -1) {
		require.False(t, inTheHour[named[1]], "%s is named twice", named[1])
		inTheHour[named[1]] = true
		lines += found[filepath.Join(root, firstReading, named[2])][named[1]]
	}
	require.Greater(t, lines, inAnHour/2)
	require.LessOrEqual(t, lines, inAnHour)
}

// TestTheFirstReadingShowsItsOwnCode compares the Go code in its README with the files, without the indentation, and
// looks for the tests and functions that the text names.
func TestTheFirstReadingShowsItsOwnCode(t *testing.T) {
	readme := read(t, root, firstReading+"/README.md")
	files, err := filepath.Glob(filepath.Join(root, firstReading, "*.go"))
	require.NoError(t, err)
	code := ""
	for _, file := range files {
		code += read(t, ".", file)
	}
	blocks := strings.Split(readme, "```go\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		require.Contains(t, code, block)
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(readme, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, code, "func "+name[1]+"(")
	}
	for _, name := range regexp.MustCompile(`\]\((\w+\.(?:go|yaml))\)`).FindAllStringSubmatch(readme, -1) {
		_, err := os.Stat(filepath.Join(root, firstReading, name[1]))
		require.NoError(t, err)
	}
}

// TestTheFirstReadingUsesNeitherUsNorThePeers: its steps are written by hand, on client-go's clients alone.
func TestTheFirstReadingUsesNeitherUsNorThePeers(t *testing.T) {
	for _, file := range sources(t, firstReading) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range parsed.Imports {
			for _, bad := range append(forbidden, module) {
				require.NotContains(t, spec.Path.Value, bad, file)
			}
		}
	}
}

// declarations are the functions, methods and types of a file, each with its lines.
func declarations(t *testing.T, file string) map[string]int {
	set, found := token.NewFileSet(), map[string]int{}
	parsed, err := parser.ParseFile(set, file, nil, 0)
	require.NoError(t, err)
	lines := func(n ast.Node) int { return set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1 }
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			name := n.Name.Name
			if n.Recv != nil {
				name = receiver(n.Recv.List[0].Type) + "." + name
			}
			found[name] = lines(n)
		case *ast.TypeSpec:
			found[n.Name.Name] = lines(n)
		}
		return true
	})
	return found
}
