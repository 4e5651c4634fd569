package house

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listed is what go list says about a package: all that it brings in, and the module that it belongs to.
type listed struct {
	ImportPath string
	Deps       []string
	Module     *struct{ Path, Dir string }
}

// graphs are what go list said about the packages that users import and all that these bring in, by the system that it
// was asked about, "" for the one that the tests run on. It takes a second each time, and the tests ask for each
// package.
var graphs = map[string]map[string]listed{}

func graph(t *testing.T, system string) map[string]listed {
	if graphs[system] == nil {
		var environment []string
		if system != "" {
			environment = []string{"GOOS=" + system}
		}
		args := []string{"list", "-deps", "-json=ImportPath,Deps,Module"}
		for _, p := range packages {
			args = append(args, "./"+p)
		}
		found := map[string]listed{}
		decoder := json.NewDecoder(strings.NewReader(run(t, root, environment, "go", args...)))
		for {
			var l listed
			err := decoder.Decode(&l)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			found[l.ImportPath] = l
		}
		graphs[system] = found
	}
	return graphs[system]
}

// broughtInBy are the packages that a package of ours depends on, and itself.
func broughtInBy(t *testing.T, p string) []string {
	l, ok := graph(t, "")[module+"/"+p]
	require.True(t, ok, p)
	require.Greater(t, len(l.Deps), 50, p)
	return append([]string{l.ImportPath}, l.Deps...)
}
