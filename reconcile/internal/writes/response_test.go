package writes

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func TestAnswersAreReadInEveryEncoding(t *testing.T) {
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7",
			Labels: map[string]string{"k": "v"}},
		Spec: corev1.PodSpec{NodeName: "n"},
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{pod, pod}}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Details: &metav1.StatusDetails{Name: "p", UID: "u"}}
	bare := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}
	for media, encode := range map[string]func(*testing.T, runtime.Object) []byte{
		"application/json": encodeJSON, "application/vnd.kubernetes.protobuf": encodeProtobuf,
		"application/cbor": encodeCBOR,
	} {
		t.Run(media, func(t *testing.T) {
			got, err := DecodeMetadata(media, encode(t, &pod))
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, pod.ObjectMeta, got[0].ObjectMeta)
			require.Nil(t, got[0].Details)

			known, err := mediaOf(media + ";charset=utf-8")
			require.NoError(t, err)
			got, err = DecodeMetadata(known, encode(t, list))
			require.NoError(t, err)
			require.Len(t, got, 2)
			require.Equal(t, types.UID("u"), got[1].UID)

			got, err = DecodeMetadata(media, encode(t, status))
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, types.UID("u"), got[0].Details.UID)

			got, err = DecodeMetadata(media, encode(t, bare))
			require.NoError(t, err)
			require.Equal(t, []Metadata{{Details: &metav1.StatusDetails{}}}, got)

			_, err = DecodeMetadata(media, []byte("\x00garbage"))
			require.Error(t, err)
		})
	}
	for _, field := range []string{`"details":{}`, `"details":"text"`, `"items":[{"metadata":{"name":"other"}}]`,
		`"items":7`} {
		got, err := DecodeMetadata("application/json",
			[]byte(`{"kind":"Custom","metadata":{"name":"p","uid":"u"},`+field+`}`))
		require.NoError(t, err, field)
		require.Len(t, got, 1)
		require.Equal(t, types.UID("u"), got[0].UID, "a custom resource may have any field")
	}
	_, err := mediaOf("text/html")
	require.ErrorContains(t, err, "text/html")
	broken := &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, Raw: []byte("\xff")}
	raw, err := broken.Marshal()
	require.NoError(t, err)
	_, err = DecodeMetadata("application/vnd.kubernetes.protobuf", append(slices.Clone(protobufPrefix), raw...))
	require.Error(t, err, "a Status that cannot be read is not one without details")
}
