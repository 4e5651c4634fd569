package main

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
)

// What is remembered, and when is the next look?
//
// A window and a policy look back, and the cluster does not hold what they look for: so it is kept here. It is lost
// when another process takes over, as in the built-in controller. Then the first recommendation is the size that the
// target has, and no change counts against a policy.

// memory is what is remembered of one HPA.
type memory struct {
	recommendations []recommendation
	grown, shrunk   []scaling
}

func (m memory) clone() memory {
	m.recommendations = slices.Clone(m.recommendations) // the others are never changed in place
	return m
}

// begin makes the number of replicas that the target has the first recommendation.
func (m *memory) begin(n int32, now time.Time) {
	if len(m.recommendations) == 0 {
		m.recommendations = []recommendation{{n, now}}
	}
}

// entry is all that is kept of one HPA. It belongs to the worker that has the key.
type entry struct {
	memory
	uid types.UID
	due time.Time // of the next look, if nothing calls for an earlier one
}

// notebook are those of all HPAs that exist.
type notebook struct {
	mu        sync.Mutex
	byKey     map[informer.Key]*entry                     // guarded by mu
	selectors map[string]map[informer.Key]labels.Selector // by namespace; guarded by mu
}

func newNotebook() *notebook {
	return &notebook{byKey: map[informer.Key]*entry{}, selectors: map[string]map[informer.Key]labels.Selector{}}
}

// of returns the entry of an HPA. One that was there before this process looked first waits for its turn, so that the
// looks are spread over the interval; a new one is looked at at once.
func (b *notebook) of(hpa *autoscalingv2.HorizontalPodAutoscaler, interval time.Duration, now time.Time) (*entry,
	bool) {
	key := informer.KeyOf(hpa)
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.byKey[key]; known != nil && known.uid == hpa.UID {
		return known, true
	}
	made := &entry{uid: hpa.UID, due: now}
	if hpa.CreationTimestamp.Add(interval).Before(now) {
		made.due = now.Add(turn(key, interval))
	}
	b.forgetLocked(key)
	b.byKey[key] = made
	return made, !made.due.After(now)
}

// turn spreads keys evenly over the interval.
func turn(key informer.Key, interval time.Duration) time.Duration {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key.String()))
	return time.Duration(hash.Sum64() % uint64(interval))
}

// next returns how long it is until the next look. The looks stay an interval apart however long one takes; those whose
// time has passed meanwhile are left out. A look in between, for a change of the spec, moves none of them.
func (e *entry) next(interval time.Duration, now time.Time) time.Duration {
	if late := now.Sub(e.due); late >= 0 {
		e.due = e.due.Add(interval * (1 + late/interval))
	}
	return e.due.Sub(now)
}

// forget drops what is kept of an HPA that is gone.
func (b *notebook) forget(key informer.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetLocked(key)
}

func (b *notebook) forgetLocked(key informer.Key) {
	delete(b.byKey, key)
	if in := b.selectors[key.Namespace]; in != nil {
		if delete(in, key); len(in) == 0 {
			delete(b.selectors, key.Namespace)
		}
	}
}
