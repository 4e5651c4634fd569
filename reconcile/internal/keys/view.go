package keys

import (
	"cmp"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// Seen is what others know of a key: the queue, and the caches of For.
type Seen struct {
	workqueue.Item[Key]
	Queued bool
	Exists bool          // a cache has its object, or cannot take it
	Shard  *status.Shard // as in status.Key
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

// moment is when, and at which stage of the Manager, the state of a key is told.
type moment struct {
	now, since time.Time // since is that of the stage
	stage      status.Stage
}

// stateLocked is the only place that says what a key does or waits for, and since when. running is the run that goes
// on, or nil. lastQuiet is when a run that found nothing to do began, if that is known.
func (e *entry) stateLocked(s Seen, running *status.Run, lastQuiet time.Time, at moment) (status.KeyState, time.Time) {
	ended := lastQuiet
	var last *status.Run
	if e.record != nil && len(e.record.runs) > 0 {
		last = &e.record.runs[len(e.record.runs)-1]
		ended = last.Started.Add(last.Took)
	}
	switch since := cmp.Or(s.Since, ended); {
	case running != nil && running.Where != "":
		return status.KeyStuck, running.Started
	case running != nil:
		return status.KeyRunning, running.Started
	case s.Queued && s.State == workqueue.Active: // between the queue and the call
		return status.KeyRunning, since
	case at.stage != status.StageWorking:
		return stateIn[at.stage], at.since
	case s.Shard != nil && !s.Shard.Here:
		return status.KeyStandby, s.Shard.Since
	case e.heldForLocked(status.WaitPaused) != nil:
		return status.KeyPaused, e.heldForLocked(status.WaitPaused).From
	case e.heldForLocked(status.WaitParked) != nil:
		return status.KeyParked, e.heldForLocked(status.WaitParked).From
	case !e.refusedUntilLocked(at.now).IsZero():
		return status.KeyBackingOff, since
	case s.Queued && s.State == workqueue.Ready:
		return status.KeyReady, since
	case s.Queued && e.restsUntilLocked().After(at.now) && !s.Next.Before(e.restsUntilLocked()):
		return status.KeyResting, since
	case s.Queued && s.Failures > 0:
		return status.KeyBackingOff, since
	case s.Queued:
		return status.KeyScheduled, since
	case last != nil:
		return leaves(last), ended
	case s.Exists || !lastQuiet.IsZero():
		return status.KeySettled, ended
	}
	return status.KeyUnknown, ended
}

// runningLocked describes the run that goes on, or returns nil.
func (e *entry) runningLocked(t *Table) *status.Run {
	if e.run == nil {
		return nil
	}
	return e.run.describeLocked(t)
}

// refusedUntilLocked returns until when the server has asked the key to wait, or zero.
func (e *entry) refusedUntilLocked(now time.Time) time.Time {
	if refused := e.heldForLocked(status.WaitBackoff); refused != nil && refused.To.After(now) {
		return refused.To
	}
	return time.Time{}
}

// restsUntilLocked returns until when the key rests because it is in a hot loop, or zero.
func (e *entry) restsUntilLocked() time.Time {
	if e.stats == nil || !e.stats.hot() {
		return time.Time{}
	}
	return e.stats.restsUntil
}

// Known returns the keys that are held or have a record.
func (t *Table) Known() (all []Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = make([]Key, 0, len(t.held)+t.past.byAge.Len()+t.past.last.Len())
	for key := range t.held {
		all = append(all, key)
	}
	for e := t.past.byAge.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*record).key)
	}
	for e := t.past.last.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*record).key)
	}
	return all
}

// List fills in what is known of each key of a list: seen[i] is of list[i]. It holds the lock for some of them at a
// time.
func (t *Table) List(list []status.KeySummary, seen []Seen, stage status.Stage, since time.Time) {
	const atOnce = 1000
	at, none := moment{time.Now(), since, stage}, &entry{}
	for from := 0; from < len(list); from += atOnce {
		t.mu.Lock()
		for i := from; i < min(from+atOnce, len(list)); i++ {
			s := &list[i]
			e := cmp.Or(t.keys[Key{Namespace: s.Namespace, Name: s.Name}], none)
			s.State, s.Since = e.stateLocked(seen[i], e.runningLocked(t), time.Time{}, at)
			if e.record != nil {
				if s.Runs = len(e.record.runs); s.Runs > 0 && s.State != status.KeyStuck {
					last := e.record.runs[s.Runs-1]
					s.LastRun, s.LastResult = last.Started, last.Result
				}
			}
		}
		t.mu.Unlock()
	}
}

// Describe fills in what is known of one key.
func (t *Table) Describe(s *status.Key, seen Seen, stage status.Stage, since time.Time) {
	key := Key{Namespace: s.Namespace, Name: s.Name}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.past.recent {
		if r.Namespace == key.Namespace && r.Name == key.Name && r.Started.After(s.LastQuiet) {
			s.LastQuiet = r.Started
		}
	}
	e := cmp.Or(t.keys[key], &entry{})
	s.Running = e.runningLocked(t)
	s.State, s.Since = e.stateLocked(seen, s.Running, s.LastQuiet, moment{s.At, since, stage})
	s.Causes, s.MoreCauses = e.causes.list(), e.causes.more
	if k := e.record; k != nil {
		s.Runs, s.Waits = slices.Clone(k.runs), slices.Clone(k.waits)
	}
	if st := e.stats; st != nil && st.hot() {
		s.HotLoop = &status.HotLoop{Repeats: st.level(), RestsUntil: st.restsUntil, Changing: st.changingFields,
			Undone: st.reverts > max(st.repeats, st.replacements)}
	}
	s.RefusedUntil = e.refusedUntilLocked(s.At)
	if s.Running != nil {
		s.Running.Waits, s.Waits = s.Waits, nil
	}
}

// Sums fills in what the controller's runs have come to.
func (t *Table) Sums(c *status.Controller) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.past
	c.Runs, c.Failures, c.Failed, c.Invalid = p.runs, p.failures, p.failed, p.invalid
	c.Remembered = p.full + p.last.Len()
}

// Recent returns the latest runs, the latest first.
func (t *Table) Recent() []status.RunSummary {
	t.mu.Lock()
	p := &t.past
	recent := slices.Concat(p.recent[p.next:], p.recent[:p.next])
	t.mu.Unlock()
	slices.Reverse(recent)
	return recent
}

// Busy counts the keys of which more is known than a record: none when all is quiet, else memory would grow.
func (t *Table) Busy() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.keys {
		if !e.idleLocked() || e.othersActed || e.due || e.record == nil {
			n++
		}
	}
	return n + len(t.hotKeys) + len(t.held)
}
