package keys

import (
	"container/list"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Hold keeps a key from running for a reason, until it is freed. It reports whether the key was not held for that
// reason before; if it was, the earlier wait stays. The key need not exist.
func (t *Table) Hold(key Key, wait status.Wait) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holdLocked(key, t.entryOfLocked(key, wait.From), wait)
}

func (t *Table) holdLocked(key Key, e *entry, wait status.Wait) bool {
	if e.heldForLocked(wait.For) != nil {
		return false
	}
	e.holds = append(e.holds, wait)
	t.held[key] = e
	switch wait.For {
	case status.WaitPaused:
		t.nPaused.Add(1)
	case status.WaitParked:
		e.parked = insertByAge(&t.parked, e,
			func(e *entry) time.Time { return e.heldForLocked(status.WaitParked).From })
	}
	return true
}

// insertByAge adds an entry to a list whose first entry is the oldest. The times of calls come in about that order, so
// the place is near the end.
func insertByAge(l *list.List, e *entry, at func(*entry) time.Time) *list.Element {
	for before := l.Back(); before != nil; before = before.Prev() {
		if !at(before.Value.(*entry)).After(at(e)) {
			return l.InsertAfter(e, before)
		}
	}
	return l.PushFront(e)
}

// Paused reports whether a key that a worker has taken waits for Free, whatever else holds it.
func (t *Table) Paused(key Key) bool {
	if t.nPaused.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.held[key]
	if e == nil || e.heldForLocked(status.WaitPaused) == nil {
		return false
	}
	e.due = true
	return true
}

// Free ends a hold that has no end of its own. due says that a worker has taken the key meanwhile, so that the caller
// must put it into the queue. If it is, the wait is remembered.
func (t *Table) Free(key Key, reason status.WaitReason) (wait status.Wait, held, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.held[key]
	if e == nil || e.heldForLocked(reason) == nil {
		return status.Wait{}, false, false
	}
	wait = *e.heldForLocked(reason)
	wait.To = time.Now()
	if due = e.due || reason == status.WaitParked; due {
		t.remembersLocked(key, e, wait)
	}
	t.releaseLocked(key, e, reason)
	e.due = e.due && reason != status.WaitPaused
	if e.idleLocked() {
		t.forgetLocked(key, e)
	}
	return wait, true, due
}

// releaseLocked ends a hold.
func (t *Table) releaseLocked(key Key, e *entry, reason status.WaitReason) {
	switch reason {
	case status.WaitPaused:
		t.nPaused.Add(-1)
	case status.WaitParked:
		t.parked.Remove(e.parked)
	}
	e.holds = slices.DeleteFunc(e.holds, func(w status.Wait) bool { return w.For == reason })
	if len(e.holds) == 0 {
		e.holds = nil
		delete(t.held, key)
	}
}

// mustWaitLocked reports whether a key that a worker has taken is held, and for how long: zero if only Free ends that.
func (t *Table) mustWaitLocked(key Key, e *entry, now time.Time) (left time.Duration, held bool) {
	if e.heldForLocked(status.WaitPaused) != nil {
		e.due = true
		return 0, true
	}
	refused := e.heldForLocked(status.WaitBackoff)
	if refused == nil {
		return 0, false
	}
	if left = refused.To.Sub(now); left > 0 {
		t.remembersLocked(key, e, status.Wait{For: status.WaitBackoff, From: now, To: refused.To})
		return left, true
	}
	t.releaseLocked(key, e, status.WaitBackoff)
	return 0, false
}

// heldForLocked returns the hold of that reason, or nil.
func (e *entry) heldForLocked(reason status.WaitReason) *status.Wait {
	for i := range e.holds {
		if e.holds[i].For == reason {
			return &e.holds[i]
		}
	}
	return nil
}

// Counts says how many keys are held, and how many repeat themselves.
type Counts struct {
	Paused, Parked    int
	LongestParked     time.Duration
	HotKeys, HotLoops int
}

// Counts returns the figures of this moment. They are kept, not counted: it is called at each scrape of metrics.
func (t *Table) Counts() (n Counts) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	n.Paused, n.Parked = int(t.nPaused.Load()), t.parked.Len()
	if oldest := t.parked.Front(); oldest != nil {
		n.LongestParked = max(0, now.Sub(oldest.Value.(*entry).heldForLocked(status.WaitParked).From))
	}
	t.endOldContestsLocked(now)
	n.HotKeys, n.HotLoops = len(t.hotKeys), t.hotLoops
	return n
}
