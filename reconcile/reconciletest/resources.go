package reconciletest

import (
	"maps"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// resources are those that a server serves. A fork adds to them while requests are served, so a change puts a new map
// in place of the old one, which nobody changes. The zero value has none.
type resources struct {
	mu      sync.Mutex // of those who change it
	current atomic.Pointer[map[schema.GroupVersionResource]*Resource]
	absent  map[schema.GroupVersionResource]*Resource // guarded by mu: what comes later, or has gone
	by      map[string]types.UID                      // guarded by mu: by name, the definition of what is served
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
func (r *resources) note(one *Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.absent == nil {
		r.absent = make(map[schema.GroupVersionResource]*Resource)
	}
	r.absent[one.GroupVersionResource] = one
}

// noted returns what comes later, or has gone, and may have come again.
func (r *resources) noted() map[schema.GroupVersionResource]*Resource {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.absent)
}

// define notes the definition for which resources are served.
func (r *resources) define(name string, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = make(map[string]types.UID)
	}
	r.by[name] = uid
}

// definition returns the UID of the definition for which resources are served.
func (r *resources) definition(name string) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[name]
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
