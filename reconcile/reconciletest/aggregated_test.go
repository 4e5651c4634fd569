package reconciletest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const meterRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: meter}
rules: [{apiGroups: [metrics.k8s.io], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: meter}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: meter}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: meter}]
`

// podMeter serves metrics.k8s.io as far as the test asks for it, and says who has asked for what.
func podMeter(w http.ResponseWriter, req *http.Request) {
	var answer any = map[string]any{"asked": req.RequestURI, "by": req.Header.Get("X-Remote-User")}
	if req.URL.Path == "/apis/metrics.k8s.io/v1beta1" {
		answer = &metav1.APIResourceList{GroupVersion: "metrics.k8s.io/v1beta1", APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func TestAnAggregatedAPIIsServedByAHandler(t *testing.T) {
	roles := filepath.Join(t.TempDir(), "roles.yaml")
	require.NoError(t, os.WriteFile(roles, []byte(meterRole), 0o600))
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Roles: []string{roles},
			Aggregated: map[schema.GroupVersion]http.Handler{
				{Group: "metrics.k8s.io", Version: "v1beta1"}: http.HandlerFunc(podMeter)}})
		get := func(l *reconciletest.Link, path string) (string, error) {
			body, err := kubernetes.NewForConfigOrDie(l.Config()).Discovery().RESTClient().Get().AbsPath(path).
				Param("labelSelector", "app=web").MaxRetries(0).Do(t.Context()).Raw()
			return string(body), err
		}
		const path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
		meter, other := server.LinkAs("meter"), server.LinkAs("other")

		body, err := get(meter, path)
		require.NoError(t, err)
		require.JSONEq(t, `{"asked": "`+path+`?labelSelector=app%3Dweb", "by": "meter"}`, body)
		_, err = get(other, path)
		require.True(t, apierrors.IsForbidden(err), "%v", err)

		_, lists, err := kubernetes.NewForConfigOrDie(other.Config()).Discovery().ServerGroupsAndResources()
		require.NoError(t, err)
		found := false
		for _, list := range lists {
			found = found || list.GroupVersion == "metrics.k8s.io/v1beta1" && list.APIResources[0].Kind == "PodMetrics"
		}
		require.True(t, found, "discovery does not show the group")

		meter.Inject(func(r reconciletest.Request) reconciletest.Fault {
			require.Equal(t, "list pods default/", r.String())
			return func(context.Context, func() (*http.Response, error)) (*http.Response, error) {
				return nil, context.DeadlineExceeded
			}
		})
		_, err = get(meter, path)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAnAggregatedAPIThatCannotBeServedIsRefused(t *testing.T) {
	for want, gv := range map[string]schema.GroupVersion{
		`Options.Aggregated: "v1" needs a group and a version`:     {Version: "v1"},
		"Options.Aggregated: metrics.k8s.io/v1 needs a handler":    {Group: "metrics.k8s.io", Version: "v1"},
		"Options.Aggregated: the server has the group apps itself": {Group: "apps", Version: "v2"},
	} {
		var handler http.Handler
		if gv.Group == "apps" {
			handler = http.NotFoundHandler()
		}
		_, err := reconciletest.Start(reconciletest.Options{
			Aggregated: map[schema.GroupVersion]http.Handler{gv: handler}})
		require.EqualError(t, err, want)
	}
}
