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
	"k8s.io/klog/v2"
)

// This file finds out what an informer asks for: a learner reads it from the informer's own requests, which show the
// collection and the selectors.

// follows reads the address of a write to a resource that an informer of the controller follows.
func (l *ledger) follows(address string) (t target, followed bool) {
	for c := range everyCache(l) {
		if t, followed = c.learner.targetOf(address); followed {
			return t, true
		}
	}
	if t = guessTarget(address); l.coming.knows(t) { // it may come back before the answer
		return t, true
	}
	return target{}, false
}

// targetOf is follows for a key of the controller. What a user might expect to be tracked, and is not, is logged once.
func (l *ledger) targetOf(log klog.Logger, address string) (t target, followed bool) {
	if t, followed = l.follows(address); followed {
		if what := t.resource + "/" + t.subresource; ownAnswer[t.subresource] {
			l.once.do(what, func() {
				log.Info("Writes to this subresource are not waited for: "+
					"the answers do not tell what has become of the object", "resource", what)
			})
		}
		return t, true
	}
	requested := false
	for c := range everyCache(l) {
		seen, _ := c.learner.tracked()
		requested = requested || seen
	}
	t = guessTarget(address)
	if !requested {
		l.once.do("", func() {
			log.Error(nil, "Writes are tracked, but no informer of this controller makes its requests through "+
				"TrackWrites, so no write is waited for: make the informers' clients from what "+
				"reconcile.ClientConfig returns, too")
		})
	}
	for c := range everyCache(l) {
		if host := c.learner.hostOf(t); host != "" {
			l.once.do(t.host+" "+t.group+"/"+t.resource, func() {
				log.Info("Writes to this resource are not waited for, as the informer follows it at another server. "+
					"If both names are of one server, use the same name in all clients",
					"resource", t.resource, "group", t.group, "server", t.host, "informer", c.Name(), "follows", host)
			})
		}
	}
	return t, false
}

// onces are the names of what has been done once.
type onces struct{ names sync.Map }

// do calls fn unless it has been called under this name before.
func (o *onces) do(name string, fn func()) {
	if _, before := o.names.LoadOrStore(name, true); !before {
		fn()
	}
}

// learner finds out from an informer's requests what the informer asks for.
type learner struct {
	byName bool // the informer follows single objects; never changed

	mu sync.RWMutex
	// Guarded by mu.
	scopes        map[string]*scope // by namespace: those that are followed by themselves, or only NamespaceAll
	collections   []collection      // of all scopes that have ever been; nearly always one
	requested     bool              // a request has been seen
	unreadAddress string            // of a request that is not about a collection
}

type learnerKey struct{}

func withLearner(ctx context.Context, l *learner) context.Context {
	return context.WithValue(ctx, learnerKey{}, l)
}

// learn reads a request of the informer.
func (l *learner) learn(req *http.Request) {
	if req.Method != "" && req.Method != http.MethodGet || req.Context().Err() != nil {
		return // not a list or watch; or one of a namespace, or of selectors, that the informer has just given up
	}
	address := addressOf(req.URL)
	c, namespace, ok := collectionOf(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requested = true
	if !ok {
		l.unreadAddress = address
		return
	}
	query := req.URL.Query()
	s := &scope{
		target: c.target, labelSelector: query.Get("labelSelector"), fieldSelector: query.Get("fieldSelector"),
	}
	s.target.namespace = namespace
	if l.byName { // which objects those are changes all the time: [cache.progress] asks the informer
		namespace, s.target.namespace = metav1.NamespaceAll, metav1.NamespaceAll
		s.fieldSelector = withoutName(s.fieldSelector)
	}
	if last := l.scopes[namespace]; last != nil {
		selectors := last.labelSelector == s.labelSelector && last.fieldSelector == s.fieldSelector
		if last.target == s.target && selectors || query.Get("limit") == "1" {
			return // nothing new; a list of one object only asks for the server's version
		}
	}
	var err error
	if s.labels, err = labels.Parse(s.labelSelector); err != nil {
		return // the server refuses it, too
	}
	if s.fields, err = fields.ParseSelector(s.fieldSelector); err != nil {
		return
	}
	if l.scopes == nil {
		l.scopes = make(map[string]*scope)
	}
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

// withoutName returns a field selector without its terms about an object's name.
func withoutName(selector string) string {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return selector
	}
	rest, err := parsed.Transform(func(field, value string) (string, string, error) {
		if field == "metadata.name" {
			return "", "", nil
		}
		return field, value, nil
	})
	if err != nil {
		return selector
	}
	return rest.String()
}

// targetOf reads the address of a request to a collection that the informer follows.
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

// hostOf returns the server at which the informer follows the resource of that name, or "" if it does not follow it.
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

// hasScope reports whether it is known what the informer asks for.
func (l *learner) hasScope() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.scopes) > 0
}

// tracked reports whether a request of the informer has passed TrackWrites, and returns the address of one that is not
// about a collection.
func (l *learner) tracked() (requested bool, unreadAddress string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.requested, l.unreadAddress
}

// scopeOf returns the scope that may hold objects of a namespace, or nil.
func (l *learner) scopeOf(namespace string) *scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s, ok := l.scopes[namespace]; ok {
		return s
	}
	return l.scopes[metav1.NamespaceAll]
}

// mayHold returns the namespaces that the informer asks for, of those where it may see what a request is about.
func (l *learner) mayHold(t target) (namespaces []string) {
	for _, s := range l.allScopes() {
		if s.sameResource(t) && s.mayHold(t) {
			namespaces = append(namespaces, s.target.namespace)
		}
	}
	return namespaces
}

// allScopes returns the scopes. They include those of namespaces that the informer no longer follows, of which
// [cache.progress] says so.
func (l *learner) allScopes() []*scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.scopes))
}

// scope is what an informer asks for, in one namespace or in all. It does not change.
type scope struct {
	target                       target
	labelSelector, fieldSelector string // as in the request
	labels                       labels.Selector
	fields                       fields.Selector
}

// sameResource reports whether a request is about the resource that the informer follows.
func (s *scope) sameResource(t target) bool {
	return s.target.host == t.host && s.target.group == t.group && s.target.resource == t.resource
}

// mayHold reports whether the namespace and name of a request allow that it is about an object of the scope.
func (s *scope) mayHold(t target) bool {
	if s.target.namespace != "" && t.namespace != "" && s.target.namespace != t.namespace {
		return false
	}
	return t.name == "" || s.admitsName(Key{Namespace: t.namespace, Name: t.name})
}

// selects reports whether the answer to a write shows that the label selector matches the object.
func (s *scope) selects(w write) bool {
	return s.labels.Empty() || w.labelsKnown && s.labels.Matches(labels.Set(w.labels))
}

// mayShow reports whether the informer holds what was written, or may have held it before.
func (s *scope) mayShow(w write) bool {
	return s.sameResource(w.target) && s.admitsName(w.object) && (s.selects(w) || !w.created)
}

// admitsName reports whether the field selector's terms about namespace and name admit an object.
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

// needsFields reports whether the field selector is about more than an object's namespace and name.
func (s *scope) needsFields() bool {
	return slices.ContainsFunc(s.fields.Requirements(), func(term fields.Requirement) bool {
		return term.Field != "metadata.name" && term.Field != "metadata.namespace"
	})
}
