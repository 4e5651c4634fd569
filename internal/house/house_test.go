package house

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root   = "../.."
	module = "github.com/thermostat-go/thermostat"
)

// packages are what users import.
var packages = []string{"informer", "workqueue", "reconcile", "reconcile/status", "reconcile/program",
	"reconcile/objects", "reconcile/events", "reconcile/metrics", "reconcile/rights", "reconcile/serve",
	"reconcile/inspect", "reconcile/sharding", "reconcile/webhook", "reconcile/webhook/webhooktest", "reconcile/plan",
	"reconcile/reconciletest", "reconcile/reconciletest/cluster", "reconcile/reconciletest/cluster/network",
	"reconcile/reconciletest/cluster/processnode", "leaderelection"}

// TestTheReadmeShowsTheWholeExample compares its first Go program with examples/hello.
func TestTheReadmeShowsTheWholeExample(t *testing.T) {
	_, block, ok := strings.Cut(read(t, root, "README.md"), "```go\n")
	require.True(t, ok, "the README has no Go program")
	block, _, ok = strings.Cut(block, "```")
	require.True(t, ok)
	require.Equal(t, read(t, root, "examples/hello/main.go"), block)
}

// TestLinksOfTheReadmeLeadSomewhere follows the README's relative links.
func TestLinksOfTheReadmeLeadSomewhere(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	prose := strings.Split(string(readme), "```")
	prose = slices.DeleteFunc(prose, func(part string) bool { return strings.HasPrefix(part, "go\n") })
	links := 0
	for _, rest := range strings.Split(strings.Join(prose, ""), "](")[1:] {
		link, _, _ := strings.Cut(rest, ")")
		if strings.Contains(link, "://") {
			continue
		}
		links++
		_, err := os.Stat(filepath.Join(root, link))
		require.NoError(t, err)
	}
	require.NotZero(t, links)
}

// TestASecondSignalIsNotSwallowed looks at the programs that users copy: what NotifyContext has caught is let go when
// the first signal has come.
func TestASecondSignalIsNotSwallowed(t *testing.T) {
	files := 0
	for _, name := range strings.Split(run(t, root, nil, "git", "ls-files", "-z"), "\x00") {
		example := strings.HasPrefix(name, "examples/") || strings.HasPrefix(filepath.Base(name), "example_") ||
			name == "reconcile/program/program.go"
		if filepath.Ext(name) != ".go" || !example {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		require.NoError(t, err)
		if strings.Contains(string(text), "signal.NotifyContext(") {
			files++
			require.Contains(t, string(text), "context.AfterFunc(ctx, stop)", name)
		}
	}
	require.GreaterOrEqual(t, files, 5)
}

// forbidden is what the library re-thinks, and therefore does not use.
var forbidden = []string{"k8s.io/client-go/tools/cache", "k8s.io/client-go/util/workqueue",
	"k8s.io/client-go/tools/leaderelection"}

func TestTheLibraryImportsNothingThatItRethinks(t *testing.T) {
	files := 0
	for _, p := range packages {
		found, err := filepath.Glob(filepath.Join(root, p, "*.go"))
		require.NoError(t, err)
		for _, file := range found {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, spec := range f.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				require.NoError(t, err)
				for _, bad := range forbidden {
					require.False(t, path == bad || strings.HasPrefix(path, bad+"/"), "%s imports %s", file, path)
				}
			}
		}
	}
	require.Greater(t, files, 25, "the files were not found")
}

func TestNothingThatTheLibraryDependsOnBringsItInEither(t *testing.T) {
	for _, p := range packages {
		deps := broughtInBy(t, p)
		require.NotContains(t, deps, "k8s.io/client-go/tools/cache", p)
		require.NotContains(t, deps, "k8s.io/client-go/tools/leaderelection", p)
	}
}

// TestOnlyProgramsReadKubeconfigFiles keeps clientcmd, and the flags that it brings along, out of controllers that get
// their rest.Config in another way.
func TestOnlyProgramsReadKubeconfigFiles(t *testing.T) {
	for _, p := range packages {
		if p == "reconcile/program" || strings.HasPrefix(p, "reconcile/reconciletest/cluster") {
			continue
		}
		deps := broughtInBy(t, p)
		require.NotContains(t, deps, "k8s.io/client-go/tools/clientcmd", p)
		require.NotContains(t, deps, "github.com/spf13/pflag", p)
	}
}

// TestImportsRunOneWay holds the arrows of the house: reconcile on top of informer and workqueue, the others on
// nothing, examples on top of all.
func TestImportsRunOneWay(t *testing.T) {
	allowed := map[string][]string{
		"informer": {}, "workqueue": {}, "leaderelection": {},
		"reconcile/status":  {"informer", "workqueue"},
		"reconcile":         {"informer", "workqueue", "reconcile/status"},
		"reconcile/objects": {"informer"},
		"reconcile/events":  {"informer"},
		"reconcile/program": {},
		"reconcile/rights":  {},
		"reconcile/metrics": {"informer", "workqueue", "reconcile/status", "reconcile", "leaderelection",
			"reconcile/sharding"},
		"reconcile/serve":   {"informer", "workqueue", "reconcile/status", "reconcile"},
		"reconcile/inspect": {"informer", "workqueue", "reconcile/status", "reconcile", "reconcile/serve"},
		"reconcile/webhook": {"informer"},

		"reconcile/sharding": {"informer"},

		"reconcile/webhook/webhooktest": {"informer"},
		"reconcile/plan":                {"reconcile/reconciletest"},
		// It serves controllers of every library, and is no client of itself.
		"reconcile/reconciletest":         {},
		"reconcile/reconciletest/cluster": {},

		"reconcile/reconciletest/cluster/network": {"reconcile/reconciletest/cluster"},
		"reconcile/reconciletest/cluster/processnode": {"reconcile/reconciletest/cluster",
			"reconcile/reconciletest/cluster/network"},
	}
	for _, p := range packages {
		for _, dep := range broughtInBy(t, p) {
			ours, ok := strings.CutPrefix(dep, module+"/")
			ours, _, _ = strings.Cut(ours, "/internal/") // what is internal to a package belongs to it
			if !ok || ours == p || strings.HasPrefix(ours, "internal/") {
				continue
			}
			require.Contains(t, allowed[p], ours, "%s imports %s", p, ours)
		}
		prometheus := strings.Contains(strings.Join(broughtInBy(t, p), "\n"), "github.com/prometheus/client_golang")
		require.Equal(t, p == "reconcile/metrics", prometheus, "package %s and the Prometheus client", p)
	}
}

// TestNothingBringsTheRealServerIn keeps CEL and the code of the real API server out of the binaries and the go.sum of
// users: packages reconcile/reconciletest/cel and builtin, which need them, are modules of their own.
func TestNothingBringsTheRealServerIn(t *testing.T) {
	heavy := []string{"github.com/google/cel-go", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver",
		"k8s.io/kubernetes"}
	for _, p := range packages {
		for _, dep := range broughtInBy(t, p) {
			for _, bad := range heavy {
				require.False(t, dep == bad || strings.HasPrefix(dep, bad+"/"), "%s depends on %s", p, dep)
			}
		}
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	for _, bad := range heavy {
		require.NotContains(t, string(sums), bad+" ")
	}
}

func goEnv(t *testing.T, names ...string) map[string]string {
	var env map[string]string
	require.NoError(t, json.Unmarshal([]byte(run(t, root, nil, "go", append([]string{"env", "-json"}, names...)...)),
		&env))
	return env
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), failed.Stderr)
	}
	require.NoError(t, err)
	return string(out)
}
