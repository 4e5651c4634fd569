package writes

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

// Learner finds out what an informer asks for: the informer's own requests show the collection and the selectors.
type Learner struct {
	ByName bool // the informer follows single objects; never changed

	mu sync.RWMutex
	// Guarded by mu.
	scopes        map[string]*Scope // by namespace: those that are followed by themselves, or only NamespaceAll
	collections   []collection      // of all scopes that have ever been; nearly always one
	requested     bool              // a request has been seen
	unreadAddress string            // of a request that is not about a collection
}

type learnerKey struct{}

func WithLearner(ctx context.Context, l *Learner) context.Context {
	return context.WithValue(ctx, learnerKey{}, l)
}

// Learn reads a request of the informer.
func (l *Learner) Learn(req *http.Request) {
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
	s := &Scope{
		Target: c.Target, LabelSelector: query.Get("labelSelector"), FieldSelector: query.Get("fieldSelector"),
	}
	s.Target.Namespace = namespace
	if l.ByName { // which objects those are changes all the time, so the informer is asked
		namespace, s.Target.Namespace = metav1.NamespaceAll, metav1.NamespaceAll
		s.FieldSelector = withoutName(s.FieldSelector)
	}
	if last := l.scopes[namespace]; last != nil {
		selectors := last.LabelSelector == s.LabelSelector && last.FieldSelector == s.FieldSelector
		if last.Target == s.Target && selectors || query.Get("limit") == "1" {
			return // nothing new; a list of one object only asks for the server's version
		}
	}
	var err error
	if s.labels, err = labels.Parse(s.LabelSelector); err != nil {
		return // the server refuses it, too
	}
	if s.fields, err = fields.ParseSelector(s.FieldSelector); err != nil {
		return
	}
	if l.scopes == nil {
		l.scopes = make(map[string]*Scope)
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

// TargetOf reads the address of a request to a collection that the informer follows.
func (l *Learner) TargetOf(address string) (t Target, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for i := range l.collections {
		if t, ok = l.collections[i].targetOf(address); ok {
			return t, true
		}
	}
	return t, false
}

// HostOf returns the server at which the informer follows the resource of that name, or "" if it does not follow it.
func (l *Learner) HostOf(t Target) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, c := range l.collections {
		if c.Group == t.Group && c.Resource == t.Resource {
			return c.Host
		}
	}
	return ""
}

// Tracked reports whether a request of the informer has passed TrackWrites, and returns the address of one that is not
// about a collection.
func (l *Learner) Tracked() (requested bool, unreadAddress string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.requested, l.unreadAddress
}

// ScopeOf returns the scope that may hold objects of a namespace, or nil.
func (l *Learner) ScopeOf(namespace string) *Scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s, ok := l.scopes[namespace]; ok {
		return s
	}
	return l.scopes[metav1.NamespaceAll]
}

// MayHold returns the namespaces that the informer asks for, of those where it may see what a request is about.
func (l *Learner) MayHold(t Target) (namespaces []string) {
	for _, s := range l.Scopes() {
		if s.sameResource(t) && s.mayHold(t) {
			namespaces = append(namespaces, s.Target.Namespace)
		}
	}
	return namespaces
}

// Follows reports whether the informer asks for the resource that a request is about, in its namespace.
func (l *Learner) Follows(t Target) bool {
	s := l.ScopeOf(t.Namespace)
	return s != nil && s.sameResource(t)
}

// HasScope reports whether it is known of a scope what the informer asks for.
func (l *Learner) HasScope() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.scopes) > 0
}

// Scopes returns the scopes. They include those of namespaces that the informer no longer follows.
func (l *Learner) Scopes() []*Scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.scopes))
}

// Scope is what an informer asks for, in one namespace or in all. It does not change.
type Scope struct {
	Target                       Target
	LabelSelector, FieldSelector string // as in the request
	labels                       labels.Selector
	fields                       fields.Selector
}

// sameResource reports whether a request is about the resource that the informer follows.
func (s *Scope) sameResource(t Target) bool {
	return s.Target.Host == t.Host && s.Target.Group == t.Group && s.Target.Resource == t.Resource
}

// mayHold reports whether the namespace and name of a request allow that it is about an object of the scope.
func (s *Scope) mayHold(t Target) bool {
	if s.Target.Namespace != "" && t.Namespace != "" && s.Target.Namespace != t.Namespace {
		return false
	}
	return t.Name == "" || s.admitsName(Key{Namespace: t.Namespace, Name: t.Name})
}

// Selects reports whether the answer to a write shows that the label selector matches the object.
func (s *Scope) Selects(w Write) bool {
	return s.labels.Empty() || w.labelsKnown && s.labels.Matches(labels.Set(w.Labels))
}

// MayShow reports whether the informer holds what was written, or may have held it before.
func (s *Scope) MayShow(w Write) bool {
	return s.sameResource(w.Target) && s.admitsName(w.Object) && (s.Selects(w) || !w.Created)
}

// admitsName reports whether the field selector's terms about namespace and name admit an object.
func (s *Scope) admitsName(key Key) bool {
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

// Selective reports whether the informer selects by more than an object's namespace and name.
func (s *Scope) Selective() bool { return !s.labels.Empty() || s.NeedsFields() }

// NeedsFields reports whether the field selector is about more than an object's namespace and name.
func (s *Scope) NeedsFields() bool {
	return slices.ContainsFunc(s.fields.Requirements(), func(term fields.Requirement) bool {
		return term.Field != "metadata.name" && term.Field != "metadata.namespace"
	})
}
