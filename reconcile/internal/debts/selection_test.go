package debts

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

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
				b.Ledger.Saw(b.Ledger.caches[0], Key{Namespace: "a", Name: "p"}, "uid-p", "7", false)
				require.EqualValues(t, 1, b.Ledger.open.Load(), "the cache has it, and it is no longer there")
				held, s.resourceVersion = informer.Version{}, "8"
				b.Ledger.Saw(b.Ledger.caches[0], Key{Namespace: "a", Name: "p"}, "uid-p", "8", true)
				b.Ledger.Reached(b.Ledger.caches[0], "")
				require.Zero(t, b.Ledger.open.Load())
			})
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
	following := func(selector string) *Ledger {
		l := newLedger()
		c := l.CacheOf(&still{})
		c.Learner = &writes.Learner{}
		at := &url.URL{Host: "server", Path: "/api/v1/pods", RawQuery: url.Values{"fieldSelector": {selector}}.Encode()}
		c.Learner.Learn(&http.Request{URL: at})
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
			l.Debtor(parent).TargetOf(log, address)
		}
	}
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "at another server")
	require.Contains(t, lines[1], "pods/eviction")

	lines = nil
	for range 2 {
		following("metadata.name=a,metadata.namespace=default").Debtor(parent).Wrote(log, podWrite("a", "7", false))
	}
	require.Empty(t, lines)
	l = following("spec.nodeName=n")
	for range 2 {
		l.Debtor(parent).Wrote(log, podWrite("a", "7", false))
	}
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "spec.nodeName=n")
}
