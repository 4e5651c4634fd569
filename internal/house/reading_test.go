package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms are those of .github/READING.md, each with the folders that its minutes are for.
var rooms = map[string][]string{
	"informer":               {"informer"},
	"informer/internal/wire": {"informer/internal/wire", "informer/internal/wire/intern"},
	"internal/store":         {"internal/store"},
	"internal/lifecycle":     {"internal/lifecycle"},
	"workqueue":              {"workqueue"},
	"reconcile": {"reconcile", "reconcile/internal/keys", "reconcile/internal/writes", "reconcile/internal/debts",
		"reconcile/internal/family", "reconcile/internal/naming", "reconcile/internal/diff", "reconcile/program"},
	"reconcile/status":    {"reconcile/status"},
	"reconcile/objects":   {"reconcile/objects"},
	"reconcile/events":    {"reconcile/events"},
	"reconcile/rights":    {"reconcile/rights"},
	"reconcile/serve":     {"reconcile/serve"},
	"reconcile/metrics":   {"reconcile/metrics"},
	"reconcile/webhook":   {"reconcile/webhook"},
	"reconcile/inspect":   {"reconcile/inspect"},
	"leaderelection":      {"leaderelection", "internal/election"},
	"reconcile/sharding":  {"reconcile/sharding"},
	"examples/replicaset": {"examples/replicaset", "examples/internal/command"},
	"examples/deployment": {"examples/deployment"},
	"examples/autoscaler": {"examples/autoscaler"},
}

// TestTheReadingOrderKnowsHowLongItTakes counts 25 lines of code, or 12 of comment, a minute.
func TestTheReadingOrderKnowsHowLongItTakes(t *testing.T) {
	const page = ".github/READING.md"
	text := read(t, root, page)
	row := regexp.MustCompile(`(?m)^(\| \[([a-z/]+)\]\(.*\| )(\d+) \|$`)
	if *update {
		text = row.ReplaceAllStringFunc(text, func(line string) string {
			parts := row.FindStringSubmatch(line)
			return fmt.Sprintf("%s%.0f |", parts[1], minutes(t, parts[2]))
		})
		require.NoError(t, os.WriteFile(filepath.Join(root, page), []byte(text), 0o644))
	}
	var found []string
	for _, row := range row.FindAllStringSubmatch(text, -1) {
		found = append(found, row[2])
		written, err := strconv.Atoi(row[3])
		require.NoError(t, err)
		require.InEpsilon(t, minutes(t, row[2]), written, 0.15, "%s of %s", row[2], page)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(rooms)), found)
}

// minutes are those that a room takes to read.
func minutes(t *testing.T, room string) (sum float64) {
	for _, folder := range rooms[room] {
		for _, file := range sources(t, folder) {
			code, comments := linesOf(t, file)
			sum += float64(code)/25 + float64(comments)/12
		}
	}
	return sum
}

// guided are the folders whose package doc ends with a reading order.
var guided = []string{"informer", "informer/internal/wire", "informer/internal/wire/intern", "informer/clientgo",
	"internal/store", "internal/lifecycle", "workqueue", "reconcile", "reconcile/status",
	"reconcile/internal/keys", "reconcile/internal/writes", "reconcile/internal/family",
	"reconcile/internal/naming", "reconcile/internal/debts", "internal/world", "reconcile/objects",
	"reconcile/events", "reconcile/rights", "reconcile/serve", "reconcile/metrics", "reconcile/inspect",
	"internal/election", "reconcile/sharding", "reconcile/webhook",
	"reconcile/webhook/webhooktest", "reconcile/plan", "reconcile/reconciletest",
	"reconcile/reconciletest/cluster", "reconcile/reconciletest/cluster/network",
	"reconcile/reconciletest/cluster/processnode", "leaderelection",
	"internal/bench", "examples/internal/command", "examples/internal/testbed"}

// TestReadingOrdersNameEveryFile says that no file is missing from the reading order of its package, which is the last
// section of the package doc, and that no package doc names a file that is gone.
func TestReadingOrdersNameEveryFile(t *testing.T) {
	named := regexp.MustCompile(`\b[a-z][\w/]*\.go\b`)
	for _, folder := range guided {
		doc := packageDoc(t, folder)
		for _, name := range named.FindAllString(doc, -1) {
			_, here := os.Stat(filepath.Join(root, folder, name))
			_, fromRoot := os.Stat(filepath.Join(root, name))
			require.True(t, here == nil || fromRoot == nil, "the package doc of %s names %s", folder, name)
		}
		order := named.FindAllString(doc[max(0, strings.LastIndex(doc, "\n# ")):], -1)
		for _, file := range sources(t, folder) {
			if name := filepath.Base(file); name != "doc.go" {
				require.Contains(t, order, name, "the reading order of %s", folder)
			}
		}
	}
}

// TestDocsNameFunctionsThatExist is about names such as writer.commit, which stand beside a promise.
func TestDocsNameFunctionsThatExist(t *testing.T) {
	dotted := regexp.MustCompile(`(^|[^\w./])(\w+)\.([a-z]\w*)($|[^\w./]|\.\s)`)
	others := []string{"metadata", "go", "internals"} // metadata.finalizers, go.mod, internals.md
	found := 0
	for _, folder := range guided {
		declared := members(t, folder)
		for _, room := range rooms[folder] { // the docs of a package are about its rooms, too
			maps.Copy(declared, members(t, room))
		}
		for _, name := range dotted.FindAllStringSubmatch(packageDoc(t, folder), -1) {
			if name[3] == "go" || slices.Contains(others, name[2]) {
				continue
			}
			found++
			member := name[2] + "." + name[3]
			require.True(t, declared[member], "the package doc of %s names %s", folder, member)
		}
	}
	require.NotZero(t, found)
}

// packageDoc is the text above the package clause, of the one file of a folder that has it, and internals.md below it,
// where there is one.
func packageDoc(t *testing.T, folder string) (doc string) {
	for _, file := range sources(t, folder) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		if parsed.Doc != nil {
			require.Empty(t, doc, "a second package doc in %s", file)
			doc = parsed.Doc.Text()
		}
	}
	require.NotEmpty(t, doc, folder)
	internals, err := os.ReadFile(filepath.Join(root, folder, "internals.md"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
		doc += strings.ReplaceAll(string(internals), "\n## ", "\n# ")
	}
	return doc
}

// members are the methods and fields of the types of a folder, as type.member.
func members(t *testing.T, folder string) map[string]bool {
	found := map[string]bool{}
	for _, file := range sources(t, folder) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					found[receiver(n.Recv.List[0].Type)+"."+n.Name.Name] = true
				}
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, name := range field.Names {
							found[n.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	return found
}

// sources are the Go files of a folder that are no tests.
func sources(t *testing.T, folder string) []string {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
	require.NotEmpty(t, files, folder)
	return files
}

// linesOf counts the lines of a file that are code, and those that are comments and nothing else.
func linesOf(t *testing.T, file string) (code, comments int) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case line == "", line == "//":
		case strings.HasPrefix(line, "//"):
			comments++
		default:
			code++
		}
	}
	return code, comments
}
