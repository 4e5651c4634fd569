package reconciletest

import (
	"encoding/json"
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

// TestNamesThatStandForOthers in a snapshot.
func TestNamesThatStandForOthers(t *testing.T) {
	s := NewServer(t, Options{})
	generated := s.generateName("configmaps", "default", "web-")
	for name, test := range map[string]struct {
		object string
		want   string
	}{
		"generated":             {`{"metadata": {"generateName": "web-", "name": "web-x"}}`, "web-*"},
		"generated, used again": {`{"metadata": {"namespace": "default", "name": "` + generated + `"}}`, "web-*"},
		"chosen":                {`{"metadata": {"name": "web-x"}}`, "web-x"},
		"a revision with its number": {`{"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 12,
			"metadata": {"name": "web-4f-12"}}`, "web-4f-<revision>"},
		"a revision without it": {`{"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 12,
			"metadata": {"name": "web-4f-2"}}`, "web-4f-2"},
		"another kind": {`{"apiVersion": "v1", "kind": "Pod", "revision": 12, "metadata": {"name": "web-12"}}`,
			"web-12"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			require.NoError(t, json.Unmarshal([]byte(test.object), &o.Object))
			require.Equal(t, test.want, alikeName(s, "configmaps", o))
		})
	}
	replace := replacer(map[string]string{"web-1": "web-<revision>", "web-12": "web-<revision>"})
	require.Equal(t, "web-<revision>, web-<revision>", replace.Replace("web-12, web-1"), "the longer one first")
}
