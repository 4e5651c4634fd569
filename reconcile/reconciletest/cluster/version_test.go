package cluster

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	for _, test := range []struct{ option, variable, want string }{
		{"", "", "v1.37.1"},
		{"1.36", "", "v1.36.4"},
		{"v1.36", "", "v1.36.4"},
		{"1.9", "", "v1.9.4"},
		{"", "1.36", "v1.36.4"},
		{"1.9", "1.36", "v1.9.4"},
	} {
		t.Setenv(versionVariable, test.variable)
		r, err := releaseOf(small(), test.option)
		require.NoError(t, err, "%+v", test)
		require.Equal(t, test.want, r.version, "%+v", test)
	}
}

func TestAnUnknownVersionIsRefused(t *testing.T) {
	const have = "name one of these minor versions: 1.37 (v1.37.1), 1.36 (v1.36.4), 1.9 (v1.9.4)"
	for _, version := range []string{"1.99", "1.36.4", "v1.36.1", "1.3", "36", "latest", "vv1.36", " "} {
		t.Setenv(versionVariable, "")
		_, err := releaseOf(small(), version)
		require.ErrorContains(t, err, "Options.Version: there is no Kubernetes \""+version+"\" here; "+have)

		t.Setenv(versionVariable, version)
		_, err = releaseOf(small(), "")
		require.ErrorContains(t, err, "THERMOSTAT_KUBERNETES: there is no Kubernetes \""+version+"\" here; "+have)

		_, err = Start(t.Context(), Options{Version: "1.0", Log: t.Output()})
		require.ErrorContains(t, err, "Options.Version: there is no Kubernetes \"1.0\" here")
	}
}

func TestASourceWithoutKubernetesIsRefused(t *testing.T) {
	source := small()
	source["go.mod.txt"].Data = []byte("require k8s.io/api v1.37.1\n")
	_, err := choose(source, "1.36")
	require.ErrorContains(t, err, "the control plane's go.mod.txt requires no version of k8s.io/kubernetes")
}

func TestTheLinkerSetsTheVersion(t *testing.T) {
	for version, want := range map[string][]string{
		"":    {"gitVersion=v1.37.1 ", "gitMajor=1 ", "gitMinor=37 "},
		"1.9": {"gitVersion=v1.9.4 ", "gitMajor=1 ", "gitMinor=9 "},
	} {
		r, err := choose(small(), version)
		require.NoError(t, err)
		for _, flag := range want {
			require.Contains(t, r.linkerFlags(), "-X k8s.io/component-base/version."+flag)
		}
	}
}

func TestAVersionHasAGoModOfItsOwn(t *testing.T) {
	r, err := choose(small(), "1.36")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, unpack(small(), r, dir))
	var have []string
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			have = append(have, path)
		}
		return err
	}))
	require.Equal(t, []string{"deep/down.go", "go.mod", "go.sum", "main.go"}, have)
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(content), "v1.36.4")
}

// A person goes by the name of a file, choose by its content.
func TestTheVersionsOfTheSources(t *testing.T) {
	source, err := fs.Sub(embedded, "source")
	require.NoError(t, err)
	all, err := releases(source)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 5)
	for i, r := range all {
		require.Equal(t, all[0].minor-i, r.minor, "no minor version is left out")
		if i > 0 {
			require.Equal(t, "kubernetes-1."+strconv.Itoa(r.minor)+".mod", r.mod)
		}
		content, err := fs.ReadFile(source, r.mod+".txt")
		require.NoError(t, err)
		sum, err := fs.ReadFile(source, r.sum+".txt")
		require.NoError(t, err)
		require.Contains(t, string(sum), "k8s.io/kubernetes "+r.version+" h1:")
		patch := strings.TrimPrefix(r.version, "v1.")
		for _, line := range regexp.MustCompile(`k8s\.io/\S+ => .*`).FindAllString(string(content), -1) {
			require.Regexp(t, ` v0\.`+regexp.QuoteMeta(patch)+`$`, line)
		}
	}
}
