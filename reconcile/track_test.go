package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/thermostat-go/thermostat/informer"
)

func TestTargets(t *testing.T) {
	for path, want := range map[string]target{
		"/api/v1/pods":                                     {resource: "pods"},
		"/api/v1/nodes/n1":                                 {resource: "nodes", name: "n1"},
		"/api/v1/namespaces":                               {resource: "namespaces"},
		"/api/v1/namespaces/a":                             {resource: "namespaces", name: "a"},
		"/api/v1/namespaces/a/status":                      {resource: "namespaces", name: "a", subresource: "status"},
		"/api/v1/namespaces/a/finalize":                    {resource: "namespaces", name: "a", subresource: "finalize"},
		"/api/v1/namespaces/a/pods":                        {resource: "pods", namespace: "a"},
		"/api/v1/namespaces/a/pods/p":                      {resource: "pods", namespace: "a", name: "p"},
		"/api/v1/namespaces/a/pods/p/status":               {resource: "pods", namespace: "a", name: "p", subresource: "status"},
		"/apis/apps/v1/namespaces/a/replicasets/r/scale":   {group: "apps", resource: "replicasets", namespace: "a", name: "r", subresource: "scale"},
		"/prefix/apis/apps/v1/namespaces/a/replicasets/r/": {host: "/prefix", group: "apps", resource: "replicasets", namespace: "a", name: "r"},
		"/api/clusters/c1/apis/apps/v1beta2/replicasets":   {host: "/api/clusters/c1", group: "apps", resource: "replicasets"},
		"/k8s/clusters/c-1/api/v1/pods":                    {host: "/k8s/clusters/c-1", resource: "pods"},
	} {
		got, ok := targetOf(&http.Request{URL: &url.URL{Path: path}})
		require.True(t, ok, path)
		require.Equal(t, want, got, path)
	}
	for _, path := range []string{"/", "/version", "/api", "/api/v1", "/apis/apps/v1", "/healthz"} {
		_, ok := targetOf(&http.Request{URL: &url.URL{Path: path}})
		require.False(t, ok, path)
	}
}

func encodeJSON(t *testing.T, o runtime.Object) []byte {
	b, err := json.Marshal(o)
	require.NoError(t, err)
	return b
}

func encodeProtobuf(t *testing.T, o runtime.Object) []byte {
	var b bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b))
	return b.Bytes()
}

func encodeCBOR(t *testing.T, o runtime.Object) []byte {
	var b bytes.Buffer
	require.NoError(t, cbor.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b))
	return b.Bytes()
}

func TestAnswersAreReadInEveryEncoding(t *testing.T) {
	pod := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", Labels: map[string]string{"k": "v"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{pod, pod}}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Details: &metav1.StatusDetails{Name: "p", UID: "u"}}
	bare := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}}
	for media, encode := range map[string]func(*testing.T, runtime.Object) []byte{
		"application/json": encodeJSON, "application/vnd.kubernetes.protobuf": encodeProtobuf, "application/cbor": encodeCBOR,
	} {
		t.Run(media, func(t *testing.T) {
			got, err := decodeMetadata(media, encode(t, &pod))
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, pod.ObjectMeta, got[0].ObjectMeta)
			require.Nil(t, got[0].Details)

			got, err = decodeMetadata(media+";charset=utf-8", encode(t, list))
			require.NoError(t, err)
			require.Len(t, got, 2)
			require.Equal(t, types.UID("u"), got[1].UID)

			got, err = decodeMetadata(media, encode(t, status))
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, types.UID("u"), got[0].Details.UID)

			got, err = decodeMetadata(media, encode(t, bare))
			require.NoError(t, err)
			require.Empty(t, got)

			_, err = decodeMetadata(media, []byte("\x00garbage"))
			require.Error(t, err)
		})
	}
	for _, field := range []string{`"details":{}`, `"details":"text"`, `"items":[{"metadata":{"name":"other"}}]`, `"items":7`} {
		got, err := decodeMetadata("application/json", []byte(`{"kind":"Custom","metadata":{"name":"p","uid":"u"},`+field+`}`))
		require.NoError(t, err, field)
		require.Len(t, got, 1)
		require.Equal(t, types.UID("u"), got[0].UID, "a custom resource may have any field")
	}
	_, err := decodeMetadata("text/html", nil)
	require.ErrorContains(t, err, "text/html")
}

// answering is a transport that answers with one object, or fails.
type answering struct {
	code   int
	object runtime.Object
	err    error
}

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	body, err := json.Marshal(a.object)
	return &http.Response{StatusCode: a.code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
}

func TestOnlyWritesThatSucceededAreRecorded(t *testing.T) {
	const pods, pod = "https://server/api/v1/namespaces/a/pods", "https://server/api/v1/namespaces/a/pods/p"
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7"}}
	for name, test := range map[string]struct {
		method, url string
		answer      answering
		want        int
	}{
		"create":              {"POST", pods, answering{201, object, nil}, 1},
		"update":              {"PUT", pod, answering{200, object, nil}, 1},
		"patch":               {"PATCH", pod, answering{200, object, nil}, 1},
		"status":              {"PUT", pod + "/status", answering{200, object, nil}, 1},
		"dry run":             {"POST", pods + "?dryRun=All", answering{201, object, nil}, 0},
		"get":                 {"GET", pod, answering{200, object, nil}, 0},
		"binding":             {"POST", pod + "/binding", answering{201, object, nil}, 0},
		"proxied":             {"POST", pod + "/proxy/some/path", answering{201, object, nil}, 0},
		"conflict":            {"PUT", pod, answering{409, &metav1.Status{}, nil}, 0},
		"no answer":           {"POST", pods, answering{err: errors.New("connection reset")}, 0},
		"of another resource": {"POST", "https://server/api/v1/namespaces/a/secrets", answering{201, object, nil}, 0},
		"without a UID":       {"POST", pods, answering{201, &corev1.Pod{}, nil}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(func(Key) {})
			c := l.cacheOf(still{}, func(Key) held { return held{} }, nil)
			c.learner = &learner{}
			informers := &http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods"}}
			c.learner.learn(informers)

			ctx := withRun(t.Context(), &run{l, Key{Namespace: "a", Name: "owner"}})
			req, err := http.NewRequestWithContext(ctx, test.method, test.url, nil)
			require.NoError(t, err)
			resp, err := TrackWrites(test.answer).RoundTrip(req)
			require.Equal(t, test.answer.err, err)
			require.EqualValues(t, test.want, l.open.Load())
			if err == nil {
				want, err := json.Marshal(test.answer.object)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, want, got, "the caller still finds the whole answer")
			}
		})
	}
}

// still is an informer that has seen nothing yet.
type still struct{ Informer }

func (still) Name() string            { return "still" }
func (still) ResourceVersion() string { return "1" }
func (still) Health() informer.Health { return informer.Health{State: informer.Live} }
