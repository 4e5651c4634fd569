package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// Controllers returns the controllers of the Manager, in the order of ManagerOptions.Controllers.
func (m *Manager) Controllers() []*Controller { return slices.Clone(m.opts.Controllers) }

// Inspect returns what the Manager, its controllers and its informers look like. It may be called at any time. Locks
// are held for microseconds, however many keys there are.
func (m *Manager) Inspect() status.Manager {
	s := m.outline()
	for _, c := range m.opts.Controllers {
		s.Controllers = append(s.Controllers, c.Inspect())
	}
	s.NotReady, s.NotHealthy = m.notReady(), m.notHealthy()
	return s
}

// outline is Inspect without the controllers and without what is wrong. m may be nil: then Run has not been called.
func (m *Manager) outline() status.Manager {
	s := status.Manager{At: time.Now(), Stage: status.StageNotStarted}
	if m == nil {
		return s
	}
	s.Stage, s.StageSince, s.Started = m.progress.now()
	switch missing := m.ready.Load(); {
	case s.Stage == status.StageSyncing && missing != nil:
		s.WaitsFor = *missing
	case s.Stage == status.StageHandover:
		s.WaitsFor = fmt.Sprintf("its caches to show what the last leader wrote, for %.0f s at most",
			(2 * debts.DoubtAfter).Seconds())
	}
	s.Leadership = m.leadership()
	for _, inf := range m.informers {
		s.Informers = append(s.Informers, inspectInformer(inf.Informer, m.opts.ErrorTexts))
	}
	return s
}

// inspectInformer returns what an informer says. Those of package informer say more than an Informer has to.
func inspectInformer(inf Informer, withText bool) status.Informer {
	h := inf.Health()
	s := status.Informer{Name: inf.Name(), Group: h.Resource.Group, Version: h.Resource.Version,
		Resource: h.Resource.Resource, State: string(h.State), Since: h.Since, Reason: debts.ReasonOf(h, withText),
		LastProgress: h.LastProgress, Lists: h.Lists, Rewinds: h.Rewinds, Unknown: h.Unknown,
		ByMetadata: h.ByMetadata, Slices: h.Slices, Rejected: h.Rejected, Queued: h.Queued, Bytes: h.Bytes}
	s.Silent = tooQuiet(h, time.Now())
	if counted, ok := inf.(interface{ Len() int }); ok {
		s.Objects = counted.Len()
	}
	if of, ok := inf.(anyDynamic); ok {
		s.Namespaces = of.parts(withText)
	}
	tracked, ok := inf.(debts.Informer)
	if !ok {
		return s
	}
	s.ResourceVersion = tracked.ResourceVersion(metav1.NamespaceAll)
	if scoped, ok := inf.(interface{ Scope() informer.Scope }); ok {
		for _, name := range scoped.Scope().Namespaces {
			if name != metav1.NamespaceAll {
				s.Namespaces = append(s.Namespaces, debts.PartOf(tracked, name, name, withText))
			}
		}
	}
	return s
}

// longSilence is how long a server is silent that has something to hide: it sends a bookmark about once a minute.
const longSilence = 5 * time.Minute

// tooQuiet reports whether nothing has come for so long that changes may be missing, although the cache is Live.
func tooQuiet(h informer.Health, now time.Time) bool {
	return h.State == informer.Live && !h.LastProgress.IsZero() && now.Sub(h.LastProgress) > longSilence
}

// Inspect returns what the controller looks like. It may be called at any time after NewManager.
func (c *Controller) Inspect() status.Controller {
	s := c.outline()
	for _, source := range c.sources {
		s.Sources = append(s.Sources, source.name)
		s.Panicking += source.invalid.Len()
	}
	for _, ch := range c.channels {
		s.Sources = append(s.Sources, "WatchesChan "+ch.name)
	}
	for _, n := range c.needs {
		s.Sources = append(s.Sources, "Needs "+n.family.Name())
	}
	for source := range c.comers.sources() {
		s.Panicking += source.invalid.Len()
	}
	for _, ca := range c.ledger.Caches() {
		if ca.Subject {
			s.Objects += ca.Len()
		}
	}
	s.Recent = c.keys.Recent()
	return s
}

// outline is Inspect without what takes copies.
func (c *Controller) outline() status.Controller {
	now := c.Stats()
	s := status.Controller{Name: c.name, Workers: c.workers, Timeout: c.timeout, Ready: now.Queue.Ready,
		Running: now.Queue.Active, Delayed: now.Queue.Delayed, Failing: now.Queue.Failing, Parked: now.Parked,
		Stuck: now.Stuck, Hot: now.HotKeys, OldestReady: now.Queue.OldestReady, LongestRun: now.Queue.LongestActive,
		LongestParked: now.LongestParked, Adds: now.Queue.Adds, Retries: now.Queue.Retries, HotLoops: now.HotLoops,
		Paused: now.Paused}
	c.keys.Sums(&s)
	return s
}

// InspectKeys returns a line for each key that there is: those of the objects of [For], those in the queue, and those
// that are parked, paused or remembered; in no particular order. It copies a part of the queue at a time, so the loop
// goes on meanwhile (BenchmarkInspectKeys).
func (c *Controller) InspectKeys() []status.KeySummary {
	items, n := c.queue.Snapshot(), 0
	for _, ca := range c.ledger.Caches() {
		if ca.Subject {
			n = max(n, ca.Len())
		}
	}
	n = max(n, len(items))
	list, seen, index := make([]status.KeySummary, 0, n), make([]keys.Seen, 0, n), make(map[Key]int, n)
	of := func(key Key) (*status.KeySummary, *keys.Seen) {
		i, ok := index[key]
		if !ok {
			i = len(list)
			index[key] = i
			list = append(list, status.KeySummary{Namespace: key.Namespace, Name: key.Name})
			seen = append(seen, keys.Seen{Exists: true}) // or is named, or remembered
		}
		return &list[i], &seen[i]
	}
	for _, ca := range c.ledger.Caches() {
		if ca.Subject {
			for _, key := range ca.Keys() {
				of(key)
			}
		}
	}
	for _, key := range c.keys.Known() {
		of(key)
	}
	for _, item := range items {
		s, k := of(item.Key)
		s.Next, s.Failures, s.Priority, s.Group = item.Next, item.Failures, int(item.Priority), item.Group
		k.Item, k.Queued = item, true
	}
	for i, s := range list {
		seen[i].Shard = shardOf(c.shards, Key{Namespace: s.Namespace, Name: s.Name})
	}
	stage, since := c.stage()
	c.keys.List(list, seen, stage, since)
	return list
}

// InspectKey returns all that is known of a key, whether there is an object of that name or not. It may be called at
// any time after NewManager.
func (c *Controller) InspectKey(key Key) status.Key {
	s := status.Key{At: time.Now(), Controller: c.name, Namespace: key.Namespace, Name: key.Name}
	item, ahead, queued := c.queue.Lookup(key)
	s.Next, s.Failures, s.Priority, s.Group, s.Again = item.Next, item.Failures, int(item.Priority), item.Group,
		item.Again
	if s.Failures == 0 {
		s.Failures = c.queue.NumRequeues(key)
	}
	if item.State == workqueue.Ready {
		s.Ahead, s.Ready = ahead, c.queue.Len()
	}
	exists := false
	for _, source := range c.sources {
		if source.subject {
			o := source.inspect(key, c.errorTexts)
			s.Objects = append(s.Objects, o)
			exists = exists || o.Exists || o.Invalid != nil
		}
	}
	s.Doubt = c.doubt(key, s.At)
	m, outline := c.manager.outline(), c.outline()
	s.Shard = shardOf(c.shards, key)
	c.keys.Describe(&s, keys.Seen{Item: item, Queued: queued, Exists: exists, Shard: s.Shard}, m.Stage, m.StageSince)
	s.Debts = c.ledger.Owed(key, c.errorTexts) // after the state: a key that is parked without debts is about to run
	s.Why = status.Why(&s, &outline, &m)
	return s
}

// stage returns what the controller's Manager does, and since when.
func (c *Controller) stage() (status.Stage, time.Time) {
	if c.manager == nil {
		return status.StageNotStarted, time.Time{}
	}
	stage, since, _ := c.manager.progress.now()
	return stage, since
}

// inspect returns what the cache of a source has under a key.
func (s *source) inspect(key Key, withText bool) status.Object {
	c := s.cache
	o := status.Object{Informer: c.Name(), OutOfScope: c.HealthIn(c.PlaceOf(key)).State == "" || !c.MayKeep(key)}
	var v informer.Version
	v, o.Exists = c.Version(key)
	o.ResourceVersion, o.Deleting = v.ResourceVersion, v.Deleting
	if why := s.invalidObject(key); why != nil {
		o.Invalid = status.ErrorOf(why, withText)
		if state := new(informer.InvalidError); errors.As(why, &state) && state.Object != nil {
			o.InvalidVersion = state.Object.ResourceVersion
		}
	}
	object, _ := c.Object(key)
	if m, ok := object.(metav1.Object); ok && o.Exists {
		o.Owner = ownerOf(m)
	}
	return o
}

// Why says in a sentence or two why a key is not being reconciled at this moment, or that it is, and what would change
// that. It is for people; [Controller.InspectKey] returns the same text among the facts that it is made of. There is an
// answer for every key, also for one that does not exist, at any time after NewManager. It has no value of an object,
// and no text of an error unless ManagerOptions.ErrorTexts is set.
func (c *Controller) Why(key Key) string { return c.InspectKey(key).Why }

// doubt returns the first reason why changes that would name a key may be missed, or nil.
func (c *Controller) doubt(key Key, now time.Time) *status.Doubt {
	needed, _ := c.needed(nil, key) // if nobody knows, its own
	for _, source := range c.sourcesOf(key) {
		if object, n := source.invalid.Example(); n > 0 && !source.subject {
			return &status.Doubt{Source: source.name, Panicking: n, Example: object.String()}
		}
		for _, namespace := range needed {
			h := source.cache.HealthIn(namespace)
			d := &status.Doubt{Source: source.name, Informer: source.cache.Name(), CacheState: string(h.State),
				Since: h.Since, Reason: debts.ReasonOf(h, c.errorTexts)}
			switch {
			case tooQuiet(h, now):
				d.Since = h.LastProgress
				return d
			case h.State != informer.Live && h.State != "":
				return d
			}
		}
	}
	return nil
}

// sourcesOf returns the sources that may name a key.
func (c *Controller) sourcesOf(key Key) []source {
	all := c.sources
	for _, n := range c.needs {
		for _, ca := range n.caches(key) {
			all = append(all[:len(all):len(all)], c.comers.of(ca)...)
		}
	}
	return all
}

// ownerOf returns the controlling owner of an object, or nil.
func ownerOf(o metav1.Object) *status.Owner {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil {
		return nil
	}
	group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
	return &status.Owner{Group: group, Kind: ref.Kind, Name: ref.Name}
}
