package events_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/rights"
)

func schemaKind(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

// TestOnARealServer has no more rights than package rights says are needed, and asks kubectl what it shows.
func TestOnARealServer(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	cfg, err := c.ServiceAccount(t.Context(), namespace, rights.Rule("", "events", "create", "patch"))
	require.NoError(t, err)
	recorder, err := events.NewRecorder(cfg, "tester")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- recorder.Run(ctx) }()

	m, err := c.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "thing"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	about := events.As(m, schemaKind("", "ConfigMap"))
	for i := range 12 {
		recorder.Eventf(about, corev1.EventTypeNormal, "Moved", "step %d", i)
	}
	counted := func() (n int32) {
		list, err := c.Client().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range list.Items {
			n += e.Count
		}
		return n
	}
	written := func(n int32) {
		t.Helper()
		require.Eventually(t, func() bool { return counted() == n }, 2*time.Minute, 20*time.Millisecond)
	}
	written(12)
	recorder.Event(about, corev1.EventTypeNormal, "Moved", "step 12")
	recorder.Event(about, corev1.EventTypeNormal, "Moved", "step 4")
	recorder.Event(about, corev1.EventTypeWarning, "Stuck", "it does not move")
	written(15) // TestTheEnd is about what Run still writes in the second that it has for that
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, int32(15), counted())

	programs, err := cluster.Assets(t.Context())
	require.NoError(t, err)
	kubectl := exec.CommandContext(t.Context(), filepath.Join(programs, "kubectl"), "--kubeconfig", c.Kubeconfig(),
		"describe", "configmap", "thing", "-n", namespace)
	out, err := kubectl.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^  Warning +Stuck +\S+ +tester +it does not move$`, string(out))
	require.Regexp(t, `(?m)^  Normal +Moved +\S+ \(x2 over \S+\) +tester +step 4$`, string(out))
	require.Regexp(t, `(?m)^  Normal +Moved +\S+ \(x3 over \S+\) +tester +\(combined from similar events\): step 12$`,
		string(out))
}
