package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatNamesTheCluster(t *testing.T) {
	for _, test := range []struct {
		server, text string
		want         bool
	}{
		{"https://10.0.0.1:6443", "https://10.0.0.1:6443/api", true},
		{"https://10.0.0.1:6443", "10.0.0.1:6443", true},
		{"https://10.0.0.1:6443", "10.0.0.1:64430", false},
		{"https://10.0.0.1:6443", "110.0.0.1:6443", false},
		{"https://10.0.0.1:6443", "10.0.0.1", false},
		{"https://api.example.com", "x=API.example.com", true},
		{"https://api.example.com", "https://api.example.com/x", true},
		{"https://api.example.com", "https://api.example.com:443/x", true},
		{"https://api.example.com:443", "api.example.com", true},
		{"https://api.example.com", "api.example.com:9090", false},
		{"https://api.example.com", "my-api.example.com", false},
		{"https://api.example.com", "api.example.com.au", false},
		{"https://[fd00::1]:6443", "https://[fd00::1]:6443/api", true},
		{"http://10.0.0.1:80", "http://10.0.0.1:80", true},
		{"http://10.0.0.1:80", "http://10.0.0.1/api", true},
		{"http://10.0.0.1", "10.0.0.1:80", true},
		{"http://10.0.0.1", "10.0.0.1:443", false},
		{"https://10.0.0.1:80", "http://10.0.0.1", false},
		{"", "anything", false},
	} {
		require.Equal(t, test.want, names(test.text, test.server), "%s in %s", test.server, test.text)
	}
}

// TestTheEnvironmentOfAProgram has a cluster at the usual port, which every text with its host names, and one at
// another.
func TestTheEnvironmentOfAProgram(t *testing.T) {
	env := func(server string, all ...string) []string {
		kept := environment(all, server, "/config", "/home")
		return slices.DeleteFunc(kept, func(one string) bool {
			return strings.HasSuffix(one, "=/config") || strings.HasSuffix(one, "=/home")
		})
	}
	require.Equal(t, []string{"https_proxy=http://proxy:80", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"},
		env("https://10.0.0.1", "https_proxy=http://proxy:80"))
	require.Equal(t, []string{"NO_PROXY=.svc,127.0.0.1", "no_proxy=.svc,127.0.0.1"}, env("https://a", "NO_PROXY=.svc"))
	require.Equal(t, []string{"HTTPS_PROXY=http://proxy:80", "NO_PROXY=.svc,10.0.0.1,127.0.0.1",
		"no_proxy=x,127.0.0.1"},
		env("https://10.0.0.1", "NO_PROXY=.svc,10.0.0.1", "no_proxy=x", "HTTPS_PROXY=http://proxy:80", "API=10.0.0.1"))
	kept := []string{"POD_IP=10.0.0.1", "DB_PORT=6443", "OTHER_HOST=10.0.0.2", "OTHER_PORT=6443"}
	require.Equal(t, kept, env("https://10.0.0.1:6443", append(kept, "API_HOST=10.0.0.1", "API_PORT=6443",
		"K8S_ADDR=10.0.0.1", "k8s_port=6443", "HOST=10.0.0.1", "PORT=6443")...))
}

func TestArgumentsThatNameTheClusterInParts(t *testing.T) {
	const server = "https://10.0.0.1:6443"
	for _, args := range []string{"--host=10.0.0.1 --port=6443", "--port 6443 --host 10.0.0.1", "10.0.0.1 6443"} {
		require.ErrorContains(t, judge(strings.Fields(args), server), "leads past the fork", args)
	}
	for _, args := range []string{"--host=10.0.0.1", "--port=6443", "--host=10.0.0.2 --port=6443",
		"--kubeconfig {kubeconfig}"} {
		require.NoError(t, judge(strings.Fields(args), server), args)
	}
}
