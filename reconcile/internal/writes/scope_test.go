package writes

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// An informer asks for the server's version by a list of any one object.
func TestAListOfOneObjectTeachesNothing(t *testing.T) {
	var l Learner
	for _, query := range []string{"labelSelector=app%3Dx&watch=1", "limit=1"} {
		l.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods", RawQuery: query}})
	}
	require.Equal(t, "app=x", l.ScopeOf("default").LabelSelector)
}

// Of an informer that follows single objects the other terms of the field selector are learned.
func TestTheSelectorOfAnInformerOfNamesIsLearned(t *testing.T) {
	l := &Learner{ByName: true}
	l.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/namespaces/shop/secrets",
		RawQuery: "fieldSelector=" + url.QueryEscape("metadata.name=tls,type=Opaque")}})
	s := l.ScopeOf("shop")
	require.Equal(t, "type=Opaque", s.FieldSelector)
	require.True(t, s.NeedsFields())
	require.True(t, s.admitsName(Key{Namespace: "blog", Name: "other"}))
}
