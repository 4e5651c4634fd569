package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// template is the module that users begin with.
const template = "examples/template"

// TestTheTemplateIsCopied does what its README says, with a proxy in a folder: gonew copies it, and the tests of the
// copy pass, in memory and on the control plane.
func TestTheTemplateIsCopied(t *testing.T) {
	require.LessOrEqual(t, len(moduleFiles(t, template)), 15, "nobody reads more")
	require.NotContains(t, read(t, root, template+"/go.mod"), "replace ", "a copy would have it, too")
	tools, err := filepath.Abs(filepath.Join(root, "internal/tools/go.mod"))
	require.NoError(t, err)
	tool := func(name string) string {
		return strings.TrimSpace(run(t, root, nil, "go", "tool", "-modfile="+tools, "-n", name))
	}
	version, environment := publish(t)

	began := time.Now()
	folder := t.TempDir()
	run(t, folder, environment, tool("gonew"), module+"/"+template+"@"+version, "example.com/operator")
	operator := filepath.Join(folder, "operator")
	run(t, operator, environment, "go", "mod", "tidy")
	run(t, operator, environment, "go", "vet", "./...")
	run(t, operator, environment, tool("controller-gen"), "object", "crd", "paths=./api/...", "output:crd:dir=deploy")
	for _, generated := range []string{"deploy/example.com_greetings.yaml", "api/v1/zz_generated.deepcopy.go"} {
		require.Equal(t, read(t, root, template+"/"+generated), read(t, operator, generated),
			"make generate has not been run since the types were changed")
	}
	out := run(t, operator, environment, "go", "test", "-count=1", "-timeout", "10m", "-v", "./...")
	t.Logf("%s from the copy to tests that have passed", time.Since(began).Round(time.Second))
	for _, test := range []string{"TestCheck", "TestOnAControlPlane"} {
		require.Contains(t, out, "--- PASS: "+test+" ")
	}
	require.NoError(t, filepath.WalkDir(operator, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		text, err := os.ReadFile(name)
		require.NotContains(t, string(text), template, name)
		return err
	}))
}
