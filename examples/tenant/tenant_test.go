package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/tenant/deploy"
	"github.com/thermostat-go/thermostat/examples/tenant/tenanttest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// start runs the operator without listening on the network.
func start(ctx context.Context, cfg *rest.Config) error {
	return run(ctx, cfg, options{platform: tenanttest.Platform, address: "0"})
}

func TestInMemory(t *testing.T) { tenanttest.InMemory(t, start) }

func TestOnACluster(t *testing.T) { tenanttest.OnCluster(t, start) }

// TestTheManifestsAreAccepted applies them all: the Deployment meets the security standard of its namespace.
func TestTheManifestsAreAccepted(t *testing.T) {
	c := cluster.Shared(t)
	tenanttest.Install(t, c)
	for _, name := range []string{"deployment.yaml", "sample.yaml"} {
		documents, err := fs.ReadFile(deploy.Manifests, name)
		require.NoError(t, err)
		objects, err := cluster.Decode(documents)
		require.NoError(t, err)
		for _, o := range objects {
			o.SetName(strings.Replace(o.GetName(), "acme", "sample-"+rand.String(8), 1))
		}
		require.NoError(t, c.Apply(t.Context(), objects...))
	}
}

// TestARightIsMissing: the operator says so before it does anything.
func TestARightIsMissing(t *testing.T) {
	dir := tenanttest.Manifests(t)
	file := filepath.Join(dir, "rbac.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	fewer := strings.Replace(string(text), "resourceNames: [view, edit, admin]", "resourceNames: [view, edit]", 1)
	require.NotEqual(t, string(text), fewer)
	require.NoError(t, os.WriteFile(file, []byte(fewer), 0o600))
	link := reconciletest.NewServer(t, tenanttest.ServerOptions(dir)).LinkAs(tenanttest.Account)
	require.ErrorContains(t, start(t.Context(), link.Config()), `resources: ["clusterroles"]`)
	for _, r := range link.Requests() {
		require.Contains(t, r.String(), "selfsubjectaccessreviews")
	}
}
