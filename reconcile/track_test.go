package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
)

func TestAddressesAreReadByACollection(t *testing.T) {
	for path, want := range map[string]target{
		"/api/v1/pods":                {resource: "pods"},
		"/api/v1/nodes/n1":            {resource: "nodes", name: "n1"},
		"/api/v1/namespaces":          {resource: "namespaces"},
		"/api/v1/namespaces/a":        {resource: "namespaces", name: "a"},
		"/api/v1/namespaces/a/status": {resource: "namespaces", name: "a", subresource: "status"},
		"/api/v1/namespaces/a/finalize": {resource: "namespaces", name: "a",
			subresource: "finalize"},
		"/api/v1/namespaces/a/pods":   {resource: "pods", namespace: "a"},
		"/api/v1/namespaces/a/pods/p": {resource: "pods", namespace: "a", name: "p"},
		"/api/v1/namespaces/a/pods/p/status": {resource: "pods", namespace: "a", name: "p",
			subresource: "status"},
		"/api/v1/namespaces/a/pods/p/proxy/a/b": {resource: "pods", namespace: "a", name: "p",
			subresource: "proxy"},
		"/apis/apps/v1/namespaces/a/replicasets/r/scale": {group: "apps", resource: "replicasets", namespace: "a",
			name: "r", subresource: "scale"},
		"/prefix/apis/apps/v1/namespaces/a/replicasets/r/": {host: "/prefix", group: "apps", resource: "replicasets",
			namespace: "a", name: "r"},
		"/clusters/c-1/apis/g.io/stable/things": {host: "/clusters/c-1", group: "g.io", resource: "things"},
		"/k8s/clusters/c-1/api/v1/pods":         {host: "/k8s/clusters/c-1", resource: "pods"},
	} {
		at := addressOf(&url.URL{Path: path})
		require.Equal(t, want, guessTarget(at), path)
		root := want.host + "/api"
		if want.group != "" {
			root += "s/" + want.group
		}
		c, _, ok := collectionOf(root + "/v2beta9/" + want.resource)
		require.True(t, ok)
		got, ok := c.targetOf(at)
		require.True(t, ok, path)
		require.Equal(t, want, got, path)
		for _, other := range []string{
			root + "/v1/others", root + "x/v1/" + want.resource, "/elsewhere" + root + "/v1/" + want.resource,
		} {
			c, _, _ := collectionOf(other)
			_, ok := c.targetOf(at)
			require.False(t, ok, "%s is not of %s", path, other)
		}
	}
	for _, path := range []string{
		"/", "/version", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/api/v1/nodes/n", "/api/v1/namespaces/a",
		"/api/v1/namespaces/a/pods/p", "/apis/apps/v1/deployments/d",
	} {
		_, _, ok := collectionOf(addressOf(&url.URL{Host: "server", Path: path}))
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
			got, err := decodeMetadata(media, encode(t, &pod))
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, pod.ObjectMeta, got[0].ObjectMeta)
			require.Nil(t, got[0].Details)

			known, err := mediaOf(media + ";charset=utf-8")
			require.NoError(t, err)
			got, err = decodeMetadata(known, encode(t, list))
			require.NoError(t, err)
			require.Len(t, got, 2)
			require.Equal(t, types.UID("u"), got[1].UID)

			got, err = decodeMetadata(media, encode(t, status))
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, types.UID("u"), got[0].Details.UID)

			got, err = decodeMetadata(media, encode(t, bare))
			require.NoError(t, err)
			require.Equal(t, []metadata{{Details: &metav1.StatusDetails{}}}, got)

			_, err = decodeMetadata(media, []byte("\x00garbage"))
			require.Error(t, err)
		})
	}
	for _, field := range []string{`"details":{}`, `"details":"text"`, `"items":[{"metadata":{"name":"other"}}]`,
		`"items":7`} {
		got, err := decodeMetadata("application/json",
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
	_, err = decodeMetadata("application/vnd.kubernetes.protobuf", append(slices.Clone(protobufPrefix), raw...))
	require.Error(t, err, "a Status that cannot be read is not one without details")
}

// answering is a transport that answers with one object, or fails.
type answering struct {
	code   int
	object runtime.Object
	err    error
	media  string // of the answer, if not JSON
	cut    bool   // the connection breaks before the end of the answer
}

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	body, err := json.Marshal(a.object)
	var r io.Reader = bytes.NewReader(body)
	if a.cut {
		r = io.MultiReader(r, failingReader{io.ErrUnexpectedEOF})
	}
	media := cmp.Or(a.media, "application/json")
	return &http.Response{StatusCode: a.code, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(r)}, err
}

func TestOnlyWritesThatSucceededAreRecorded(t *testing.T) {
	const pods, pod = "https://server/api/v1/namespaces/a/pods", "https://server/api/v1/namespaces/a/pods/p"
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7"}}
	for name, test := range map[string]struct {
		method, url string
		answer      answering
		want        int // debts
		relists     int
	}{
		"create":    {"POST", pods, answering{code: 201, object: object}, 1, 0},
		"update":    {"PUT", pod, answering{code: 200, object: object}, 1, 0},
		"patch":     {"PATCH", pod, answering{code: 200, object: object}, 1, 0},
		"status":    {"PUT", pod + "/status", answering{code: 200, object: object}, 1, 0},
		"dry run":   {"POST", pods + "?dryRun=All", answering{code: 201, object: object}, 0, 0},
		"get":       {"GET", pod, answering{code: 200, object: object}, 0, 0},
		"binding":   {"POST", pod + "/binding", answering{code: 201, object: object}, 0, 0},
		"proxied":   {"POST", pod + "/proxy/some/path", answering{code: 201, object: object}, 0, 0},
		"conflict":  {"PUT", pod, answering{code: 409, object: &metav1.Status{}}, 0, 0},
		"no answer": {"POST", pods, answering{err: errors.New("connection reset")}, 1, 1},
		"no connection": {"POST", pods, answering{err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, 0,
			0},
		"too late":        {"PUT", pod, answering{code: 504, object: &metav1.Status{}}, 1, 1},
		"a broken server": {"DELETE", pod, answering{code: 500, object: &metav1.Status{}}, 1, 1},
		"half an answer":  {"PUT", pod, answering{code: 200, object: object, cut: true}, 1, 1},
		"not understood":  {"PUT", pod, answering{code: 200, object: object, media: "text/plain"}, 1, 1},
		"unknown, elsewhere": {"POST", "https://server/api/v1/namespaces/a/secrets",
			answering{code: 500, object: &metav1.Status{}}, 0, 0},
		"unknown, a dry run": {"POST", pods + "?dryRun=All", answering{code: 500, object: &metav1.Status{}}, 0, 0},
		"of another resource": {"POST", "https://server/api/v1/namespaces/a/secrets",
			answering{code: 201, object: object}, 0, 0},
		"without a name": {"POST", pods, answering{code: 201, object: &corev1.Pod{}}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, noting(&journal{}), Options{})
			l := c.ledger
			pods := listing(l, &still{})
			w := newWorker(c, t.Context(), t.Context(), nil)
			w.turn.Began = time.Now()
			ctx := &run{Run: keys.Run{Key: Key{Namespace: "a", Name: "owner"}, Turn: &w.turn}, worker: w}
			req, err := http.NewRequestWithContext(ctx, test.method, test.url, nil)
			require.NoError(t, err)
			resp, err := TrackWrites(test.answer).RoundTrip(req)
			require.Equal(t, test.answer.err, err)
			require.EqualValues(t, test.want, l.open.Load())
			l.relister.scan()
			require.Equal(t, test.relists, pods.relists)
			if err == nil {
				want, err := json.Marshal(test.answer.object)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				if test.answer.cut {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, want, got, "the caller still finds the whole answer")
			}
		})
	}
}

// still is an informer that has seen nothing yet, and does not move by itself.
type still struct {
	resourceVersion string // of the cache; empty: 1
	listed          int
	begun           int // the number of the latest list, if that is not listed
	relists         int // that were asked for
	doubt           error
	version         func(Key) (informer.Version, bool)
}

func (*still) Name() string                      { return "still" }
func (*still) Run(context.Context) error         { return nil }
func (*still) WaitForSync(context.Context) error { return nil }
func (*still) Keys() []Key                       { return nil }
func (*still) Len() int                          { return 0 }
func (s *still) ResourceVersion(string) string   { return cmp.Or(s.resourceVersion, "1") }
func (s *still) Health() informer.Health         { return s.HealthIn("") }
func (s *still) HealthIn(string) informer.Health {
	return informer.Health{State: informer.Live, Lists: max(s.begun, s.listed), Listed: s.listed}
}

func (s *still) Version(key Key) (informer.Version, bool) {
	if s.version == nil {
		return informer.Version{}, false
	}
	return s.version(key)
}

func (*still) Fresh(string) error { return nil }
func (*still) Invalid(Key) error  { return nil }

func (s *still) Relist(_ string, doubt error) int {
	s.relists++
	s.doubt = doubt
	return s.listed + 1
}

// listing lets a ledger depend on an informer that lists all pods of https://server.
func listing(l *ledger, s *still) *still {
	c := l.cacheOf(s)
	c.learner = &learner{}
	c.learner.learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods"}})
	return s
}
