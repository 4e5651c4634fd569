package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
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
	c := inf.followed.Load()
	l := c.listWatch(key.Namespace)
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

// verify compares a list-watch's part of the store with the server from time to time: see Options.VerifyEvery. It
// returns when ctx has ended.
func (inf *SharedIndexInformer[T]) verify(ctx context.Context, l *listWatch[T], log klog.Logger) {
	for ctx.Err() == nil {
		// List-watches that were started together should not list together.
		lifecycle.Sleep(ctx, inf.verifyEvery*9/10+rand.N(inf.verifyEvery/5))
		if ctx.Err() != nil || l.health.get().State != Live {
			continue
		}
		found, example, err := inf.differences(ctx, l)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.V(1).Info("The cache could not be compared with the server", "err", err)
		case found > 0:
			inf.health.differs(found)
			inf.Relist(l.namespace, fmt.Errorf(
				"compared with the server, the cache is wrong about %d objects, %s for one: events must have been lost",
				found, example))
		}
	}
}

// stamp is what is compared of an object.
type stamp struct {
	uid             types.UID
	resourceVersion string
}

// differences counts the objects that the server lists in another state than the store has, and names one.
//
// Events are always under way, so a difference proves nothing by itself. But if the store has reached the version of
// the list, and a key has not been touched since before the list was asked for, then the store must hold what the list
// says.
func (inf *SharedIndexInformer[T]) differences(ctx context.Context, l *listWatch[T]) (found int, example Key,
	err error) {
	var due uint64
	begun := inf.asWriter(ctx, func() { l.touched, due = make(map[Key]struct{}), l.due })
	if !begun {
		return 0, example, ctx.Err()
	}
	before := l.health.get()
	var listed map[Key]stamp
	if panicked := lifecycle.Apart(func() { listed, err = inf.stamps(ctx, l) }); panicked != nil {
		err = fmt.Errorf("a method of an object: %w", panicked)
	}
	inf.asWriter(ctx, func() {
		// A list that was under way, or is due since, lets the store leap over what has happened; and it is a
		// comparison by itself.
		if h := l.health.get(); err == nil && h.Lists == before.Lists && before.Listed == before.Lists &&
			l.due == due && !l.left {
			found, example = inf.compare(l, listed)
		}
		l.touched = nil
	})
	return found, example, err
}

// touch takes note that a key's turn in the pipeline has come, even if nothing came of it: an object may be created and
// deleted on its way to the store. The caller holds the writer token.
func (l *listWatch[T]) touch(key Key) {
	if l.touched != nil {
		l.touched[key] = struct{}{}
	}
}

// asWriter calls fn with the writer token, unless ctx ends before it is to be had.
func (inf *SharedIndexInformer[T]) asWriter(ctx context.Context, fn func()) bool {
	select {
	case inf.writer <- struct{}{}:
		defer inf.unlockWriter()
		fn()
		return true
	case <-ctx.Done():
		return false
	}
}

// compare is the last part of differences. The caller holds the writer token.
func (inf *SharedIndexInformer[T]) compare(l *listWatch[T], listed map[Key]stamp) (found int, example Key) {
	differs := func(key Key) {
		if _, touched := l.touched[key]; !touched {
			found, example = found+1, key
		}
	}
	nameless := false
	for key, s := range listed {
		if key.Name == "" { // it could not be read: see quarantine
			nameless = true
			continue
		}
		row, held := inf.store.Find(key)
		_, invalid := inf.store.invalid[key]
		if !invalid && (!held || s.uid != inf.store.Facts(row).uid ||
			s.resourceVersion != inf.store.Facts(row).resourceVersion) {
			differs(key)
		}
	}
	if nameless {
		return found, example // each of those that seem to be missing may be the one
	}
	for _, key := range inf.store.Keys() {
		if _, exists := listed[key]; !exists && l.has(key) {
			differs(key)
		}
	}
	return found, example
}

// stamps lists the objects as they were at the version that the store has reached. If the server answers with another
// version, it waits for the store to reach that.
func (inf *SharedIndexInformer[T]) stamps(ctx context.Context, l *listWatch[T]) (map[Key]stamp, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	opts := *l.reflector.wanted.Load()
	opts.Limit = inf.pageSize
	at := l.reached.get()
	opts.ResourceVersion, opts.ResourceVersionMatch = at, metav1.ResourceVersionMatchExact
	stamps := make(map[Key]stamp)
	for {
		list, err := l.reflector.page(ctx, opts, pageTimeout, func(_ *metav1.ListMeta, arrived []wire.Event) error {
			for _, a := range arrived {
				object, err := meta.Accessor(a.Object)
				if err != nil {
					return err
				}
				if kube.IsNil(object) {
					stamps[Key{}] = stamp{} // as good as one without a readable name
					continue
				}
				stamps[KeyOf(object)] = stamp{object.GetUID(), object.GetResourceVersion()}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		opts.Continue, opts.ResourceVersion, opts.ResourceVersionMatch = list.Continue, "", ""
		if opts.Continue != "" {
			continue
		}
		if list.ResourceVersion != at {
			err = inf.WaitForResourceVersion(ctx, l.namespace, list.ResourceVersion)
		}
		return stamps, err
	}
}

// A comparison that takes longer than this is given up. An idle store learns of a new version by a bookmark, which
// comes about once a minute.
const verifyTimeout = 10 * time.Minute
