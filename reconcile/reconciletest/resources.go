package reconciletest

import (
	"maps"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resources are those that a server serves. A fork adds to them while requests are served, so a change puts a new map
// in place of the old one, which nobody changes. The zero value has none.
type resources struct {
	mu      sync.Mutex // of those who change it
	current atomic.Pointer[map[schema.GroupVersionResource]*Resource]
	known   map[schema.GroupResource]bool // guarded by mu: what comes later, or has gone
}

// all returns the resources of this moment, to be read only.
func (r *resources) all() map[schema.GroupVersionResource]*Resource {
	if current := r.current.Load(); current != nil {
		return *current
	}
	return nil
}

// of returns a resource, or nil.
func (r *resources) of(gvr schema.GroupVersionResource) *Resource { return r.all()[gvr] }

func (r *resources) add(one *Resource) {
	r.change(func(all map[schema.GroupVersionResource]*Resource) { all[one.GroupVersionResource] = one })
}

func (r *resources) remove(gvr schema.GroupVersionResource) {
	r.change(func(all map[schema.GroupVersionResource]*Resource) { delete(all, gvr) })
}

// note says of a resource that its kind may come, or has gone.
func (r *resources) note(gr schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = make(map[schema.GroupResource]bool)
	}
	r.known[gr] = true
}

// knows reports whether a resource that is not served comes later, or has gone.
func (r *resources) knows(gr schema.GroupResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[gr]
}

func (r *resources) change(fn func(map[schema.GroupVersionResource]*Resource)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(r.all())
	if next == nil {
		next = make(map[schema.GroupVersionResource]*Resource)
	}
	fn(next)
	r.current.Store(&next)
}
