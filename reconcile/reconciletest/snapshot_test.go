package reconciletest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

// TestASnapshotKeepsWhatHasOneNameOutside is about entries that are named by objects with generated names.
func TestASnapshotKeepsWhatHasOneNameOutside(t *testing.T) {
	s := NewServer(t, Options{})
	core := kubernetes.NewForConfigOrDie(s.Config())
	outside := map[string]map[string]any{}
	for _, address := range []string{"10.0.0.3", "10.0.0.1", "10.0.0.2"} {
		m, err := core.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		outside[aboutAPI("dns.example.com")+m.Name] = map[string]any{"value": address}
	}
	got := map[string]string{}
	for name, lines := range takeSnapshot(s, outside, func(*unstructured.Unstructured) {}) {
		if strings.HasPrefix(name, "dns.example.com") {
			got[name] = strings.Join(lines, "\n")
		}
	}
	require.Equal(t, map[string]string{"dns.example.com /web-(1)": ".value = 10.0.0.1",
		"dns.example.com /web-(2)": ".value = 10.0.0.2", "dns.example.com /web-(3)": ".value = 10.0.0.3"}, got)
}
