package family

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Len returns how many objects the informers hold together.
func (f *Family[N, T]) Len() (n int) {
	for _, m := range f.now() {
		n += m.inf.Len()
	}
	return n
}

// Health sums up the health of the informers, as reconcile.Dynamic says.
func (f *Family[N, T]) Health() informer.Health {
	f.mu.Lock()
	h, running, unknown := f.past, make([]*member[N, T], 0, len(f.members)), 0
	for _, m := range f.members {
		if m.opened.Load() {
			running = append(running, m)
		} else {
			unknown++
		}
	}
	leaving := slices.Collect(maps.Keys(f.leaving))
	h.Unknown, h.State, h.Since = unknown, informer.Live, f.since
	if f.over {
		h.State = informer.Stopped
	}
	f.mu.Unlock()
	for _, m := range leaving {
		addPast(&h, m.inf.HealthIn(metav1.NamespaceAll))
	}
	live := h.State != informer.Live
	var failing informer.Health
	for _, m := range running {
		of := m.inf.Health()
		addPast(&h, of)
		h.Rejected, h.Queued, h.Bytes = h.Rejected+of.Rejected, h.Queued+of.Queued, h.Bytes+of.Bytes
		switch {
		case !m.complete():
			h.Unknown++
		case of.State == informer.Live:
			live = true
			if h.LastProgress.IsZero() || of.LastProgress.Before(h.LastProgress) {
				h.LastProgress = of.LastProgress
			}
		case of.State == informer.Stale || of.State == informer.Failed:
			failing = of
		}
	}
	if !live && failing.State != "" {
		h.State, h.Since, h.LastError, h.LastProgress = failing.State, failing.Since, failing.LastError,
			failing.LastProgress
	}
	return h
}

// addPast adds what an informer has counted since it began.
func addPast(h *informer.Health, of informer.Health) {
	h.Lists, h.Rewinds = h.Lists+of.Lists, h.Rewinds+of.Rewinds
	h.Differences, h.Mutated = h.Differences+of.Differences, h.Mutated+of.Mutated
}

// Parts describes the informers that run, by their names.
func (f *Family[N, T]) Parts(withText bool) (list []status.Namespace) {
	for name, m := range f.now() {
		list = append(list, debts.PartOf(m.inf, metav1.NamespaceAll, fmt.Sprint(name), withText))
	}
	slices.SortFunc(list, func(a, b status.Namespace) int { return strings.Compare(a.Name, b.Name) })
	return list
}
