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
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

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
		r = io.MultiReader(r, iotest.ErrReader(io.ErrUnexpectedEOF))
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
	c.learner = &writes.Learner{}
	c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods"}})
	return s
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
