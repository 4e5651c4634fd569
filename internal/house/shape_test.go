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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	columns  = 120 // a tab counts 4
	longest  = 60  // lines of a function
	greatest = 25  // methods of a type
)

// larger are the functions and types that are above the limits, with their lines or methods: they may not grow.
var larger = map[string]int{
	// Tables: a check of each field or state, one after the other.
	"reconcile/reconciletest, lines of validateMetric":    116,
	"reconcile/reconciletest, lines of validateJobStatus": 137,
	"reconcile/reconciletest, lines of validateClaim":     61,

	// The steps of a request in their order.
	"reconcile/reconciletest, lines of Server.listObjects": 75,
	"reconcile/reconciletest, lines of Server.patched":     75,
	"reconcile/reconciletest, lines of Server.replace":     64,

	"reconcile/reconciletest, methods of Server":   51,
	"reconcile/reconciletest, methods of Resource": 26,
}

// owned are the go statements outside of internal/lifecycle, by file, each of which something else waits for.
var owned = map[string]int{
	"reconcile/reconciletest/cluster/progress.go":   1, // ends with the output of the command
	"reconcile/reconciletest/cluster/supervisor.go": 1, // ends with the output of the supervisor
}

// TestShape is about the library: short functions, small types, and no goroutine that nothing waits for.
func TestShape(t *testing.T) {
	found, statements := map[string]int{}, map[string]int{}
	for _, folder := range libraryFolders(t) {
		for _, file := range sources(t, folder) {
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, file, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if _, ok := n.(*ast.GoStmt); ok {
					statements[folder+"/"+filepath.Base(file)]++
				}
				return true
			})
			for _, declaration := range parsed.Decls {
				f, ok := declaration.(*ast.FuncDecl)
				if !ok {
					continue
				}
				name := f.Name.Name
				if f.Recv != nil {
					t := receiver(f.Recv.List[0].Type)
					found[folder+", methods of "+t]++
					name = t + "." + name
				}
				found[folder+", lines of "+name] = set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			}
		}
	}
	for name, n := range found {
		limit := longest
		if strings.Contains(name, ", methods of ") {
			limit = greatest
		}
		if allowed, ok := larger[name]; ok {
			require.Greater(t, n, limit, "%s needs no exception", name)
			limit = allowed
		}
		require.LessOrEqual(t, n, limit, name)
	}
	for name := range larger {
		require.Contains(t, found, name, "an exception for what is gone")
	}
	require.NotZero(t, statements["internal/lifecycle/group.go"])
	for file, n := range statements {
		if !strings.HasPrefix(file, "internal/lifecycle/") {
			require.Equal(t, owned[file], n, "bare go statements in %s", file)
		}
	}
}

// libraryFolders are the packages that users import, and all of ours that they bring in.
func libraryFolders(t *testing.T) (folders []string) {
	args := []string{"list", "-deps"}
	for _, p := range packages {
		args = append(args, "./"+p+"/...")
	}
	for _, path := range strings.Fields(run(t, root, nil, "go", args...)) {
		if folder, ok := strings.CutPrefix(path, module+"/"); ok {
			folders = append(folders, folder)
		}
	}
	require.Contains(t, folders, "internal/store")
	return folders
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

// TestColumns looks at all text that is written by hand. Tables, images and links cannot be wrapped.
func TestColumns(t *testing.T) {
	unwrapped := regexp.MustCompile(`^(\||!\[|\S*\]\(|.*https?://)`)
	files := map[string]int{}
	for _, name := range strings.Split(run(t, root, nil, "git", "ls-files", "-z"), "\x00") {
		kind := filepath.Ext(name)
		if kind == "" || strings.HasPrefix(name, ".ci/") {
			kind = filepath.Base(name)
		}
		switch kind {
		case ".go", ".md", ".sh", ".yaml", "Makefile", "Dockerfile", "run":
		default:
			continue
		}
		if strings.Contains(name, "/testdata/") && kind == ".yaml" {
			continue // as tools write them
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		require.NoError(t, err)
		if generated.Match(text) {
			continue
		}
		files[kind]++
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			line = strings.TrimRight(line, "\n")
			if kind == ".go" || !unwrapped.MatchString(line) {
				assert.LessOrEqual(t, width(line), columns, "%s:%d", name, n)
			}
		}
	}
	for _, kind := range []string{".go", ".md", ".yaml", "Makefile", "Dockerfile", "run"} {
		require.NotZero(t, files[kind], kind)
	}
}

// generated matches the Go files and the manifests of controller-gen.
var generated = regexp.MustCompile(
	`(?m)^// Code generated by .* DO NOT EDIT\.$|^    controller-gen\.kubebuilder\.io/version:`)

// width counts the columns of a line in which tabs go to the next multiple of 4.
func width(line string) (n int) {
	for _, r := range line {
		if n++; r == '\t' {
			n = (n + 3) / 4 * 4
		}
	}
	return n
}
