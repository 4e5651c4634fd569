package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// usageIn returns the CPU usage of the pods of a namespace, by pod, as a client sees it.
func usageIn(ctx context.Context, client kubernetes.Interface, namespace string) (map[string]string, error) {
	answer, err := client.Discovery().RESTClient().Get().
		AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata   metav1.ObjectMeta
			Containers []struct{ Usage corev1.ResourceList }
		}
	}
	usage := map[string]string{}
	err = json.Unmarshal(answer, &list)
	for _, item := range list.Items {
		usage[item.Metadata.Name] = item.Containers[0].Usage.Cpu().String()
	}
	return usage, err
}

// The usage that a test gives a pod comes back from metrics.k8s.io of the API server, which authorizes the request, and
// again after the node has been killed and started.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Metrics: true})
	ctx, namespace := t.Context(), c.Namespace(t)
	pods := c.Client().CoreV1().Pods(namespace)
	for name, annotations := range map[string]map[string]string{"busy": {"standin/usage": "cpu=250m"}, "silent": nil} {
		_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	mayRead, err := c.ServiceAccount(ctx, namespace, rbacv1.PolicyRule{APIGroups: []string{"metrics.k8s.io"},
		Resources: []string{"pods"}, Verbs: []string{"list"}})
	require.NoError(t, err)
	reader := kubernetes.NewForConfigOrDie(mayRead)
	shows := func(want map[string]string) {
		t.Helper()
		var seen map[string]string
		var err error
		require.True(t, within(time.Minute, func() bool {
			seen, err = usageIn(ctx, reader, namespace)
			return err == nil && len(seen) == len(want) && seen["busy"] == want["busy"]
		}), "%v %v", seen, err)
	}
	shows(map[string]string{"busy": "250m"})
	_, err = pods.Patch(ctx, "busy", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"standin/usage":"cpu=700m"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	shows(map[string]string{"busy": "700m"})
	_, err = usageIn(ctx, reader, "default")
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	require.NoError(t, c.Kill(ctx, cluster.Node))
	_, err = usageIn(ctx, reader, namespace)
	require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
	require.NoError(t, c.Restart(ctx, cluster.Node))
	shows(map[string]string{"busy": "700m"})
}

func TestMetricsNeedANode(t *testing.T) {
	_, err := cluster.Start(t.Context(), cluster.Options{Metrics: true, DisableNode: true, Log: io.Discard})
	require.ErrorContains(t, err, "Options.Metrics")
}

// A handler of the test answers for a group that nothing else serves, to the users who may ask, until the test ends.
func TestAggregate(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	cfg, err := c.ServiceAccount(t.Context(), namespace, rbacv1.PolicyRule{APIGroups: []string{"tests.example.com"},
		Resources: []string{"answers"}, Verbs: []string{"get"}})
	require.NoError(t, err)
	ask := func(name string) ([]byte, error) {
		return kubernetes.NewForConfigOrDie(cfg).Discovery().RESTClient().Get().
			AbsPath("/apis/tests.example.com/v1/namespaces", namespace, name, "all").DoRaw(context.Background())
	}
	t.Run("served", func(t *testing.T) {
		gv := schema.GroupVersion{Group: "tests.example.com", Version: "v1"}
		c.Aggregate(t, gv, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.HasSuffix(r.URL.Path, "/v1") {
				fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[]}`, gv)
				return
			}
			fmt.Fprintf(w, "%q", r.Header.Get("X-Remote-User"))
		}))
		answer, err := ask("answers")
		require.NoError(t, err)
		require.Contains(t, string(answer), "system:serviceaccount:"+namespace+":")
		_, err = ask("secrets")
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	require.True(t, within(time.Minute, func() bool {
		_, err := ask("answers")
		return apierrors.IsNotFound(err)
	}), "the API goes with the test")
}
