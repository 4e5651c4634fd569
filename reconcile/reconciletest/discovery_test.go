package reconciletest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestDiscoveryAsOnARealServer compares what both servers say of each resource that is modelled: a verb or a
// subresource may be missing here, nothing else may differ.
func TestDiscoveryAsOnARealServer(t *testing.T) {
	cluster := testcluster.Shared(t)
	defineCustomResources(t, cluster.Config())
	s := NewServer(t, Options{Resources: customResources()})
	want := discovered(t, cluster.Config(), s)
	got := discovered(t, s.Config(), s)
	require.Contains(t, got, "apps/v1 deployments/scale")
	for name, is := range got {
		real, ok := want[name]
		require.True(t, ok, "the real server has no %s", name)
		require.Subset(t, real.Verbs, is.Verbs, name)
		is.Verbs, real.Verbs, real.StorageVersionHash = nil, nil, ""
		assert.Equal(t, real, is, name)
	}
}

// discovered returns the resources by group, version and name, from the documents of each version: aggregated
// discovery, which newer servers have as well, has other fields.
func discovered(t *testing.T, config *rest.Config, s *Server) map[string]metav1.APIResource {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	all := make(map[string]metav1.APIResource)
	for gvr := range s.resources.all() {
		data, err := client.RESTClient().Get().AbsPath(rootOf(gvr.GroupVersion())).Do(t.Context()).Raw()
		require.NoError(t, err)
		var list metav1.APIResourceList
		require.NoError(t, json.Unmarshal(data, &list))
		for _, r := range list.APIResources {
			all[list.GroupVersion+" "+r.Name] = r
		}
	}
	return all
}

func TestARESTMapperFindsTheResources(t *testing.T) {
	s := NewServer(t, Options{Resources: customResources()})
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(
		memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(s.Config())))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "corpus.example.com", Kind: "Gadget"})
	require.NoError(t, err)
	require.Equal(t, schema.GroupVersionResource{Group: "corpus.example.com", Version: "v1", Resource: "gadgets"},
		mapping.Resource)
	mapping, err = mapper.RESTMapping(schema.GroupKind{Group: "authorization.k8s.io", Kind: "SubjectAccessReview"})
	require.NoError(t, err)
	require.Equal(t, accessReviews, mapping.Resource)
	require.Equal(t, meta.RESTScopeRoot, mapping.Scope)
	_, err = mapper.RESTMapping(schema.GroupKind{Group: "corpus.example.com", Kind: "Nothing"})
	require.ErrorContains(t, err, "no matches for kind")
}
