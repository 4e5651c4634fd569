package informer

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// Live asks the server for the object of that key, past the cache, and within the selectors of Options: an object outside of them is not
// found. It is a LIST by name, so it needs no permission that the informer does not have, and it sees the most recent state. It changes
// nothing in the store. A request's error is returned as it came, with what was asked for.
func (inf *SharedIndexInformer[T]) Live(ctx context.Context, key Key) (found T, exists bool, err error) {
	terms := []fields.Selector{fields.OneTermEqualSelector("metadata.name", key.Name)}
	if key.Namespace != "" {
		terms = append(terms, fields.OneTermEqualSelector("metadata.namespace", key.Namespace))
	}
	opts := inf.reflector.selector
	if opts.FieldSelector != "" {
		own, err := fields.ParseSelector(opts.FieldSelector)
		if err != nil {
			return found, false, fmt.Errorf("informer %s: %w", inf.name, err)
		}
		terms = append(terms, own)
	}
	opts.FieldSelector = fields.AndSelectors(terms...).String()

	list, err := inf.reflector.source.list(ctx, opts)
	if err != nil {
		return found, false, fmt.Errorf("informer %s: live list of %s: %w", inf.name, key, err)
	}
	err = eachItem(list, func(o runtime.Object) error {
		it, err := inf.reflector.decode(o)
		if it.key != key {
			return nil // the server does not know the selector
		}
		found, exists = it.value, err == nil
		return err
	})
	if err != nil {
		return found, false, fmt.Errorf("informer %s: live list of %s: %w", inf.name, key, err)
	}
	return found, exists, nil
}
