package informer

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Cached is a [Resource], and an informer with what it lists. Make one with [NewCached].
type Cached[T Object] struct {
	*Resource[T]                         // asks the server
	Cache        *SharedIndexInformer[T] // answers at once; read-only
}

// NewCached makes a client for a resource, as [NewResource] does, and an informer with it, as [New] does:
//
//	backups, err := informer.NewCached(cfg, v1.GroupVersion.WithResource("cronbackups"),
//		informer.Options[*v1.CronBackup]{})
//	backup, ok := backups.Cache.Get(key)
//	err = backups.In(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{})
//
// Nothing is sent before the informer runs: a Manager runs it if it is a source of one of its controllers. For some
// namespaces only, and for a kind that is not the name of the Go type, call [NewResource] and [NewNamespaced] or New.
// The error names everything that is wrong with the arguments; a [Group] keeps those of many caches for the end.
func NewCached[T Object](cfg *rest.Config, gvr schema.GroupVersionResource, opts Options[T]) (*Cached[T], error) {
	client, err := NewResource[T](cfg, gvr, ResourceOptions{})
	if err != nil {
		return nil, err
	}
	cache, err := New(client, opts)
	if err != nil {
		return nil, err
	}
	return &Cached[T]{client, cache}, nil
}
