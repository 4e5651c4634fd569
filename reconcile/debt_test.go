package reconcile

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// An object that is gone before the cache could show it is told by no event. Its key runs even so, unless the informer
// does not select the object.
func TestAKeyWhoseWriteNoCacheHasShownRuns(t *testing.T) {
	for query, runs := range map[string]bool{
		"":                                 true,
		"fieldSelector=spec.nodeName%3Dn":  true, // the answer does not tell
		"labelSelector=app%3Dx":            false,
		"labelSelector=app%21%3Dx":         true,
		"fieldSelector=metadata.name%3D=a": true,
	} {
		var ran []Key
		l := newLedger(func(key Key) { ran = append(ran, key) }, func(Key, WaitRecord) {})
		pods := &still{listed: 1, resourceVersion: "5"}
		c := l.cacheOf(pods)
		c.learner = &learner{}
		c.learner.learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods", RawQuery: query}})
		w := podWrite("a", "7", false)
		w.created = false
		owing(parent, l).wrote(klog.Background(), w)
		require.Len(t, openDebts(l), 1, query)
		pods.listed, pods.resourceVersion = 2, "9"
		l.reached(c, "")
		require.Zero(t, l.open.Load(), query)
		require.Equal(t, runs, len(ran) == 1, query)
	}
}
