package main

import (
	"context"
	"sync"
	"time"

	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// listening is how long the leader must have heard nothing of a member. Members answer the leader ten times a second.
const listening = 2 * time.Second

// ear remembers what leaders have heard. What it has forgotten, as after a restart, is learned again in that time.
type ear struct {
	lock  sync.Mutex // guards heard
	heard map[reconcile.Key]heard
}

// heard are two looks at what a leader counts. The first one is older than listening, or has no bytes.
type heard struct {
	leader      uint64
	first, last counters
}

// counters say how many bytes have come from which member.
type counters struct {
	at    time.Time
	bytes map[uint64]float64
}

// listen finds out which of the members that are not healthy for the operator are alive. The leader hears of all
// members. What it does not say, or not yet, is not known, and whoever is not known to be silent counts as alive.
func (r *call) listen(ctx context.Context, o *observed) {
	var leader *plan.Member
	sick := false
	for i := range o.Members {
		m := &o.Members[i]
		sick = sick || m.ID != 0 && !m.Healthy
		if m.Healthy && m.Leader {
			leader = m
		}
	}
	key := informer.KeyOf(r.cluster)
	if !o.Listed || !sick {
		r.ear.forget(key)
		return
	}
	var now, before map[uint64]float64 // nil: not known
	if leader != nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if bytes, err := r.etcd.Heard(ctx, clientURL(leader.URL)); err == nil {
			now, before = bytes, r.ear.compare(key, leader.ID, bytes)
		}
	}
	for i := range o.Members {
		m := &o.Members[i]
		if m.ID != 0 && !m.Healthy {
			m.Alive = before == nil || now[m.ID] != before[m.ID]
			o.cut[m.Name] = m.Alive && (before != nil || now == nil)
		}
	}
}

// compare takes a look, and returns an earlier one. nil: there is none that is old enough.
func (e *ear) compare(key reconcile.Key, leader uint64, bytes map[uint64]float64) (before map[uint64]float64) {
	e.lock.Lock()
	defer e.lock.Unlock()
	h, ok := e.heard[key]
	now := counters{time.Now(), bytes}
	switch {
	case !ok || h.leader != leader:
		h = heard{leader: leader, last: now}
	case now.at.Sub(h.last.at) >= listening:
		h.first, h.last = h.last, now
	}
	if e.heard == nil {
		e.heard = map[reconcile.Key]heard{}
	}
	e.heard[key] = h
	return h.first.bytes
}

func (e *ear) forget(key reconcile.Key) {
	e.lock.Lock()
	defer e.lock.Unlock()
	delete(e.heard, key)
}
