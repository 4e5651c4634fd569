package informer

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Group makes the caches of a program, and keeps what is wrong with them for the end. Make one with [NewGroup]:
//
//	group := informer.NewGroup(cfg)
//	tenants := informer.CachedIn(group, v1.GroupVersion.WithResource("tenants"), informer.Options[*v1.Tenant]{})
//	quotas := informer.CachedIn(group, corev1.SchemeGroupVersion.WithResource("resourcequotas"),
//		informer.Options[*corev1.ResourceQuota]{LabelSelector: ours})
//	quotasOf := informer.IndexIn(group, quotas.Cache, ownerOf[*corev1.ResourceQuota])
//	if err := group.Err(); err != nil {
//		return err
//	}
//
// What the functions return may be handed on before [Group.Err] is asked, and used after it has returned nil. A Group
// is for one goroutine.
type Group struct {
	cfg    *rest.Config
	caches []AnyInformer
	wrong  []error
}

// AnyInformer is what a [SharedIndexInformer] says of its cache, whatever the type of the objects.
type AnyInformer interface {
	Name() string
	Len() int
	ResourceVersion(namespace string) string
	Health() Health
}

// NewGroup makes a Group of caches of one API server.
func NewGroup(cfg *rest.Config) *Group { return &Group{cfg: cfg} }

// CachedIn is [NewCached] in a Group.
func CachedIn[T Object](g *Group, gvr schema.GroupVersionResource, opts Options[T]) *Cached[T] {
	c, err := NewCached(g.cfg, gvr, opts)
	if err != nil {
		g.wrong = append(g.wrong, err)
		return &Cached[T]{Resource: &Resource[T]{endpoint: endpoint{gvr: gvr}}}
	}
	g.caches = append(g.caches, c.Cache)
	return c
}

// ReferencedIn is [NewReferenced] in a Group, with the client of [NewResource].
func ReferencedIn[T Object](g *Group, gvr schema.GroupVersionResource, opts Options[T]) *Referenced[T] {
	client, err := NewResource[T](g.cfg, gvr, ResourceOptions{})
	var r *Referenced[T]
	if err == nil {
		r, err = NewReferenced(client.In, opts)
	}
	if err != nil {
		g.wrong = append(g.wrong, err)
		return nil
	}
	g.caches = append(g.caches, r.SharedIndexInformer) // as a Manager knows it
	return r
}

// IndexIn is [AddIndex] in a Group. A cache that could not be made is no further error.
func IndexIn[V comparable, T any](g *Group, cache *SharedIndexInformer[T],
	fn func(object T, add func(V))) *Index[V, T] {
	if cache == nil && len(g.wrong) > 0 {
		return nil
	}
	ix, err := AddIndex(cache, fn)
	if err != nil {
		g.wrong = append(g.wrong, fmt.Errorf("index of %T: %w", *new(T), err))
	}
	return ix
}

// Err returns an error that names everything that is wrong, or nil.
func (g *Group) Err() error { return errors.Join(g.wrong...) }

// Informers returns the caches of the group, for what shows them all:
//
//	collector.Informer(group.Informers()...)
func (g *Group) Informers() []AnyInformer { return g.caches }
