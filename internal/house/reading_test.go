package house

import (
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

// rooms are those of the README's reading order, each with the folders that its minutes are for.
var rooms = map[string][]string{
	"informer":               {"informer"},
	"informer/internal/wire": {"informer/internal/wire", "informer/internal/wire/intern"},
	"internal/store":         {"internal/store"},
	"workqueue":              {"workqueue"},
	"reconcile":              {"reconcile"},
	"reconcile/objects":      {"reconcile/objects"},
	"leaderelection":         {"leaderelection"},
	"examples/replicaset":    {"examples/replicaset"},
}

// TestTheReadmeKnowsHowLongReadingTakes counts lines of code, without comments and blanks, at 25 a minute.
func TestTheReadmeKnowsHowLongReadingTakes(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	found := map[string]int{}
	row := regexp.MustCompile(`(?m)^\| \[([a-z/]+)\]\(.*\| (\d+) \|$`)
	for _, row := range row.FindAllStringSubmatch(string(readme), -1) {
		minutes, err := strconv.Atoi(row[2])
		require.NoError(t, err)
		found[row[1]] = minutes
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(rooms)), slices.Collect(maps.Keys(found)))
	for room, folders := range rooms {
		lines := 0
		for _, folder := range folders {
			for _, file := range sources(t, folder) {
				lines += codeLines(t, file)
			}
		}
		require.InEpsilon(t, float64(lines)/25, found[room], 0.15, "%s has %d lines of code", room, lines)
	}
}

// TestDocsNameEveryFile says that no file is missing from the reading order of its package.
func TestDocsNameEveryFile(t *testing.T) {
	for _, folder := range []string{"informer", "informer/internal/wire", "informer/clientgo", "workqueue", "reconcile",
		"reconcile/objects", "reconcile/reconciletest", "reconcile/reconciletest/cluster", "leaderelection"} {
		text, err := os.ReadFile(filepath.Join(root, folder, "doc.go"))
		require.NoError(t, err)
		for _, file := range sources(t, folder) {
			if name := filepath.Base(file); name != "doc.go" {
				require.Regexp(t, `\b`+regexp.QuoteMeta(name), string(text), "%s/doc.go", folder)
			}
		}
	}
}

// sources are the Go files of a folder that are no tests.
func sources(t *testing.T, folder string) []string {
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
	require.NotEmpty(t, files, folder)
	return files
}

func codeLines(t *testing.T, file string) (n int) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}
