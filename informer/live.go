package informer

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Live asks the server for the object of that key, past the cache, and within the informer's [Scope]: an object outside
// of it is not found. It is a LIST by name, so it needs no permission that the informer does not have, and it sees the
// most recent state. It changes nothing in the store, and what it returns is the caller's own, to be changed and
// written. A request's error is returned as it came, with what was asked for.
func (inf *SharedIndexInformer[T]) Live(ctx context.Context, key Key) (value T, exists bool, err error) {
	it, exists, invalid, err := inf.live(ctx, key)
	if err == nil && invalid != nil {
		err = fmt.Errorf("informer %s: live list of %s: %w", inf.name, key, invalid)
	}
	if err != nil {
		return value, false, err
	}
	return it.value, exists, nil
}

// Version says which state of an object it is, for values of every type.
type Version struct {
	UID             types.UID
	ResourceVersion string
	Deleting        bool // it has a deletionTimestamp
}

// Version returns the version of the object of that key that the store holds, if it holds one.
func (inf *SharedIndexInformer[T]) Version(key Key) (Version, bool) {
	inf.store.RLock()
	defer inf.store.RUnlock()
	row, ok := inf.store.Find(key)
	if !ok {
		return Version{}, false
	}
	f := inf.store.Facts(row)
	return Version{f.uid, f.resourceVersion, f.weight.deleting()}, true
}

// LiveVersion is Live for the version alone; an object that cannot be taken into the store has one, too.
func (inf *SharedIndexInformer[T]) LiveVersion(ctx context.Context, key Key) (Version, bool, error) {
	it, exists, _, err := inf.live(ctx, key)
	return Version{it.uid, it.resourceVersion, it.deleting}, exists, err
}

// live lists the one object of that key. invalid is why it cannot be decoded.
func (inf *SharedIndexInformer[T]) live(ctx context.Context, key Key) (found item[T], exists bool, invalid, err error) {
	c := inf.course.Load()
	l := c.lane(key.Namespace)
	if l == nil {
		return found, false, nil, nil
	}
	terms := []fields.Selector{fields.OneTermEqualSelector("metadata.name", key.Name)}
	if key.Namespace != "" {
		terms = append(terms, fields.OneTermEqualSelector("metadata.namespace", key.Namespace))
	}
	opts := c.selector
	if opts.FieldSelector != "" {
		own, err := fields.ParseSelector(opts.FieldSelector)
		if err != nil {
			return found, false, nil, fmt.Errorf("informer %s: %w", inf.name, err)
		}
		terms = append(terms, own)
	}
	opts.FieldSelector = fields.AndSelectors(terms...).String()

	_, shares := l.reflector.source.(*rawSource)
	visit := func(_ *metav1.ListMeta, arrived []wire.Event) error {
		for _, a := range arrived {
			if shares {
				a.Object = a.Object.DeepCopyObject() // it may have parts in common with objects in the cache: see REST
			}
			// The key is compared, for the server may not know the selector.
			if it, decoding := l.reflector.open(a); it.key == key {
				found, exists, invalid = it, true, decoding
			}
		}
		return nil
	}
	// Apart: who asks must not be ended by an object of his.
	if panicked := lifecycle.Apart(func() {
		_,
			err = l.reflector.page(ctx, opts, pageTimeout, visit)
	}); panicked != nil {
		err = fmt.Errorf("a method of an object: %w", panicked)
	}
	if err != nil {
		return found, false, nil, fmt.Errorf("informer %s: live list of %s: %w", inf.name, key, err)
	}
	return found, exists, invalid, nil
}
