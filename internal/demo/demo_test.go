package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dependencies returns the packages that programs are compiled of, those of the standard library without a dot.
func dependencies(t *testing.T, programs ...string) []string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, programs...)...).Output()
	require.NoError(t, err)
	return strings.Fields(string(output))
}

// TestFirstDemoCompilesLittle keeps the first demo on a machine short: everything that it compiles makes a newcomer
// wait.
func TestFirstDemoCompilesLittle(t *testing.T) {
	for _, path := range dependencies(t, ".") {
		first, _, _ := strings.Cut(path, "/")
		require.False(t, strings.Contains(first, ".") && path+"/" != module+"internal/demo/", "%s in the first program",
			path)
		require.NotEqual(t, "net", path, "the first program compiles no network")
	}
	controllers := []string{"../../examples/autoscaler", "../../examples/deployment", "../../examples/replicaset"}
	compiled := dependencies(t, append(controllers, "./memory")...)
	for _, path := range compiled {
		for _, large := range []string{"k8s.io/kubernetes", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver",
			"k8s.io/kubectl", "github.com/google/cel-go", "go.etcd.io", "sigs.k8s.io/controller-runtime",
			"google.golang.org/grpc", "go.opentelemetry.io"} {
			require.False(t, path == large || strings.HasPrefix(path, large+"/"), "%s in the demo", path)
		}
	}
	for _, path := range dependencies(t, controllers...) {
		group, ok := strings.CutPrefix(path, "k8s.io/client-go/kubernetes")
		require.False(t, ok && group != "/scheme",
			"%s in a controller; informer.NewResource makes a client for one resource", path)
	}
	require.NotContains(t, dependencies(t, "./memory"), "k8s.io/client-go/kubernetes",
		"the demo needs four groups of client-go's clientset")
	require.LessOrEqual(t, len(compiled), 640, "packages that the first demo compiles")
}

func TestFollow(t *testing.T) {
	compiled, said := follow(strings.NewReader("a/b\nc\n# d\nd/e.go:1:2: wrong\n\tmore\n"), time.Now())
	require.Equal(t, 2, compiled)
	require.Equal(t, "# d\nd/e.go:1:2: wrong\n\tmore\n", said)
}

func TestFlagsThatDoNotFit(t *testing.T) {
	require.ErrorContains(t, run(false, false, true, nil), "-builtin needs -real")
	require.ErrorContains(t, run(false, false, false, []string{"x"}), `unexpected argument "x"`)
}
