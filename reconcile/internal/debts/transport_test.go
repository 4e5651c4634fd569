package debts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
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
			b := newBench(t)
			l := b.Ledger
			pods := listing(l, &still{})
			req, err := http.NewRequestWithContext(b.ctx, test.method, test.url, nil)
			require.NoError(t, err)
			resp, err := writes.Track(test.answer).RoundTrip(req)
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

// bench is the ledger of a controller whose caches see nothing, and a key that makes requests.
type bench struct {
	t *testing.T
	*Ledger
	history
	ctx context.Context
}

// history has the latest record of a write.
type history struct {
	*keys.Run
	latest status.Write
}

func (h *history) Record(w status.Write) { h.latest = w }

// newBench makes one whose informers ask for these.
func newBench(t *testing.T, informers ...string) *bench {
	b := &bench{t: t, Ledger: newLedger(), history: history{Run: &keys.Run{}}}
	b.Returned()
	for _, url := range informers {
		b.follow(&still{}, url)
	}
	return b.run(t.Context())
}

// holding is an informer whose cache has an old state of an object of that UID, whatever it is asked for.
func holding(uid types.UID) *still {
	return &still{version: func(Key) (informer.Version, bool) { return informer.Version{UID: uid}, true }}
}

// run lets the key make requests with a ctx.
func (b *bench) run(ctx context.Context) *bench { return b.by(ctx, b.Debtor(b.key())) }

func (b *bench) by(ctx context.Context, d Debtor) *bench {
	b.ctx = context.WithValue(ctx, writes.WriterKey{}, &writes.Writer{History: &b.history, Debtor: d,
		Paths: writes.NewPaths(b.States)})
	return b
}

// follow adds an informer that makes one request.
func (b *bench) follow(s *still, url string) *still {
	b.t.Helper()
	c := b.Ledger.CacheOf(s)
	if c.Learner == nil {
		c.Learner = &writes.Learner{}
	}
	req, err := http.NewRequestWithContext(writes.WithLearner(b.t.Context(), c.Learner), http.MethodGet, url, nil)
	require.NoError(b.t, err)
	_, err = writes.Track(answering{code: 200, object: &corev1.PodList{}}).RoundTrip(req)
	require.NoError(b.t, err)
	return s
}

// send makes a request of the run, and returns how many debts there are then.
func (b *bench) send(method, url string, body io.Reader, next http.RoundTripper) int64 {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.ctx, method, url, body)
	require.NoError(b.t, err)
	resp, err := writes.Track(next).RoundTrip(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b.t, err)
	}
	return b.Ledger.open.Load()
}

// unknown counts the debts for what may have been written or not.
func (b *bench) unknown() (n int) {
	for _, d := range openDebts(b.Ledger) {
		if !d.ofObject() {
			n++
		}
	}
	return n
}

func podCalled(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// The contents of an answer tell what it is; its kind does not.
func TestAnAnswerIsJudgedByItsContents(t *testing.T) {
	const protobuf = "application/vnd.kubernetes.protobuf"
	object := func(before, after string) []byte {
		const metadata = `"metadata":{"name":"p","namespace":"a","uid":"u","resourceVersion":"7"}`
		return []byte("{" + before + metadata + after + "}")
	}
	version := metav1.ListMeta{ResourceVersion: "9"}
	many := &corev1.PodList{ListMeta: version, Items: []corev1.Pod{*podCalled("p"), *podCalled("q")}}
	many.RemainingItemCount = new(int64)
	for name, test := range map[string]struct {
		method, media string
		body          []byte
		names         []string
	}{
		"an object called List": {
			"POST", "application/json", object(`"kind":"AllowList","apiVersion":"g.io/v1",`, ``), []string{"p"},
		},
		"with items": {
			"POST", "application/json",
			object(`"items":[{"metadata":{"name":"no","uid":"no"}}],`, `,"kind":"PrefixList"`), []string{"p"},
		},
		"an object called Status": {
			"POST", "application/json",
			object(`"apiVersion":"g.io/v1","kind":"Status","details":{"uid":7},`, ``), []string{"p"},
		},
		"fields in capitals": {
			"POST", "application/json", object(``, `,"Metadata":{"name":"no","uid":""}`), []string{"p"},
		},
		"a list of any kind": {
			"DELETE", "application/json",
			[]byte(`{"kind":"Fleet","metadata":{"resourceVersion":"9"},"items":[` +
				`{"metadata":{"name":"p","namespace":"a","uid":"u"}},` +
				`{"metadata":{"name":"q","namespace":"a","uid":"v"}}]}`),
			[]string{"p", "q"},
		},
		"a list of nothing": {
			"DELETE", "application/json", []byte(`{"kind":"Fleet","metadata":{},"items":[]}`), nil,
		},
		"an object, in CBOR": {
			"POST", "application/cbor",
			encodeCBOR(t, podCalled("p", func(p *corev1.Pod) { p.Kind = "PodList" })), []string{"p"},
		},
		"an object, in protobuf": {"POST", protobuf, protobufOf(t, "AllowList", podCalled("p")), []string{"p"}},
		"a list, in protobuf":    {"DELETE", protobuf, protobufOf(t, "Fleet", many), []string{"p", "q"}},
		"no items, in protobuf":  {"DELETE", protobuf, protobufOf(t, "Fleet", &corev1.PodList{ListMeta: version}), nil},
		"what a deletion answers": {
			"DELETE", "application/json",
			encodeJSON(t, successOf(&metav1.StatusDetails{Name: "p", UID: "u"})), []string{"p"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			uids := map[string]types.UID{"p": "u", "q": "v"}
			if bytes.Contains(test.body, []byte("uid-p")) {
				uids = map[string]types.UID{"p": "uid-p", "q": "uid-q"}
			}
			b.follow(&still{version: func(key Key) (informer.Version, bool) {
				// It has all, as they were.
				return informer.Version{UID: uids[key.Name], ResourceVersion: "1"}, uids[key.Name] != ""
			}}, "https://server/api/v1/pods")
			url := "https://server/api/v1/namespaces/a/pods"
			if len(test.names) == 1 {
				url += "/p"
			}
			b.send(test.method, url, nil, bytesOf(200, test.media, test.body))
			var names []string
			for o := range b.Ledger.objects {
				names = append(names, o.key.Name)
			}
			require.ElementsMatch(t, test.names, names)
			require.Zero(t, b.unknown())
		})
	}
}

// successOf is the Status that answers a deletion.
func successOf(details *metav1.StatusDetails) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Details: details,
	}
}

// transport is a function that is one.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func bytesOf(code int, media string, body []byte) transport {
	return func(*http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {media}}
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body))}, nil
	}
}

// Whose answer does not tell what was written is waited for like one without an answer.
func TestAnAnswerThatDoesNotTellWhatWasWrittenIsALostOne(t *testing.T) {
	const pods, pod = "https://server/api/v1/namespaces/a/pods", "https://server/api/v1/namespaces/a/pods/p"
	success := successOf(nil)
	for name, test := range map[string]struct {
		method, url string
		object      runtime.Object
		held        bool
		unknown     int
	}{
		"an object without a name": {"POST", pods, &corev1.Pod{}, false, 1},
		"without a version": {
			"PUT", pod, podCalled("p", func(p *corev1.Pod) { p.ResourceVersion = "" }), false, 1,
		},
		"without a UID":                   {"PUT", pod, podCalled("p", func(p *corev1.Pod) { p.UID = "" }), false, 1},
		"a success":                       {"POST", pods, success, false, 1},
		"the deletion of it knows not of": {"DELETE", pod, success, false, 1},
		"the deletion of what it holds":   {"DELETE", pod, success, true, 1},
		"a deletion of many":              {"DELETE", pods, success, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.follow(&still{version: func(Key) (informer.Version, bool) {
				return informer.Version{UID: "u"}, test.held
			}}, "https://server/api/v1/pods")
			require.EqualValues(t, 1, b.send(test.method, test.url, nil, answering{code: 200, object: test.object}))
			require.Equal(t, test.unknown, b.unknown())
			const secret = "https://server/api/v1/secrets/s"
			debts := b.send(test.method, secret, nil, answering{code: 200, object: test.object})
			require.EqualValues(t, 1, debts, "nobody follows these")
		})
	}
}

// once is a body that cannot be had again, and says that it was closed.
type onceBody struct {
	io.Reader
	closed *bool
}

func (o onceBody) Close() error { *o.closed = true; return nil }

// anyCBOR encodes what a text in JSON says.
func anyCBOR(t *testing.T, text string) []byte {
	var value any
	require.NoError(t, json.Unmarshal([]byte(text), &value))
	body, err := direct.Marshal(value)
	require.NoError(t, err)
	return body
}

// maxBody is how long a body may be that the transport looks into.
const maxBody = 64 << 10

// dryOf is the body of a dry deletion that has so many bytes.
func dryOf(length int) []byte {
	body := []byte(`{"dryRun":["All"],"x":""}`)
	return slices.Insert(body, len(body)-2, bytes.Repeat([]byte("x"), length-len(body))...)
}

// What cannot be read of a body is not judged, and the next transport meets the same error, or reads the body itself.
func TestABodyThatCannotBeReadIsSentAsItCame(t *testing.T) {
	broken, url := errors.New("broken"), "https://server/api/v1/namespaces/a/pods/p"
	begun := func() io.Reader { return strings.NewReader(`{"dryRun":["All"]}`) }
	for name, test := range map[string]struct {
		body  io.Reader
		again func() (io.ReadCloser, error)
		fails error
	}{
		"it breaks off":          {body: io.MultiReader(begun(), &breaksOnce{broken}), fails: broken},
		"it cannot be had again": {body: begun(), again: func() (io.ReadCloser, error) { return nil, broken }},
		"the second one breaks off": {body: begun(), again: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(begun(), &breaksOnce{broken})), nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "https://server/api/v1/pods")
			req, err := http.NewRequestWithContext(b.ctx, "DELETE", url, test.body)
			require.NoError(t, err)
			req.GetBody = test.again
			_, err = writes.Track(transport(func(got *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(got.Body)
				require.Equal(t, test.fails, err)
				require.Equal(t, `{"dryRun":["All"]}`, string(body))
				return answering{code: 200, object: podCalled("p")}.RoundTrip(got)
			})).RoundTrip(req)
			require.NoError(t, err)
			require.EqualValues(t, 1, b.Ledger.open.Load(), "it is not known to be a dry run")
		})
	}
}

// breaksOnce is the rest of a body: an error, and then its end.
type breaksOnce struct{ err error }

func (b *breaksOnce) Read([]byte) (int, error) {
	defer func() { b.err = io.EOF }()
	return 0, b.err
}

// Clients say in the query that a write is a dry run, and of a deletion in its body. Whatever is read of that, the
// server gets it all.
func TestADryRunIsKnownWhereverItIsSaid(t *testing.T) {
	wet := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	options := metav1.DeleteOptions{TypeMeta: wet.TypeMeta, DryRun: []string{metav1.DryRunAll}}
	padded := *options.DeepCopy()
	padded.Preconditions = metav1.NewUIDPreconditions(string(bytes.Repeat([]byte("x"), 1<<20)))
	pod := podCalled("p", func(p *corev1.Pod) { p.Labels = map[string]string{"dryRun": "All"} })
	for name, test := range map[string]struct {
		method, query, media string
		body                 []byte
		debts                int
	}{
		"query": {"PUT", "?dryRun=All", "application/json", encodeJSON(t, pod), 0},
		"query of a create": {
			"POST", "?fieldManager=m&dryRun=All", "application/json", encodeJSON(t, pod), 0,
		},
		"body of an update":            {"PUT", "", "application/json", encodeJSON(t, pod), 1},
		"deletion":                     {"DELETE", "", "application/json", encodeJSON(t, &options), 0},
		"deletion, of unsaid encoding": {"DELETE", "", "", encodeJSON(t, &options), 0},
		"deletion in protobuf": {
			"DELETE", "", "application/vnd.kubernetes.protobuf", protobufOf(t, "DeleteOptions", &options), 0,
		},
		"deletion in CBOR":      {"DELETE", "", "application/cbor", encodeCBOR(t, &options), 0},
		"deletion by the query": {"DELETE", "?dryRun=All", "", nil, 0},
		"a wet deletion":        {"DELETE", "", "application/json", encodeJSON(t, &wet), 1},
		"a wet deletion in protobuf": {
			"DELETE", "", "application/vnd.kubernetes.protobuf", protobufOf(t, "DeleteOptions", &wet), 1,
		},
		"a wet deletion in CBOR":        {"DELETE", "", "application/cbor", encodeCBOR(t, &wet), 1},
		"a body, so the query is void":  {"DELETE", "?dryRun=All", "application/json", encodeJSON(t, &wet), 1},
		"a field that is called so":     {"DELETE", "", "application/json", []byte(`{"DryRun":["All"]}`), 1},
		"none":                          {"DELETE", "", "application/json", []byte(`{"dryRun":[],"All":1}`), 1},
		"none, in CBOR":                 {"DELETE", "", "application/cbor", anyCBOR(t, `{"dryRun":[],"x":"All"}`), 1},
		"not said, in CBOR":             {"DELETE", "", "application/cbor", anyCBOR(t, `{"x":"All"}`), 1},
		"what cannot be decoded":        {"DELETE", "", "application/json", []byte(`{"dryRun":["All",5]}`), 1},
		"as long as is looked at":       {"DELETE", "", "application/json", dryOf(maxBody), 0},
		"longer by a byte":              {"DELETE", "", "application/json", dryOf(maxBody + 1), 1},
		"an encoding that is not known": {"DELETE", "", "application/yaml", []byte(`dryRun: [All]`), 1},
		"too much to be looked at":      {"DELETE", "", "application/json", encodeJSON(t, &padded), 1},
	} {
		for _, again := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", again: ", again), func(t *testing.T) {
				b := newBench(t)
				b.follow(holding("uid-p"), "https://server/api/v1/pods")
				url := "https://server/api/v1/namespaces/a/pods/p" + test.query
				req, err := http.NewRequestWithContext(b.ctx, test.method, url, bytes.NewReader(test.body))
				require.NoError(t, err)
				closed := false
				if !again {
					req.GetBody = nil
					if len(test.body) > 0 {
						req.Body = onceBody{req.Body, &closed}
					}
				}
				before := *req
				req.Header.Set("Content-Type", test.media)
				_, err = writes.Track(transport(func(got *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(got.Body)
					require.NoError(t, err)
					require.True(t, bytes.Equal(test.body, body), "the server gets the whole body")
					require.Equal(t, before.ContentLength, got.ContentLength)
					require.NoError(t, got.Body.Close())
					return answering{code: 200, object: pod}.RoundTrip(got)
				})).RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, !again && len(test.body) > 0, closed)
				require.EqualValues(t, test.debts, b.Ledger.open.Load())
				require.Equal(t, before.Body, req.Body, "the request is the caller's")
			})
		}
	}
	t.Run("a body that breaks", func(t *testing.T) {
		b := newBench(t, "https://server/api/v1/pods")
		broken := io.MultiReader(bytes.NewReader([]byte(`{"dryRun":["All"],`)), iotest.ErrReader(errors.New("broken")))
		var sent error
		next := transport(func(got *http.Request) (*http.Response, error) {
			_, sent = io.ReadAll(got.Body)
			return nil, sent
		})
		b.send("DELETE", "https://server/api/v1/namespaces/a/pods/p", broken, next)
		require.ErrorContains(t, sent, "broken")
		require.EqualValues(t, 1, b.Ledger.open.Load())
	})
}

// What proves that nothing was written leaves no debt.
func TestAnAnswerThatProvesThatNothingWasWrittenLeavesNoDebt(t *testing.T) {
	const pods, pod = "https://server/api/v1/namespaces/a/pods", "https://server/api/v1/namespaces/a/pods/p"
	internal := func(message string) *apierrors.StatusError { return apierrors.NewInternalError(errors.New(message)) }
	const down = `failed calling webhook "v.g.io": failed to call webhook: ` +
		`Post "https://v.ns.svc:443/?timeout=10s": dial tcp 10.0.0.1:443: connect: connection refused`
	const tooMuch = `admission webhook "v" attempted to modify the object, which is not supported for this operation`
	broken := func(message string) *apierrors.StatusError {
		status := metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: message}
		return &apierrors.StatusError{ErrStatus: status}
	}
	noPods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		method, url string
		answer      *apierrors.StatusError
		debts       int
	}{
		"a webhook that is down": {"POST", pods, internal(down), 0},
		"an update, the same":    {"PUT", pod, internal(down), 0},
		"a patch, the same":      {"PATCH", pod, internal(down), 0},
		"a webhook that says no more": {
			"PATCH", pod, internal(`failed calling webhook "v"; no further details available`), 0,
		},
		"a deletion may write twice":    {"DELETE", pod, internal(down), 1},
		"denied with a code of its own": {"POST", pods, broken(`admission webhook "v.g.io" denied the request: no`), 0},
		"quota":                         {"POST", pods, internal("resource quota evaluation timed out"), 0},
		"a webhook that changes too much": {
			"POST", pods, internal(tooMuch), 0,
		},
		"forbidden": {
			"POST", pods, apierrors.NewForbidden(noPods, "p", errors.New("exceeded quota")), 0,
		},
		"conflict":                      {"PUT", pod, apierrors.NewConflict(noPods, "p", nil), 0},
		"there already":                 {"POST", pods, apierrors.NewAlreadyExists(noPods, "p"), 0},
		"too many requests":             {"POST", pods, apierrors.NewTooManyRequests("later", 1), 0},
		"a deletion that is refused":    {"DELETE", pod, apierrors.NewForbidden(noPods, "p", nil), 0},
		"a deletion of many, half-way":  {"DELETE", pods, apierrors.NewForbidden(noPods, "p", nil), 1},
		"a deletion of many, not taken": {"DELETE", pods, apierrors.NewBadRequest("no"), 1},
		"a deletion of many, by nobody": {"DELETE", pods, apierrors.NewUnauthorized("who"), 0},
		"any other trouble":             {"POST", pods, internal("etcdserver: leader changed"), 1},
		"trouble that quotes":           {"POST", pods, internal(`write: failed calling webhook "v": no`), 1},
		"conversion": {
			"POST", pods, internal(`conversion webhook for g.io/v1, Kind=Pod failed: Post "https://c": EOF`), 1,
		},
		"not available":                 {"POST", pods, apierrors.NewServiceUnavailable("not now"), 1},
		"too late":                      {"POST", pods, apierrors.NewTimeoutError("too late", 1), 1},
		"too late, of the server's own": {"POST", pods, apierrors.NewServerTimeout(noPods, "create", 1), 1},
		"a webhook on a path":           {"POST", pods, internal(`failed calling webhook "`), 0},
		"a webhook's name that says so": {"POST", pods, internal(`some webhook "denied the request"`), 1},
		"a webhook whose name is unclosed": {
			"POST", pods, broken(`admission webhook "v denied the request`), 1,
		},
	} {
		for media, encode := range map[string]func(*metav1.Status) []byte{
			"application/json":                    func(s *metav1.Status) []byte { return encodeJSON(t, s) },
			"application/cbor":                    func(s *metav1.Status) []byte { return encodeCBOR(t, s) },
			"application/vnd.kubernetes.protobuf": func(s *metav1.Status) []byte { return encodeProtobuf(t, s) },
		} {
			t.Run(name+", "+media, func(t *testing.T) {
				status := test.answer.ErrStatus
				status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				body := encode(&status)
				b := newBench(t, "https://server/api/v1/pods")
				var got []byte
				req, err := http.NewRequestWithContext(b.ctx, test.method, test.url, nil)
				require.NoError(t, err)
				resp, err := writes.Track(bytesOf(int(status.Code), media, body)).RoundTrip(req)
				require.NoError(t, err)
				got, err = io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, body, got, "the caller finds the whole answer")
				require.EqualValues(t, test.debts, b.Ledger.open.Load())
			})
		}
	}
	t.Run("no Status", func(t *testing.T) {
		b := newBench(t, "https://server/api/v1/pods")
		text, err := json.Marshal("Internal error occurred: failed calling webhook \"v\": no")
		require.NoError(t, err)
		require.EqualValues(t, 1, b.send("POST", pods, nil, bytesOf(500, "application/json", text)))
		require.EqualValues(t, 2, b.send("POST", pods, nil, bytesOf(502, "text/html", []byte("<html>"))))
		other := fmt.Appendf(nil, `{"kind":"Status","apiVersion":"g.io/v1","message":%s}`, text)
		require.EqualValues(t, 3, b.send("POST", pods, nil, bytesOf(500, "application/json", other)))
	})
}

// heldBack is the error of a transport that has not sent a request.
type heldBack struct{ sent bool }

func (heldBack) Error() string   { return "held back" }
func (h heldBack) NotSent() bool { return !h.sent }

// A request that has not been sent leaves no debt.
func TestARequestThatWasNotSentLeavesNoDebt(t *testing.T) {
	const pods = "https://server/api/v1/namespaces/a/pods"
	b := newBench(t, pods)
	require.Zero(t, b.send("POST", pods, nil, answering{err: fmt.Errorf("refused: %w", heldBack{})}))
	require.EqualValues(t, 1, b.send("POST", pods, nil, answering{err: heldBack{sent: true}}))

	ctx, cancel := context.WithCancel(t.Context())
	b = newBench(t, pods).run(ctx)
	cancel()
	called := false
	closed := false
	next := transport(func(*http.Request) (*http.Response, error) {
		called = true
		return nil, errors.New("the connection broke")
	})
	require.Zero(t, b.send("POST", pods, onceBody{bytes.NewReader(nil), &closed}, next))
	require.False(t, called, "it would be sent for nobody")
	require.True(t, closed)
}

// A write that an elector refuses costs nothing, whichever of the two transports is the outer one.
func TestAWriteThatIsFencedOffLeavesNoDebt(t *testing.T) {
	const pods = "https://server/api/v1/namespaces/a/pods"
	elector, err := leaderelection.New(leaderelection.Config{
		REST: &rest.Config{Host: "https://server"}, Namespace: "a", Name: "lock",
	})
	require.NoError(t, err)
	never := transport(func(*http.Request) (*http.Response, error) {
		t.Error("sent by nobody who leads")
		return nil, errors.New("sent")
	})
	for name, outer := range map[string]http.RoundTripper{
		"fence inside": writes.Track(elector.Fence(never)), "fence outside": elector.Fence(writes.Track(never)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pods)
			req, err := http.NewRequestWithContext(b.ctx, "POST", pods, nil)
			require.NoError(t, err)
			_, err = outer.RoundTrip(req)
			require.ErrorIs(t, err, leaderelection.ErrNotLeading)
			require.Zero(t, b.Ledger.open.Load())
		})
	}
}

// protobufOf encodes an object as one of that kind.
func protobufOf(t testing.TB, kind string, o interface{ Marshal() ([]byte, error) }) []byte {
	raw, err := o.Marshal()
	require.NoError(t, err)
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}).Marshal()
	require.NoError(t, err)
	return append([]byte("k8s\x00"), envelope...)
}
