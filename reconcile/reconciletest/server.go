package reconciletest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Options may be left zero.
type Options struct {
	// Resources are custom resources to be served, beside the built-in ones.
	Resources []Resource
	// Access says who may do what: see [ReadAccess] and [Server.LinkAs]. Nil: everybody everything.
	Access *Access
	// Seed makes the names that are generated, and the UIDs. The same seed and the same requests give the same.
	Seed uint64
	// Namespaces exist from the beginning. Zero: default.
	Namespaces []string
	// CollectAfter is how long the garbage collector waits before it looks at what has happened. Zero: 10 ms.
	CollectAfter time.Duration
}

// Server is an API server with its storage. Make one with [New], and clients with [Server.Config] or [Server.Link].
// Safe for concurrent use. It has no goroutine of its own, so there is nothing to close.
type Server struct {
	store     *store
	resources map[schema.GroupVersionResource]*Resource
	codecs    serializer.CodecFactory
	scale     *Resource // of the subresources of that name
	collector *collector
	access    *Access
	direct    *Link

	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	uids   uint64     // guarded by mu
}

// New makes a server that holds nothing but its namespaces.
func New(o Options) (*Server, error) {
	s := &Server{
		store: newStore(), resources: make(map[schema.GroupVersionResource]*Resource),
		codecs: serializer.NewCodecFactory(scheme.Scheme), access: o.Access,
		random: rand.New(rand.NewPCG(o.Seed, 0)),
	}
	if o.CollectAfter == 0 {
		o.CollectAfter = 10 * time.Millisecond
	}
	s.collector = &collector{server: s, after: o.CollectAfter}
	s.direct = s.Link()
	types := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for _, r := range append(builtins(), o.Resources...) {
		switch {
		case r.GroupVersionResource.Resource == "" || r.Version == "" || r.Kind == "":
			return nil, fmt.Errorf("apiserver: the resource %s of kind %q is to have a resource, a version and a kind",
				r.GroupVersionResource, r.Kind)
		case r.custom() && r.Group == "":
			return nil, fmt.Errorf("apiserver: the resource %s has no group, as custom resources have",
				r.GroupVersionResource)
		case s.resources[r.GroupVersionResource] != nil:
			return nil, fmt.Errorf("apiserver: the resource %s is there twice", r.GroupVersionResource)
		}
		if err := r.manageFields(types); err != nil {
			return nil, fmt.Errorf("apiserver: resource %s: %w", r.GroupVersionResource, err)
		}
		s.resources[r.GroupVersionResource] = &r
	}
	var err error
	if s.scale, err = newScaleResource(); err != nil {
		return nil, fmt.Errorf("apiserver: scale: %w", err)
	}
	if o.Namespaces == nil {
		o.Namespaces = []string{"default"}
	}
	for _, name := range o.Namespaces {
		if err := s.createNamespace(name); err != nil {
			return nil, fmt.Errorf("apiserver: namespace %s: %w", name, err)
		}
	}
	return s, nil
}

// Config returns a configuration for clients of any kind, over a connection without faults.
func (s *Server) Config() *rest.Config { return s.direct.Config() }

// Version returns the resourceVersion of the last write.
func (s *Server) Version() int64 {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.version
}

// Compact forgets what was before the present: lists at older versions, continued lists and watches from there are
// answered with 410.
func (s *Server) Compact() { s.store.compact() }

// Restore takes the server back to a version that [Server.Version] returned, as a restore of etcd from a backup does:
// every watch ends, and versions are given out a second time.
func (s *Server) Restore(version int64) error {
	if now := s.Version(); version < firstVersion || version > now {
		return fmt.Errorf("apiserver: restore to version %d: the server has had versions from %d to %d", version,
			firstVersion, now)
	}
	s.store.restore(version)
	return nil
}

// CutWatches ends every watch, as a server does that is shut down.
func (s *Server) CutWatches() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.epoch++
	s.store.wakeLocked()
}

// Resources returns the resources that are served.
func (s *Server) Resources() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for gvr := range maps.Keys(s.resources) {
		all = append(all, gvr)
	}
	return all
}

// newUID returns a UID that was not used before.
func (s *Server) newUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uids++
	return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", s.random.Uint32(), s.uids))
}

// generateName makes a name from a prefix, as the real server does: five characters that form no words.
func (s *Server) generateName(prefix string) string {
	const alphabet, suffix, longest = "bcdfghjklmnpqrstvwxz2456789", 5, 63
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	b.WriteString(prefix[:min(len(prefix), longest-suffix)])
	for range suffix {
		b.WriteByte(alphabet[s.random.IntN(len(alphabet))])
	}
	return b.String()
}

// makeList makes the list that is the answer to a request for these objects, which it shares.
func (s *Server) makeList(r *Resource, objects []object) (runtime.Object, error) {
	list, err := r.makeList(scheme.Scheme)
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, len(objects))
	for i, o := range objects {
		items[i] = o
	}
	if err := meta.SetList(list, items); err != nil || r.custom() {
		return list, err
	}
	// SetList copies the structures, so that what is changed here is not the stored object. Items of built-in lists do
	// not name their kind.
	return list, meta.EachListItem(list, func(o runtime.Object) error {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return nil
	})
}
