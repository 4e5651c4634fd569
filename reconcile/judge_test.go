package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// bench is a controller whose caches see nothing, and a run of it that makes requests.
type bench struct {
	t *testing.T
	*Controller
	ctx context.Context
}

// newBench makes one whose informers ask for these.
func newBench(t *testing.T, informers ...string) *bench {
	b := &bench{t: t, Controller: newController(t, noting(&journal{}), Options{})}
	for _, url := range informers {
		b.follow(&still{}, url)
	}
	return b.run(t.Context())
}

// holding is an informer whose cache has an old state of an object of that UID, whatever it is asked for.
func holding(uid types.UID) *still {
	return &still{version: func(Key) (informer.Version, bool) { return informer.Version{UID: uid}, true }}
}

// run begins a run.
func (b *bench) run(ctx context.Context) *bench {
	w := newWorker(b.Controller, ctx, ctx, nil)
	w.turn.Began = time.Now()
	b.ctx = &run{Run: keys.Run{Key: Key{Namespace: "a", Name: "owner"}, Turn: &w.turn}, worker: w}
	return b
}

// follow adds an informer that makes one request.
func (b *bench) follow(s *still, url string) *still {
	b.t.Helper()
	c := b.ledger.cacheOf(s)
	if c.learner == nil {
		c.learner = &writes.Learner{}
	}
	req, err := http.NewRequestWithContext(writes.WithLearner(b.t.Context(), c.learner), http.MethodGet, url, nil)
	require.NoError(b.t, err)
	_, err = TrackWrites(answering{code: 200, object: &corev1.PodList{}}).RoundTrip(req)
	require.NoError(b.t, err)
	return s
}

// send makes a request of the run, and returns how many debts there are then.
func (b *bench) send(method, url string, body io.Reader, next http.RoundTripper) int64 {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.ctx, method, url, body)
	require.NoError(b.t, err)
	resp, err := TrackWrites(next).RoundTrip(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b.t, err)
	}
	return b.ledger.open.Load()
}

// unknown counts the debts for what may have been written or not.
func (b *bench) unknown() (n int) {
	for _, d := range openDebts(b.ledger) {
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

// A write is known for one to what an informer follows by the informer's own requests: whatever the version is called,
// and the server.
func TestAWriteIsKnownByWhatAnInformerAsksFor(t *testing.T) {
	for name, test := range map[string]struct {
		asked, written string
		known          bool
	}{
		"version of a date": {
			"/apis/g.io/v1api20201101/things", "/apis/g.io/v1api20201101/namespaces/a/things", true,
		},
		"version zero": {
			"/apis/g.io/v0alpha1/namespaces/a/things", "/apis/g.io/v0alpha1/namespaces/a/things", true,
		},
		"version without a number": {
			"/apis/g.io/stable/things?watch=1", "/apis/g.io/stable/namespaces/a/things/t", true,
		},
		"another version of it": {"/apis/g.io/stable/things", "/apis/g.io/v1/namespaces/a/things/t", true},
		"its status": {
			"/apis/g.io/stable/things", "/apis/g.io/v1/namespaces/a/things/t/status", true,
		},
		"in no namespace":          {"/apis/g.io/stable/things", "/apis/g.io/stable/things/t", true},
		"another group":            {"/apis/g.io/stable/things", "/apis/h.io/stable/namespaces/a/things", false},
		"a group of a longer name": {"/apis/g.io/stable/things", "/apis/g.io.x/stable/namespaces/a/things", false},
		"another resource":         {"/apis/g.io/stable/things", "/apis/g.io/stable/namespaces/a/others", false},
		"namespace of a telling name": {
			"/apis/g.io/v1/namespaces/api/things", "/apis/g.io/v1/namespaces/api/things/v1", true,
		},
		"namespace of a resource": {"/api/v1/namespaces/pods/pods", "/api/v1/namespaces/pods/pods", true},
		"namespaces":              {"/api/v1/namespaces", "/api/v1/namespaces/a", true},
		"a namespace's end":       {"/api/v1/namespaces", "/api/v1/namespaces/a/finalize", true},
		"what is in a namespace":  {"/api/v1/namespaces", "/api/v1/namespaces/a/pods", false},
		"behind a prefix": {
			"/k8s/clusters/c-1/apis/g.io/stable/things", "/k8s/clusters/c-1/apis/g.io/stable/namespaces/a/things", true,
		},
		"another prefix": {
			"/clusters/c-1/apis/g.io/stable/things", "/clusters/c-2/apis/g.io/stable/namespaces/a/things", false,
		},
		"no prefix": {
			"/k8s/clusters/c-1/apis/g.io/stable/things", "/apis/g.io/stable/namespaces/a/things", false,
		},
		"behind a prefix like a path": {
			"/api/v1/apis/g.io/stable/things", "/api/v1/apis/g.io/stable/namespaces/a/things", true,
		},
		"behind a prefix that is apis": {"/apis/x/v1/api/v1/pods", "/apis/x/v1/api/v1/namespaces/a/pods", true},
		"the default port": {
			"https://server:443/api/v1/pods", "https://server/api/v1/namespaces/a/pods", true,
		},
		"the default port, in writes": {
			"https://server/api/v1/pods", "https://server:443/api/v1/namespaces/a/pods", true,
		},
		"the default port of http": {
			"http://server:80/api/v1/pods", "http://server/api/v1/namespaces/a/pods", true,
		},
		"the default port of the other": {
			"https://server:80/api/v1/pods", "https://server/api/v1/namespaces/a/pods", false,
		},
		"another port": {
			"https://server:6443/api/v1/pods", "https://server/api/v1/namespaces/a/pods", false,
		},
		"capitals": {
			"https://Server.Example/api/v1/pods", "https://server.example/api/v1/namespaces/a/pods", true,
		},
		"an address": {
			"https://[::1]:443/api/v1/pods", "https://[::1]/api/v1/namespaces/a/pods", true,
		},
		"another server": {
			"https://server/api/v1/pods", "https://elsewhere/api/v1/namespaces/a/pods", false,
		},
		"slashes that mean nothing": {
			"https://server//api/v1/pods/", "https://server/api/v1//namespaces/a/pods", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := func(s string) string {
				if s[0] == '/' {
					s = "https://server" + s
				}
				return s
			}
			pod := podCalled("p", func(p *corev1.Pod) { p.Namespace = namespaceIn(test.asked) })
			b := newBench(t, server(test.asked))
			debts := b.send("PUT", server(test.written), nil, answering{code: 200, object: pod})
			require.Equal(t, test.known, debts == 1, "%d debts", debts)
		})
	}
}

// namespaceIn returns the namespace that a collection's path has, or another one.
func namespaceIn(path string) string {
	for _, namespace := range []string{"api", "pods"} {
		if bytes.Contains([]byte(path), []byte("/namespaces/"+namespace+"/")) {
			return namespace
		}
	}
	return "a"
}

// A controller with a custom resource of a version that is not called v1 or the like runs, beside one with a core
// resource.
func TestAnInformerOfAnyVersionIsSeenByTrackWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		ctx := klog.NewContext(t.Context(), log.logger())
		c := newController(t, noting(&journal{}), Options{})
		for _, path := range []string{"/api/v1/configmaps", "/apis/g.io/v1api20201101/configmaps", "/v1/things"} {
			opts := informer.Options[*corev1.ConfigMap]{Name: path}
			maps, err := informer.New[*corev1.ConfigMap](asking{newMapAPI(), path}, opts)
			require.NoError(t, err)
			DependsOn(c, maps)
		}
		stop := startIn(ctx, t, ManagerOptions{Controllers: []*Controller{c}})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		lines := fmt.Sprint(log.take())
		named := `"controller"="test" "informer"="/v1/things" "address"="server/v1/things"`
		require.Contains(t, lines, named, "what cannot be tracked")
		require.NotContains(t, lines, "configmaps")
	})
}

// logger notes what is logged.
func (j *journal) logger() klog.Logger {
	return funcr.New(func(_, args string) { j.note("%s", args) }, funcr.Options{})
}

// asking is a fake API whose requests pass TrackWrites.
type asking struct {
	*mapAPI
	path string
}

func (a asking) List(ctx context.Context, opts metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return a.mapAPI.List(a.ask(ctx), opts)
}

func (a asking) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return a.mapAPI.Watch(a.ask(ctx), opts)
}

func (a asking) ask(ctx context.Context) context.Context {
	req := (&http.Request{URL: &url.URL{Scheme: "https", Host: "server", Path: a.path}}).WithContext(ctx)
	_, _ = TrackWrites(answering{code: 200, object: &corev1.ConfigMapList{}}).RoundTrip(req)
	return ctx
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
			for o := range b.ledger.objects {
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

// protobufOf encodes an object as one of that kind.
func protobufOf(t testing.TB, kind string, o interface{ Marshal() ([]byte, error) }) []byte {
	raw, err := o.Marshal()
	require.NoError(t, err)
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}).Marshal()
	require.NoError(t, err)
	return append([]byte("k8s\x00"), envelope...)
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

// Of a field that its answer is not asked for a write may or may not be seen: it is waited for. Names and namespaces
// are known. Labels are, too, but those from before a change are not.
func TestAWriteIsWaitedForUnlessTheSelectorsRuleItOut(t *testing.T) {
	labelled := podCalled("p", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} })
	deleted := successOf(&metav1.StatusDetails{Name: "p", UID: "uid-p"})
	for name, test := range map[string]struct {
		query  string
		method string
		object runtime.Object
		held   types.UID
		debts  int
	}{
		"nothing is selected by":       {"", "PUT", labelled, "", 1},
		"a field of the spec":          {"fieldSelector=spec.nodeName%3Dn", "PUT", labelled, "", 1},
		"an empty field":               {"fieldSelector=spec.nodeName%3D", "PUT", labelled, "", 1},
		"a type":                       {"fieldSelector=type%3DOpaque", "PUT", labelled, "", 1},
		"a field that is not so":       {"fieldSelector=status.phase!%3DFailed", "PUT", labelled, "", 1},
		"a field, and other labels":    {"fieldSelector=type%3DOpaque&labelSelector=app%3Dy", "PUT", labelled, "", 1},
		"the same of a new object":     {"fieldSelector=type%3DOpaque&labelSelector=app%3Dy", "POST", labelled, "", 0},
		"a field, and another name":    {"fieldSelector=type%3DOpaque,metadata.name%3Dq", "PUT", labelled, "", 0},
		"not this name":                {"fieldSelector=metadata.name!%3Dp", "PUT", labelled, "", 0},
		"not another name":             {"fieldSelector=metadata.name!%3Dq", "PUT", labelled, "", 1},
		"another namespace":            {"fieldSelector=metadata.namespace%3Db", "PUT", labelled, "", 0},
		"its labels":                   {"labelSelector=app%3Dx", "PUT", labelled, "", 1},
		"other labels":                 {"labelSelector=app%3Dy", "PUT", labelled, "", 1},
		"other labels of a new object": {"labelSelector=app%3Dy", "POST", labelled, "", 0},
		"labels that it had":           {"labelSelector=app%3Dy", "PUT", labelled, "uid-p", 1},
		"labels that its namesake had": {"labelSelector=app%3Dy", "PUT", labelled, "before", 1},
		"labels that no answer tells":  {"labelSelector=app%3Dy", "DELETE", deleted, "uid-p", 1},
		"a field that no answer tells": {"fieldSelector=type%3DOpaque", "DELETE", deleted, "uid-p", 1},
		"a name, and a field like that": {
			"fieldSelector=type%3DOpaque,metadata.name%3Dp", "DELETE", deleted, "uid-p", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.follow(&still{version: func(Key) (informer.Version, bool) {
				return informer.Version{UID: test.held, ResourceVersion: "1"}, test.held != ""
			}}, "https://server/api/v1/pods?"+test.query)
			url, code := "https://server/api/v1/namespaces/a/pods", 201
			if test.method != http.MethodPost {
				url, code = url+"/p", 200
			}
			require.EqualValues(t, test.debts, b.send(test.method, url, nil, answering{code: code,
				object: test.object}))
		})
	}
}

// An object that is made inside of the selector, and taken out of it or deleted by the same run, is about to be in the
// cache: the run after it must not find it there.
func TestWhatIsMadeAndTakenOutOfTheSelectorIsWaitedForTwice(t *testing.T) {
	const pods = "https://server/api/v1/namespaces/a/pods"
	in := podCalled("p", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} })
	for name, second := range map[string]struct {
		method string
		object runtime.Object
	}{
		"relabelled": {"PATCH", podCalled("p", func(p *corev1.Pod) { p.ResourceVersion = "8" })},
		"deleted":    {"DELETE", successOf(&metav1.StatusDetails{Name: "p", UID: "uid-p"})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				var held informer.Version
				s := b.follow(&still{version: func(Key) (informer.Version, bool) {
					return held, held.UID != ""
				}}, pods+"?labelSelector=app%3Dx")
				require.EqualValues(t, 1, b.send("POST", pods, nil, answering{code: 201, object: in}))
				debts := b.send(second.method, pods+"/p", nil, answering{code: 200, object: second.object})
				require.EqualValues(t, 2, debts)
				held, s.resourceVersion = informer.Version{UID: "uid-p", ResourceVersion: "7"}, "7"
				b.ledger.saw(b.ledger.caches[0], Key{Namespace: "a", Name: "p"}, "uid-p", "7", false)
				require.EqualValues(t, 1, b.ledger.open.Load(), "the cache has it, and it is no longer there")
				held, s.resourceVersion = informer.Version{}, "8"
				b.ledger.saw(b.ledger.caches[0], Key{Namespace: "a", Name: "p"}, "uid-p", "8", true)
				b.ledger.reached(b.ledger.caches[0], "")
				require.Zero(t, b.ledger.open.Load())
			})
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
			_, err = TrackWrites(transport(func(got *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(got.Body)
				require.Equal(t, test.fails, err)
				require.Equal(t, `{"dryRun":["All"]}`, string(body))
				return answering{code: 200, object: podCalled("p")}.RoundTrip(got)
			})).RoundTrip(req)
			require.NoError(t, err)
			require.EqualValues(t, 1, b.ledger.open.Load(), "it is not known to be a dry run")
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
				_, err = TrackWrites(transport(func(got *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(got.Body)
					require.NoError(t, err)
					require.True(t, bytes.Equal(test.body, body), "the server gets the whole body")
					require.Equal(t, before.ContentLength, got.ContentLength)
					require.NoError(t, got.Body.Close())
					return answering{code: 200, object: pod}.RoundTrip(got)
				})).RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, !again && len(test.body) > 0, closed)
				require.EqualValues(t, test.debts, b.ledger.open.Load())
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
		require.EqualValues(t, 1, b.ledger.open.Load())
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
				resp, err := TrackWrites(bytesOf(int(status.Code), media, body)).RoundTrip(req)
				require.NoError(t, err)
				got, err = io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, body, got, "the caller finds the whole answer")
				require.EqualValues(t, test.debts, b.ledger.open.Load())
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
		"fence inside": TrackWrites(elector.Fence(never)), "fence outside": elector.Fence(TrackWrites(never)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pods)
			req, err := http.NewRequestWithContext(b.ctx, "POST", pods, nil)
			require.NoError(t, err)
			_, err = outer.RoundTrip(req)
			require.ErrorIs(t, err, leaderelection.ErrNotLeading)
			require.Zero(t, b.ledger.open.Load())
		})
	}
}

// A write of unknown outcome to an object that the informer does not select by name or namespace is not waited for.
func TestAWriteOfUnknownOutcomeIsWaitedForWhereTheNameIsSelected(t *testing.T) {
	const pods = "https://server/api/v1/namespaces/a/pods"
	lost := answering{err: errors.New("connection reset")}
	for query, debts := range map[string]int64{
		"":                                 1,
		"?fieldSelector=metadata.name%3Dp": 1,
		"?fieldSelector=metadata.name%3Dq": 0,
		"?fieldSelector=type%3DOpaque":     1,
		"?labelSelector=app%3Dx":           1,
	} {
		require.Equal(t, debts, newBench(t, pods+query).send("PUT", pods+"/p", nil, lost), query)
	}
	require.EqualValues(t, 1, newBench(t, pods+"?fieldSelector=metadata.name%3Dq").send("POST", pods, nil, lost),
		"the name that a creation gives is not in its path")
}

// What a user may take for tracked, and is not, is named in the log: once for each resource, and for nothing else.
func TestWhatIsNotTrackedIsSaidOnce(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	following := func(selector string) *ledger {
		l := newController(t, noting(&journal{}), Options{}).ledger
		c := l.cacheOf(&still{})
		c.learner = &writes.Learner{}
		at := &url.URL{Host: "server", Path: "/api/v1/pods", RawQuery: url.Values{"fieldSelector": {selector}}.Encode()}
		c.learner.Learn(&http.Request{URL: at})
		return l
	}
	l := following("")
	for range 2 {
		for _, address := range []string{
			"other/api/v1/namespaces/default/pods",
			"other/api/v1/namespaces/default/configmaps",            // which nobody follows
			"other/apis/example.com/v1/namespaces/default/pods",     // of another group
			"server/api/v1/namespaces/default/pods/a",               // which is tracked
			"server/api/v1/namespaces/default/pods/a/eviction",      // whose answer tells nothing of the pod
			"server/apis/example.com/v1/namespaces/default/gadgets", // which nobody follows
		} {
			l.targetOf(log, address)
		}
	}
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "at another server")
	require.Contains(t, lines[1], "pods/eviction")

	lines = nil
	for range 2 {
		owing(parent, following("metadata.name=a,metadata.namespace=default")).Wrote(log, podWrite("a", "7", false))
	}
	require.Empty(t, lines)
	l = following("spec.nodeName=n")
	for range 2 {
		owing(parent, l).Wrote(log, podWrite("a", "7", false))
	}
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "spec.nodeName=n")
}
