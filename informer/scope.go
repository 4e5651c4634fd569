package informer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Scope is what an informer holds, of what its client can see.
type Scope struct {
	// Namespaces are those whose objects are held, each of which is listed and watched by itself. NamespaceAll stands
	// alone, for all of them in one list. An empty slice stands for none, and nil for a mistake. Only an informer made
	// by [NewNamespaced] has any.
	Namespaces []string
	// LabelSelector and FieldSelector restrict what is held in each namespace. Nil: everything.
	LabelSelector labels.Selector
	FieldSelector fields.Selector
	share         *share // of Options.Shard, which Rescope does not change

	// ByName says that those objects only are held that are named: see [NewReferenced]. Rescope cannot change it, nor
	// anything else of such a scope.
	ByName bool
}

// Sharded reports whether Options.Shard keeps a share only of the objects of the scope.
func (s Scope) Sharded() bool { return s.share != nil }

// Keeps reports whether the share has an object with this metadata at this moment: see [Shard]. Without one it does.
func (s Scope) Keeps(o *metav1.ObjectMeta) bool { return s.share == nil || s.share.keepsObject(o) }

// ByKey reports whether the share depends on nothing but the keys of objects.
func (s Scope) ByKey() bool { return s.share != nil && s.share.KeyOnly() }

// MayKeep is Keeps for an object of which no more than the key is known. It returns true where that is not enough to
// tell.
func (s Scope) MayKeep(key Key) bool {
	return !s.ByKey() || s.share.keepsKey(key)
}

// NewNamespaced makes an informer for the objects of some namespaces: one store, one set of handlers, one Run, and a
// list and a watch for each namespace. It is for a program that has no right to list the whole cluster, or no use for
// it.
//
//	pods, err := informer.NewNamespaced(resource.In, []string{"team-a", "team-b"}, informer.Options[*corev1.Pod]{})
//
// client makes the client of a namespace: the method In of a [Resource], dynamicClient.Resource(gvr).Namespace, or the
// methods of that shape that every clientset has, such as clientset.CoreV1().Pods.
//
// The namespaces are independent: if one is refused, unreachable or restored from a backup, the informer follows the
// others as before. The informer is synced when it holds a complete list of each. [SharedIndexInformer.Rescope]
// changes the set while it runs, and it may begin with none: []string{}. A namespace need not exist. Options hold for
// each namespace; Options.Transform is called for several of them at once.
//
// It returns the errors of [New], and one that wraps [ErrScope] if namespaces is nil, or has one twice, or one that
// cannot be a namespace's name.
func NewNamespaced[T Object, L runtime.Object, C Client[L]](client func(namespace string) C, namespaces []string,
	opts Options[T]) (*SharedIndexInformer[T], error) {
	share := newShare(opts.Shard)
	from := each[T, L](client, decoders(opts.change(true), false, share))
	from.share = share
	return build(from, namespaces, opts, decodeObject(opts.Transform))
}

// each is the origin of an informer that has a client for each namespace, and one decoder for all of them.
func each[T Object, L runtime.Object, C Client[L]](client func(namespace string) C,
	decoder func(wire.Type) *wire.Decoder) origin {
	from := origin{namespaced: true, source: func(namespace string) (source, error) {
		return newSource[T, L](client(namespace), decoder)
	}}
	if client == nil {
		from.mistake = errors.New("the function that makes the clients is nil")
	}
	return from
}

// Scope returns what the informer holds, or is about to.
func (inf *SharedIndexInformer[T]) Scope() Scope {
	s := inf.followed.Load().scope
	s.Namespaces = slices.Clone(s.Namespaces)
	return s
}

// Rescope changes what the informer holds, at any time before its end:
//
//	scope := pods.Scope()
//	scope.Namespaces = append(scope.Namespaces, "team-c")
//	err := pods.Rescope(scope)
//
// The informer lists and watches a new namespace from now on, and tells handlers Added, with Initial set, of its
// objects. When Rescope returns, the objects of a removed namespace have left the store. Handlers are told Deleted of
// each of them, with FinalStateUnknown set; inline handlers are called before Rescope returns. Between some namespaces
// and NamespaceAll, the objects of those that the informer follows before and after stay in the store, and handlers are
// told only what has changed, when the new list is complete. If a
// selector changes, the informer lists every namespace anew. Once such a list is complete, handlers have been told
// Deleted of the objects that are no longer selected and Added of those that are selected now; of the others they are
// told only what has changed. A namespace that stays, with the same selectors, is not listed anew.
//
// Rescope does not wait for lists: [SharedIndexInformer.WaitForSync] does. It must not be called by an inline handler
// or an index function.
//
// The error wraps [ErrScope] if the scope makes no sense, or is what the function given to NewNamespaced says of a
// namespace; it is [ErrStopped] once Run has ended. Then nothing has changed.
func (inf *SharedIndexInformer[T]) Rescope(to Scope) error {
	var err error
	if stopped := inf.write(func(w *writer[T]) { err = w.rescope(to) }); stopped != nil {
		err = stopped
	}
	if err != nil {
		return fmt.Errorf("informer %s: Rescope: %w", inf.name, err)
	}
	return nil
}

func (w *writer[T]) rescope(to Scope) error {
	inf := w.inf
	from := inf.followed.Load()
	if from.scope.ByName || to.ByName {
		return fmt.Errorf("%w: what names the objects says which are held; NewReferenced makes such an informer",
			ErrScope)
	}
	next, err := from.rescoped(inf, to)
	if err != nil {
		return err
	}
	joining := next.besides(from)
	from.handDown(joining)
	return w.follow(next, joining, from.besides(next))
}

// follow replaces what the informer follows. Of the list-watches some are new, and some are no longer among them.
func (w *writer[T]) follow(next *followed[T], joining, leaving []*listWatch[T]) error {
	inf := w.inf
	inf.mu.Lock()
	if inf.ending {
		inf.mu.Unlock()
		return ErrStopped
	}
	from := inf.followed.Swap(next)
	if next.selector != from.selector {
		for _, l := range from.listWatches {
			if next.of(l.part) == l {
				l.listAnew(next.selector)
			}
		}
	}
	if inf.follow != nil {
		for _, l := range joining {
			inf.follow(l)
		}
	}
	inf.mu.Unlock()
	for _, l := range leaving {
		w.leave(l, next)
	}
	w.sync() // it may have been complete but for those that have left
	return nil
}

// leave takes a list-watch that is no longer followed, and all that came by it and has no heir, out of the informer.
func (w *writer[T]) leave(l *listWatch[T], heirs *followed[T]) {
	l.heirs = heirs
	if l.stop != nil {
		l.stop() // Run waits for its goroutines, and Rescope does not: they may be stuck
	}
	w.sweep(l, math.MaxUint64, w.inf.share.growth())
	l.fifo.drop()
	w.reach(l, "")
}

// rescoped returns what is to be followed for another scope. The list-watches that are followed already are the same;
// nothing has been changed yet.
func (from *followed[T]) rescoped(inf *SharedIndexInformer[T], to Scope) (*followed[T], error) {
	namespaces, err := to.namespaces(inf.origin.namespaced)
	selector, unselectable := to.selector()
	err = errors.Join(err, unselectable, inf.origin.mistake)
	if inf.origin.mistake != nil {
		return nil, err
	}
	next := &followed[T]{scope: to, selector: selector, since: time.Now(), synced: from.synced}
	next.scope.share = inf.share
	news := next.selector != from.selector
	for _, namespace := range namespaces {
		p := part{namespace: namespace}
		l := from.of(p)
		if l == nil {
			src, sourceless := inf.origin.of(namespace)
			if sourceless != nil { // that of one namespace will do: it is mostly the same for all
				return nil, errors.Join(err, sourceless)
			}
			l, news = newListWatch(inf, p, src, next.selector), true
		}
		next.listWatches = append(next.listWatches, l)
	}
	if err != nil {
		return nil, err
	}
	if inf.origin.namespaced {
		next.scope.Namespaces = namespaces
	}
	if next.synced == nil || closed(next.synced) && news {
		next.synced = make(chan struct{})
	}
	return next, nil
}

// handDown tells new list-watches how far the store has got with the objects that they take over: those that leave
// theirs in the store are of all namespaces, and the new ones of some, or the other way round.
func (from *followed[T]) handDown(joining []*listWatch[T]) {
	for _, l := range joining {
		for _, before := range from.listWatches {
			if !before.has(Key{Namespace: l.namespace}) && l.part != whole {
				continue
			}
			l.rewound = max(l.rewound, before.rewound)
			if before.newest != "" && !kube.Older(before.newest, l.newest) {
				l.newest = before.newest
			}
		}
		l.reflector.newest = l.newest
	}
}

// of makes the source of a namespace's list-watch.
func (o origin) of(namespace string) (source, error) {
	src, err := o.source(namespace)
	if err != nil && namespace != metav1.NamespaceAll {
		err = fmt.Errorf("namespace %s: %w", namespace, err)
	}
	return src, err
}

// namespaces returns those of the list-watches for a scope, in order, or what is wrong with them.
func (s Scope) namespaces(namespaced bool) ([]string, error) {
	switch {
	case !namespaced && len(s.Namespaces) > 0:
		return nil, fmt.Errorf("%w: it has namespaces, and the informer one client, for whatever that lists; "+
			"NewNamespaced makes one for namespaces", ErrScope)
	case !namespaced:
		return []string{metav1.NamespaceAll}, nil
	case s.ByName:
		return nil, nil
	case s.Namespaces == nil:
		return nil, fmt.Errorf("%w: its Namespaces are nil; []string{} stands for none, and NamespaceAll, the empty "+
			"one, for all", ErrScope)
	}
	names := slices.Clone(s.Namespaces) // not nil
	slices.Sort(names)
	if len(names) > 0 && names[0] == metav1.NamespaceAll && len(names) > 1 {
		return nil, fmt.Errorf("%w: NamespaceAll, the empty one, stands beside namespace %q, which it includes",
			ErrScope, names[1])
	}
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			return nil, fmt.Errorf("%w: namespace %q is given twice", ErrScope, name)
		}
		if wrong := validation.IsDNS1123Label(name); name != metav1.NamespaceAll && len(wrong) > 0 {
			return nil, fmt.Errorf("%w: %q cannot be the name of a namespace: %s", ErrScope, name,
				strings.Join(wrong, ", "))
		}
	}
	return names, nil
}

// selector returns the selectors of a scope as requests have them. Those that select nothing look there like those that
// select everything.
func (s Scope) selector() (opts metav1.ListOptions, err error) {
	if s.LabelSelector != nil {
		opts.LabelSelector = s.LabelSelector.String()
		if opts.LabelSelector == "" && !s.LabelSelector.Empty() {
			err = fmt.Errorf("%w: the label selector selects nothing", ErrScope)
		}
	}
	if s.FieldSelector != nil {
		opts.FieldSelector = s.FieldSelector.String()
		if opts.FieldSelector == "" && !s.FieldSelector.Empty() {
			err = errors.Join(err, fmt.Errorf("%w: the field selector selects nothing", ErrScope))
		}
	}
	return opts, err
}
