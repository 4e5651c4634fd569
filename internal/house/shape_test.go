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

const (
	columns  = 120 // a tab counts 4
	longest  = 60  // lines of a function
	greatest = 25  // methods of a type
)

// TestShape is about the library: short functions, small types, and no goroutine that nothing waits for.
func TestShape(t *testing.T) {
	goroutines := 0
	for _, folder := range []string{"informer", "informer/clientgo", "informer/internal/wire",
		"informer/internal/wire/intern", "workqueue", "reconcile", "reconcile/objects", "reconcile/metrics",
		"leaderelection", "internal/store", "internal/lifecycle", "internal/kube"} {
		methods := map[string]int{}
		for _, file := range sources(t, folder) {
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, file, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if statement, ok := n.(*ast.GoStmt); ok {
					goroutines++
					require.Equal(t, "internal/lifecycle", folder, "a bare go statement at %s",
						set.Position(statement.Pos()))
				}
				return true
			})
			for _, declaration := range parsed.Decls {
				f, ok := declaration.(*ast.FuncDecl)
				if !ok {
					continue
				}
				lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
				require.LessOrEqual(t, lines, longest, "%s: %s", file, f.Name.Name)
				if f.Recv != nil {
					methods[receiver(f.Recv.List[0].Type)]++
				}
			}
		}
		for name, n := range methods {
			require.LessOrEqual(t, n, greatest, "methods of %s.%s", folder, name)
		}
	}
	require.NotZero(t, goroutines)
}

// receiver is the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	default:
		return t.(*ast.Ident).Name
	}
}

// TestColumns looks at all that is read as text. Tables, images and links cannot be wrapped.
func TestColumns(t *testing.T) {
	unwrapped := regexp.MustCompile(`^(\||!\[|\S*\]\(|.*https?://)`)
	files := 0
	for _, name := range strings.Split(run(t, root, nil, "git", "ls-files", "-z"), "\x00") {
		switch filepath.Ext(name) {
		case ".go", ".md", ".sh":
		default:
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		require.NoError(t, err)
		files++
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			line = strings.TrimRight(line, "\n")
			if filepath.Ext(name) == ".go" || !unwrapped.MatchString(line) {
				require.LessOrEqual(t, width(line), columns, "%s:%d", name, n)
			}
		}
	}
	require.NotZero(t, files)
}

// width counts the columns of a line in which tabs go to the next multiple of 4.
func width(line string) (n int) {
	for _, r := range line {
		if n++; r == '\t' {
			n = (n + 3) / 4 * 4
		}
	}
	return n
}
