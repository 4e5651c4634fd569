package objects_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that uses the helpers links what they import. The types of Kubernetes' own kinds and their apply
// configurations are 17 MB, which only the programs that name them should have.
func TestTheHelpersLinkNoKindsOfTheirOwn(t *testing.T) {
	list := func(path string) []string {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", path).Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	others := list("github.com/thermostat-go/thermostat/informer")
	for _, linked := range list(".") {
		if slices.Contains(others, linked) {
			continue
		}
		for _, tree := range []string{"k8s.io/api/", "k8s.io/client-go/"} {
			require.False(t, strings.HasPrefix(linked, tree), linked)
		}
	}
}
