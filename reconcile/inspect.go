package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/informer"
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
			(2 * doubtAfter).Seconds())
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
		Resource: h.Resource.Resource, State: string(h.State), Since: h.Since, Reason: reasonOf(h, withText),
		LastProgress: h.LastProgress, Lists: h.Lists, Rewinds: h.Rewinds, Unknown: h.Unknown,
		Rejected: h.Rejected, Queued: h.Queued, Bytes: h.Bytes}
	s.Silent = tooQuiet(h, time.Now())
	if counted, ok := inf.(interface{ Len() int }); ok {
		s.Objects = counted.Len()
	}
	tracked, ok := inf.(trackedInformer)
	if !ok {
		return s
	}
	s.ResourceVersion = tracked.ResourceVersion(metav1.NamespaceAll)
	if scoped, ok := inf.(interface{ Scope() informer.Scope }); ok {
		for _, name := range scoped.Scope().Namespaces {
			if name == metav1.NamespaceAll {
				continue
			}
			h := tracked.HealthIn(name)
			s.Namespaces = append(s.Namespaces,
				status.Namespace{Name: name, ResourceVersion: tracked.ResourceVersion(name),
					State: string(h.State), Since: h.Since, Reason: reasonOf(h, withText),
					LastProgress: h.LastProgress})
		}
	}
	return s
}

// reasonOf returns why a cache is not Live, or nil.
func reasonOf(h informer.Health, withText bool) *status.Error {
	if h.State == informer.Live {
		return nil
	}
	return status.ErrorOf(h.LastError, withText)
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
		s.Panicking += int(source.invalid.n.Load())
	}
	for _, ch := range c.channels {
		s.Sources = append(s.Sources, "WatchesChan "+ch.name)
	}
	for _, ca := range c.ledger.caches {
		if ca.subject {
			s.Objects += ca.Len()
		}
	}
	h := c.history
	h.mu.Lock()
	s.Remembered = h.past.full + h.past.last.Len()
	s.Recent = slices.Concat(h.past.recent[h.past.next:], h.past.recent[:h.past.next])
	h.mu.Unlock()
	slices.Reverse(s.Recent)
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
	h := c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Runs, s.Failures, s.Failed, s.Invalid = h.past.runs, h.past.failures, h.past.failed, h.past.invalid
	return s
}

// InspectKeys returns a line for each key that there is: those of the objects of [For], those in the queue, and those
// that are parked, paused or remembered; in no particular order. It copies a part of the queue at a time, so the loop
// goes on meanwhile (BenchmarkInspectKeys).
func (c *Controller) InspectKeys() []status.KeySummary {
	items := c.queue.Snapshot()
	all := newKeySummaries(c, len(items))
	for _, ca := range c.ledger.caches {
		if ca.subject {
			for _, key := range ca.Keys() {
				all.of(key)
			}
		}
	}
	for _, k := range rememberedKeys(c.history) {
		all.addRecord(k)
	}
	for _, item := range items {
		all.addItem(item)
	}
	parked, paused, refused, stuck := parkedKeys(c.ledger), c.paused.all(), c.refusals.all(), c.stuck.all()
	for key := range parked {
		all.of(key)
	}
	for key := range paused {
		all.of(key)
	}
	stage, since := c.stage()
	for i := range all.list {
		s := &all.list[i]
		key := Key{Namespace: s.Namespace, Name: s.Name}
		f := keyFacts{s.State, s.Since, refused[key], parked[key], paused[key], slices.Contains(stuck, key)}
		if s.State, s.Since = f.state(stage, since); s.State == status.KeyStuck {
			s.LastRun, s.LastResult = time.Time{}, "" // those of the run before
		}
	}
	return all.list
}

// keyFacts is what decides the state of a key.
type keyFacts struct {
	// own is the state that the queue knows, or that the last run has left the key in, and since when.
	own            status.KeyState
	since          time.Time
	refused        bool
	parked, paused time.Time // since when; zero: it is not
	stuck          bool      // while it runs
}

// state is the only place that says the state of a key.
func (f keyFacts) state(stage status.Stage, stageSince time.Time) (status.KeyState, time.Time) {
	switch {
	case f.own == status.KeyRunning && f.stuck:
		return status.KeyStuck, f.since
	case f.own == status.KeyRunning:
		return status.KeyRunning, f.since
	case stage != status.StageWorking:
		return stateIn[stage], stageSince
	case !f.paused.IsZero():
		return status.KeyPaused, f.paused
	case !f.parked.IsZero():
		return status.KeyParked, f.parked
	case f.refused:
		return status.KeyBackingOff, f.since
	}
	return f.own, f.since
}

// keySummaries are being put together: what is added later counts more.
type keySummaries struct {
	list  []status.KeySummary
	byKey map[Key]int // the index in the list
	hot   map[Key]time.Time
}

// newKeySummaries has room for the objects of For, or for that many keys if they are more.
func newKeySummaries(c *Controller, keys int) *keySummaries {
	for _, ca := range c.ledger.caches {
		if ca.subject {
			keys = max(keys, ca.Len())
		}
	}
	return &keySummaries{list: make([]status.KeySummary, 0, keys), byKey: make(map[Key]int, keys),
		hot: restingKeys(c.history)}
}

// of returns the summary of a key. It is valid until the next call.
func (all *keySummaries) of(key Key) *status.KeySummary {
	i, ok := all.byKey[key]
	if !ok {
		i = len(all.list)
		all.byKey[key] = i
		all.list = append(all.list, status.KeySummary{Namespace: key.Namespace, Name: key.Name,
			State: status.KeySettled})
	}
	return &all.list[i]
}

func (all *keySummaries) addRecord(k rememberedKey) {
	s := all.of(k.key)
	s.Runs, s.LastRun, s.LastResult = k.runs, k.last.Started, k.last.Result
	ended := k.last.Started.Add(k.last.Took)
	if k.runs > 0 {
		s.State, s.Since = leaves(&k.last), ended
	}
}

func (all *keySummaries) addItem(item workqueue.Item[Key]) {
	s := all.of(item.Key)
	s.Next, s.Failures, s.Priority, s.Group = item.Next, item.Failures, int(item.Priority), item.Group
	s.State, s.Since = stateOf(item, all.hot[item.Key]), cmp.Or(item.Since, s.Since)
}

// stateOf returns the state of a key that is in the queue. restsUntil is zero unless the key is in a hot loop.
func stateOf(item workqueue.Item[Key], restsUntil time.Time) status.KeyState {
	switch {
	case item.State == workqueue.Active:
		return status.KeyRunning
	case item.State == workqueue.Ready:
		return status.KeyReady
	case !restsUntil.IsZero() && !item.Next.Before(restsUntil):
		return status.KeyResting
	case item.Failures > 0:
		return status.KeyBackingOff
	default:
		return status.KeyScheduled
	}
}

// rememberedKey is a key with a record.
type rememberedKey struct {
	key  Key
	runs int
	last status.Run
}

// rememberedKeys returns the keys with a record. It holds the lock for some of them at a time.
func rememberedKeys(h *keyHistory) []rememberedKey {
	var records []*keyRecord
	h.mu.Lock()
	for e := h.past.byAge.Front(); e != nil; e = e.Next() {
		records = append(records, e.Value.(*keyRecord))
	}
	for e := h.past.last.Front(); e != nil; e = e.Next() {
		records = append(records, e.Value.(*keyRecord))
	}
	h.mu.Unlock()
	list := make([]rememberedKey, 0, len(records))
	for part := range slices.Chunk(records, 1000) {
		h.mu.Lock()
		for _, k := range part {
			r := rememberedKey{key: k.key, runs: len(k.runs)}
			if r.runs > 0 {
				r.last = k.runs[r.runs-1]
			}
			list = append(list, r)
		}
		h.mu.Unlock()
	}
	return list
}

// restingKeys returns the keys that rest because they are in a hot loop, and until when.
func restingKeys(h *keyHistory) map[Key]time.Time {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[Key]time.Time)
	for e := range h.hotKeys {
		if e.record != nil && e.stats.restsUntil.After(now) {
			all[e.record.key] = e.stats.restsUntil
		}
	}
	return all
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
	withText := c.history.errorTexts
	for _, source := range c.sources {
		if source.subject {
			s.Objects = append(s.Objects, source.inspect(key, withText))
		}
	}
	s.Doubt = c.doubt(key.Namespace, s.At)
	f := keyFacts{paused: c.paused.all()[key]}
	s.Debts, f.parked = c.ledger.owed(key, withText)
	addHistory(&s, c.history, key)
	if refused := c.refusals.left(key); refused > 0 {
		f.refused, s.RefusedUntil = true, s.At.Add(refused)
	}
	switch {
	case s.Running != nil:
		f.own, f.since, f.stuck = status.KeyRunning, s.Running.Started, s.Running.Where != ""
	case queued:
		var rests time.Time
		if s.HotLoop != nil && s.HotLoop.RestsUntil.After(s.At) {
			rests = s.HotLoop.RestsUntil
		}
		f.own, f.since = stateOf(item, rests), cmp.Or(item.Since, lastEnd(&s))
	default:
		f.own, f.since = restState(&s), lastEnd(&s)
	}
	m, outline := c.manager.outline(), c.outline()
	s.State, s.Since = f.state(m.Stage, m.StageSince)
	s.Why = status.Why(&s, &outline, &m)
	return s
}

// stateIn is the state of every key that does not run, unless the Manager's workers run.
var stateIn = map[status.Stage]status.KeyState{
	status.StageNotStarted:  status.KeyNotStarted,
	status.StageSyncing:     status.KeySyncing,
	status.StageCampaigning: status.KeyStandby,
	status.StageHandover:    status.KeyStandby,
	status.StageStopping:    status.KeyStandby,
	status.StageStopped:     status.KeyNotStarted,
}

// stage returns what the controller's Manager does, and since when.
func (c *Controller) stage() (status.Stage, time.Time) {
	if c.manager == nil {
		return status.StageNotStarted, time.Time{}
	}
	stage, since, _ := c.manager.progress.now()
	return stage, since
}

// restState returns the state of a key that is not in the queue.
func restState(s *status.Key) status.KeyState {
	if n := len(s.Runs); n > 0 {
		return leaves(&s.Runs[n-1])
	}
	exists := func(o status.Object) bool { return o.Exists || o.Invalid != nil }
	if s.LastQuiet.IsZero() && !slices.ContainsFunc(s.Objects, exists) {
		return status.KeyUnknown
	}
	return status.KeySettled
}

// lastEnd returns when the last run that is remembered ended, or, of one that found nothing to do, began.
func lastEnd(s *status.Key) time.Time {
	if n := len(s.Runs); n > 0 {
		return s.Runs[n-1].Started.Add(s.Runs[n-1].Took)
	}
	return s.LastQuiet
}

// inspect returns what the cache of a source has under a key.
func (s *source) inspect(key Key, withText bool) status.Object {
	c := s.cache
	o := status.Object{Informer: c.Name(), OutOfScope: c.HealthIn(c.placeOf(key)).State == ""}
	var v informer.Version
	v, o.Exists = c.Version(key)
	o.ResourceVersion, o.Deleting = v.ResourceVersion, v.Deleting
	if why := s.invalidObject(key); why != nil {
		o.Invalid = status.ErrorOf(why, withText)
		if state := new(informer.InvalidError); errors.As(why, &state) && state.Object != nil {
			o.InvalidVersion = state.Object.ResourceVersion
		}
	}
	object, _ := c.object(key)
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

// doubt returns the first reason why changes that would name a key in a namespace may be missed, or nil.
func (c *Controller) doubt(namespace string, now time.Time) *status.Doubt {
	for _, source := range c.sources {
		if object, n := source.invalid.example(); n > 0 && !source.subject {
			return &status.Doubt{Source: source.name, Panicking: n, Example: object.String()}
		}
		h := source.cache.HealthIn(namespace)
		d := &status.Doubt{Source: source.name, Informer: source.cache.Name(), CacheState: string(h.State),
			Since: h.Since, Reason: reasonOf(h, c.history.errorTexts)}
		switch {
		case tooQuiet(h, now):
			d.Since = h.LastProgress
			return d
		case h.State != informer.Live && h.State != "":
			return d
		}
	}
	return nil
}

// staleNamespace returns the namespace for which a key of this one waits: a key without a namespace waits for all that
// the informer follows, and the first that may not be acted on is named.
func (c *cache) staleNamespace(namespace string) string {
	scoped, ok := c.trackedInformer.(interface{ Scope() informer.Scope })
	if !ok || namespace != metav1.NamespaceAll {
		return namespace
	}
	for _, name := range scoped.Scope().Namespaces {
		if c.Fresh(name) != nil {
			return name
		}
	}
	return namespace
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

// addHistory adds what the history knows of the key.
func addHistory(s *status.Key, h *keyHistory, key Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.past.recent {
		if r.Namespace == key.Namespace && r.Name == key.Name && r.Started.After(s.LastQuiet) {
			s.LastQuiet = r.Started
		}
	}
	e := h.keys[key]
	if e == nil {
		return
	}
	s.Causes, s.MoreCauses = e.causes.list(), e.causes.more
	if k := e.record; k != nil {
		s.Runs, s.Waits = slices.Clone(k.runs), slices.Clone(k.waits)
	}
	if st := e.stats; st != nil && st.hot() {
		s.HotLoop = &status.HotLoop{Repeats: st.level(), RestsUntil: st.restsUntil, Changing: st.changingFields,
			Undone: st.reverts > max(st.repeats, st.replacements)}
	}
	if e.run != nil {
		s.Running = e.run.describe()
	}
	if s.Running != nil {
		s.Running.Waits, s.Waits = s.Waits, nil
	}
}

// describe returns what is known of a run that goes on, or nil if it has ended. The keyHistory's mu is held.
func (r *run) describe() *status.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil
	}
	w := r.worker
	d := &status.Run{Started: w.began, Took: time.Since(w.began), Causes: w.causes.list(), MoreCauses: w.causes.more}
	if r.details != nil {
		r.details.describe(d)
		d.Request = r.details.pace.latest()
	}
	if where := w.stuckIn.Load(); where != nil {
		d.Where = *where
	}
	return d
}
