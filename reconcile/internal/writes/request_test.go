package writes

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressesAreReadByACollection(t *testing.T) {
	for path, want := range map[string]Target{
		"/api/v1/pods":                {Resource: "pods"},
		"/api/v1/nodes/n1":            {Resource: "nodes", Name: "n1"},
		"/api/v1/namespaces":          {Resource: "namespaces"},
		"/api/v1/namespaces/a":        {Resource: "namespaces", Name: "a"},
		"/api/v1/namespaces/a/status": {Resource: "namespaces", Name: "a", Subresource: "status"},
		"/api/v1/namespaces/a/finalize": {Resource: "namespaces", Name: "a",
			Subresource: "finalize"},
		"/api/v1/namespaces/a/pods":   {Resource: "pods", Namespace: "a"},
		"/api/v1/namespaces/a/pods/p": {Resource: "pods", Namespace: "a", Name: "p"},
		"/api/v1/namespaces/a/pods/p/status": {Resource: "pods", Namespace: "a", Name: "p",
			Subresource: "status"},
		"/api/v1/namespaces/a/pods/p/proxy/a/b": {Resource: "pods", Namespace: "a", Name: "p",
			Subresource: "proxy"},
		"/apis/apps/v1/namespaces/a/replicasets/r/scale": {Group: "apps", Resource: "replicasets", Namespace: "a",
			Name: "r", Subresource: "scale"},
		"/prefix/apis/apps/v1/namespaces/a/replicasets/r/": {Host: "/prefix", Group: "apps", Resource: "replicasets",
			Namespace: "a", Name: "r"},
		"/clusters/c-1/apis/g.io/stable/things": {Host: "/clusters/c-1", Group: "g.io", Resource: "things"},
		"/k8s/clusters/c-1/api/v1/pods":         {Host: "/k8s/clusters/c-1", Resource: "pods"},
	} {
		at := addressOf(&url.URL{Path: path})
		require.Equal(t, want, GuessTarget(at), path)
		root := want.Host + "/api"
		if want.Group != "" {
			root += "s/" + want.Group
		}
		c, _, ok := collectionOf(root + "/v2beta9/" + want.Resource)
		require.True(t, ok)
		got, ok := c.targetOf(at)
		require.True(t, ok, path)
		require.Equal(t, want, got, path)
		for _, other := range []string{
			root + "/v1/others", root + "x/v1/" + want.Resource, "/elsewhere" + root + "/v1/" + want.Resource,
		} {
			c, _, _ := collectionOf(other)
			_, ok := c.targetOf(at)
			require.False(t, ok, "%s is not of %s", path, other)
		}
	}
	for _, path := range []string{
		"/", "/version", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/api/v1/nodes/n", "/api/v1/namespaces/a",
		"/api/v1/namespaces/a/pods/p", "/apis/apps/v1/deployments/d",
	} {
		_, _, ok := collectionOf(addressOf(&url.URL{Host: "server", Path: path}))
		require.False(t, ok, path)
	}
}
