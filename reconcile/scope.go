package reconcile

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// learner finds out what an informer asks for, from its requests: in each namespace that it follows by itself, or in
// all of them at once.
type learner struct {
	mu sync.RWMutex
	// Guarded by mu. scopes are by namespace; collections are what they are of, and were: nearly always it is one.
	// passed is true once a request has been seen, and unread is the address of one that is no collection's.
	scopes        map[string]*scope
	collections   []collection
	requested     bool
	unreadAddress string
}

type learnerKey struct{}

func withLearner(ctx context.Context, l *learner) context.Context {
	return context.WithValue(ctx, learnerKey{}, l)
}

func (l *learner) learn(req *http.Request) {
	if req.Method != "" && req.Method != http.MethodGet || req.Context().Err() != nil {
		return // that is nothing of the informer's, or it has left that namespace, or the selectors, already
	}
	at := addressOf(req.URL)
	c, namespace, ok := collectionOf(at)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requested = true
	if !ok {
		l.unreadAddress = at
		return
	}
	query := req.URL.Query()
	s := &scope{target: c.target, asked: [2]string{query.Get("labelSelector"), query.Get("fieldSelector")}}
	s.target.namespace = namespace
	// A list of one object asks for the server's version, whatever is followed.
	known := l.scopes[namespace]
	if known != nil && (known.target == s.target && known.asked == s.asked || query.Get("limit") == "1") {
		return
	}
	var err error
	if s.labels, err = labels.Parse(s.asked[0]); err != nil {
		return // the server refuses it, too
	}
	if s.fields, err = fields.ParseSelector(s.asked[1]); err != nil {
		return
	}
	if l.scopes == nil {
		l.scopes = make(map[string]*scope)
	}
	// All of them are followed in one list, or some by themselves.
	if namespace == metav1.NamespaceAll {
		clear(l.scopes)
	} else {
		delete(l.scopes, metav1.NamespaceAll)
	}
	l.scopes[namespace] = s
	if !slices.Contains(l.collections, c) {
		l.collections = append(l.collections, c)
	}
}

// read reads the address of a request to what the informer follows.
func (l *learner) targetOf(address string) (t target, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := range l.collections {
		if t, ok = l.collections[i].targetOf(address); ok {
			return t, true
		}
	}
	return t, false
}

// elsewhere returns the server at which the informer follows the resource of that name, or "" if it follows it nowhere.
func (l *learner) hostOf(t target) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, c := range l.collections {
		if c.group == t.group && c.resource == t.resource {
			return c.host
		}
	}
	return ""
}

// has reports whether anything has been learned.
func (l *learner) hasScope() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.scopes) > 0
}

// heard reports whether a request of the informer has been seen at all, and the address of one that is no collection's.
func (l *learner) tracked() (passed bool, unread string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.requested, l.unreadAddress
}

// of returns what the informer asks for that may hold objects of a namespace, or nil.
func (l *learner) scopeOf(namespace string) *scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s, ok := l.scopes[namespace]; ok {
		return s
	}
	return l.scopes[metav1.NamespaceAll]
}

// all returns whatever the informer asks for, or did once: of a namespace that it no longer follows that is not
// forgotten, but there [cache.now] knows better.
func (l *learner) allScopes() []*scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.scopes))
}

// scope is what an informer asks for, in one namespace or in all.
type scope struct {
	target target
	asked  [2]string // the selectors, as the request has them
	labels labels.Selector
	fields fields.Selector
}

// about reports whether a request is about the resource that the informer lists.
func (s *scope) sameResource(t target) bool {
	return s.target.host == t.host && s.target.group == t.group && s.target.resource == t.resource
}

// reaches reports whether a request may be about objects that the informer lists, as far as their namespace and name
// say.
func (s *scope) mayHold(t target) bool {
	if s.target.namespace != "" && t.namespace != "" && s.target.namespace != t.namespace {
		return false
	}
	return t.name == "" || s.admitsName(Key{Namespace: t.namespace, Name: t.name})
}

// names reports whether the field selector lets an object of that namespace and name through, as far as it is about
// them.
func (s *scope) admitsName(key Key) bool {
	for _, term := range s.fields.Requirements() {
		var is string
		switch term.Field {
		case "metadata.name":
			is = key.Name
		case "metadata.namespace":
			is = key.Namespace
		default:
			continue
		}
		if (is == term.Value) == (term.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

// doubtful reports whether it takes more to tell whether the informer lists an object than its metadata.
func (s *scope) needsFields() bool {
	return slices.ContainsFunc(s.fields.Requirements(), func(term fields.Requirement) bool {
		return term.Field != "metadata.name" && term.Field != "metadata.namespace"
	})
}
