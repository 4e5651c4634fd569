package informer

import (
	"cmp"
	"context"
	"fmt"
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
// written. If the request fails, the error wraps the client's and names the key. If the object exists and is none of
// those that Options.Shard keeps, the error may wrap [ErrNotKept].
func (inf *SharedIndexInformer[T]) Live(ctx context.Context, key Key) (value T, exists bool, err error) {
	it, exists, invalid, err := inf.followed.Load().live(ctx, key)
	if err = cmp.Or(err, invalid); err != nil {
		return value, false, fmt.Errorf("informer %s: live list of %s: %w", inf.name, key, err)
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
	return Version{f.uid, f.resourceVersion, f.deleting}, true
}

// live lists the one object of that key. invalid is why it cannot be decoded.
func (c *followed[T]) live(ctx context.Context, key Key) (found item[T], exists bool, invalid, err error) {
	l := c.listWatch(key)
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
			return found, false, nil, err
		}
		terms = append(terms, own)
	}
	opts.FieldSelector = fields.AndSelectors(terms...).String()

	visit := func(_ *metav1.ListMeta, arrived []wire.Event) error {
		for _, a := range arrived {
			a.Object = a.Object.DeepCopyObject() // it may have parts in common with objects in the cache: see Client
			// The key is compared, for the server may not know the selector.
			if it, decoding := l.reflector.itemOf(a); it.key == key {
				found, exists, invalid = it, true, decoding
			}
		}
		return nil
	}
	if _, err = fetch(ctx, l.reflector.source, opts, listTimeout, visit); err != nil {
		return item[T]{}, false, nil, err
	}
	return found, exists, invalid, nil
}

// verifier compares a list-watch's part of the store with the server from time to time: see Options.VerifyEvery.
type verifier[T any] struct {
	inf *SharedIndexInformer[T]
	l   *listWatch[T]
	log klog.Logger
}

// run returns when ctx has ended.
func (v *verifier[T]) run(ctx context.Context) {
	every := v.inf.verifyEvery
	for ctx.Err() == nil {
		// List-watches that started together should not list together.
		lifecycle.Sleep(ctx, every*9/10+lifecycle.RandomDuration(every/5, v.l.reflector.purpose))
		if ctx.Err() != nil || v.l.health.get().State != Live {
			continue
		}
		found, example, err := v.differences(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			v.log.V(1).Info("The cache could not be compared with the server", "err", err)
		case found > 0:
			v.inf.health.differs(found)
			v.inf.Relist(v.l.id(), fmt.Errorf(
				"compared with the server, the cache is wrong about %d objects, %s for one: events must have been lost",
				found, example))
		}
	}
}

// differences counts the objects that the server lists in another state than the store has, and names one.
//
// Events are always under way, so a difference proves nothing by itself. But if the store has reached the version of
// the list, and a key has not been touched since before the list was requested, then the store must hold what the list
// says.
func (v *verifier[T]) differences(ctx context.Context) (found int, example Key, err error) {
	var due uint64
	v.l.fifo.comparing.Store(true)
	defer v.l.fifo.comparing.Store(false)
	share := v.inf.share.now()
	begun := v.inf.writeUnless(ctx, nil, func(*writer[T]) { v.l.touched, due = make(map[Key]struct{}), v.l.due })
	if !begun {
		return 0, example, ctx.Err()
	}
	before := v.l.health.get()
	listed, err := v.list(ctx)
	v.inf.writeUnless(ctx, nil, func(w *writer[T]) {
		// A list that was under way, or is due since, lets the store leap over what has happened; and it is a
		// comparison by itself.
		if h := v.l.health.get(); err == nil && h.Lists == before.Lists && before.Listed == before.Lists &&
			v.l.due == due && v.l.heirs == nil && v.inf.share.now() == share &&
			v.inf.share.growth() <= v.l.filled.Load() {
			found, example = w.compare(v.l, listed)
		}
		v.l.touched = nil
	})
	return found, example, err
}

// touch notes that the writer has dealt with a key, even if nothing came of it: an object may be created and deleted on
// its way to the store. Only the writer calls it.
func (l *listWatch[T]) touch(key Key) {
	if l != nil && l.touched != nil { // nil: the key has left the scope
		l.touched[key] = struct{}{}
	}
}

// compare is the last part of differences.
func (w *writer[T]) compare(l *listWatch[T], listed map[Key]Version) (found int, example Key) {
	differs := func(key Key) {
		if _, touched := l.touched[key]; !touched {
			found, example = found+1, key
		}
	}
	nameless := false
	for key, v := range listed {
		if key.Name == "" { // it could not be read: see reflector.receive
			nameless = true
			continue
		}
		row, held := w.store.Find(key)
		_, invalid := w.store.invalid[key]
		if !invalid && (!held || v.UID != w.store.Facts(row).uid ||
			v.ResourceVersion != w.store.Facts(row).resourceVersion) {
			differs(key)
		}
	}
	if nameless {
		return found, example // each of those that seem to be missing may be the one
	}
	for row, end := l.rows(w.store); row < end; row++ {
		key := w.store.Key(row)
		if _, exists := listed[key]; !exists && l.has(key) {
			differs(key)
		}
	}
	return found, example
}

// list requests the objects as they were at the version that the store has reached. If the server answers with another
// version, it waits for the store to reach that.
func (v *verifier[T]) list(ctx context.Context) (map[Key]Version, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	opts := *v.l.reflector.wanted.Load()
	opts.Limit = v.inf.pageSize
	at := v.l.reached.get()
	opts.ResourceVersion, opts.ResourceVersionMatch = at, metav1.ResourceVersionMatchExact
	listed := make(map[Key]Version)
	for {
		from := v.l.reflector.source
		list, err := fetch(ctx, from, opts, listTimeout, func(_ *metav1.ListMeta, arrived []wire.Event) error {
			for _, a := range arrived {
				object, err := meta.Accessor(a.Object)
				if err != nil {
					return err
				}
				if kube.IsNil(object) {
					listed[Key{}] = Version{} // as good as one without a readable name
					continue
				}
				if !v.l.reflector.keeps(a) {
					continue
				}
				listed[KeyOf(object)] = Version{UID: object.GetUID(), ResourceVersion: object.GetResourceVersion()}
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
			err = v.inf.WaitForResourceVersion(ctx, v.l.id(), list.ResourceVersion)
		}
		return listed, err
	}
}

// A comparison that takes longer than this is given up. An idle store learns of a new version by a bookmark, which
// comes about once a minute.
const verifyTimeout = 10 * time.Minute
