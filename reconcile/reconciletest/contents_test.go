package reconciletest

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// backup is a type as a user has it for a custom resource.
type backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Database string `json:"database"`
		Copies   int32  `json:"copies"`
	} `json:"spec"`
}

func (b *backup) DeepCopyObject() runtime.Object { c := *b; return &c }

func TestWhatIsStoredCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		link := s.Link()
		link.Close() // which the test does not need
		create(t, clients, "b")
		made := create(t, clients, "a")
		client, err := dynamic.NewForConfig(s.Config())
		require.NoError(t, err)
		resource := customResources()[3]
		_, err = client.Resource(resource.GroupVersionResource).Namespace("default").Create(t.Context(),
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "corpus.example.com/v1", "kind": "Backup", "metadata": map[string]any{"name": "n"},
				"spec": map[string]any{"database": "x"},
			}}, metav1.CreateOptions{})
		require.NoError(t, err)

		got, ok := Get[*corev1.ConfigMap](s, "configmaps", "default", "a")
		require.True(t, ok)
		require.Equal(t, made.UID, got.UID)
		require.Equal(t, "ConfigMap", got.Kind)
		got.Data["x"] = "changed"
		again, _ := Get[*corev1.ConfigMap](s, "configmaps", "default", "a")
		require.Equal(t, "1", again.Data["x"], "what was returned is a copy")
		tree, ok := Get[*unstructured.Unstructured](s, "configmaps", "default", "a")
		require.True(t, ok)
		require.Equal(t, "v1", tree.GetAPIVersion())
		require.Equal(t, map[string]any{"x": "1"}, tree.Object["data"])
		_, ok = Get[*corev1.ConfigMap](s, "configmaps", "elsewhere", "a")
		require.False(t, ok)

		all := List[*corev1.ConfigMap](s, "configmaps", "")
		require.Len(t, all, 2)
		require.Equal(t, "a", all[0].Name)
		require.Empty(t, List[*corev1.ConfigMap](s, "configmaps", "elsewhere"))
		require.Equal(t, "default", List[*corev1.Namespace](s, "namespaces", "")[0].Name)

		b, ok := Get[*backup](s, "backups.corpus.example.com", "default", "n")
		require.True(t, ok)
		require.Equal(t, "x", b.Spec.Database)
		require.Equal(t, int32(1), b.Spec.Copies, "a default of the schema")
		require.Len(t, List[*backup](s, "backups", "default"), 1)

		require.Contains(t, failure(t, s, func() { Get[*backup](s, "backup", "default", "n") }),
			`no resource "backup"; it has `)
		require.Contains(t, failure(t, s, func() { Get[*corev1.Secret](s, "configmaps", "default", "a") }),
			"configmaps is of kind ConfigMap, and a *v1.Secret is not")
	})
}

func TestTheServerEndsWithItsTest(t *testing.T) {
	var s *Server
	var url string
	t.Run("the test", func(t *testing.T) {
		s = NewServer(t, Options{})
		url = s.Link().Listen().Host
		create(t, clientset(t, s.Config()), "a")
	})
	_, err := clientset(t, s.Config()).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "connection refused")
	config := s.Config()
	config.Host, config.Transport = url, nil
	_, err = clientset(t, config).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	require.Error(t, err)
	require.False(t, apierrors.ReasonForError(err) != metav1.StatusReasonUnknown, "it is no answer: %v", err)
}
