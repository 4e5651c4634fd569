package reconcile

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
)

// A new leader's caches may lag behind what the old leader wrote just before it stopped: the stale cache that
// TrackWrites guards against, across two processes. So the old leader writes a handover into the Lease that it
// releases: for each resource, the latest version that it has written, or that the leader before it has handed over.
// The new leader starts its workers when its caches have reached these versions. A cache that has not within
// [debts.DoubtAfter], or a second if its informer has selectors, lists anew. After another DoubtAfter the workers start
// even so, the log says so, and what the caches have still not seen is handed over to the next leader again.
//
// This file is about the texts on the Lease. What is left for the next leader, and what is inherited, package debts
// knows.
//
// Without a handover it matters how the Lease was acquired. If it was free at once, as after the release by another
// kind of leader, the last write may have just happened: every cache lists anew before the workers start. A crashed
// leader leaves no handover either, but then the Lease has not changed for LeaseDuration, 15 s, and the caches of a
// standby have caught up if its watches lag by less. What stopped the leader may have stopped the standby's watches,
// too, such as an API server that was killed: so a cache that does not follow the server, or has not done so for
// 5 s, lists anew here as well.

// handoverElector is an [Elector] that can hand over, such as *leaderelection.Elector. If text is empty, waited says
// that there was no leader for as long as an elector waits for a crashed one.
type handoverElector interface {
	SetHandover(text string)
	Handover() (text string, waited bool)
}

// maxHandoverBytes is the length of a handover for which every Lease has room: package leaderelection drops one above
// 128 KiB. If the entries need more, they are merged over all namespaces.
const maxHandoverBytes = 100 << 10

// handoverText returns the handover for the next leader: what the ledgers know, and the inherited entries that no
// ledger here knows. It is never empty.
func (m *Manager) handoverText(inherited []debts.Legacy) string {
	all := debts.Merge(append(inherited, m.ledgers.Left()...))
	text := encodeHandover(all)
	if len(text) > maxHandoverBytes {
		for i := range all {
			all[i].Namespace = ""
		}
		text = encodeHandover(debts.Merge(all))
	}
	return text
}

func encodeHandover(all []debts.Legacy) string {
	text, _ := json.Marshal(all) // strings and booleans can always be encoded
	return string(text)
}

// passHandoverOn hands the last leader's handover to the next one: this process has written nothing.
func passHandoverOn(h handoverElector) {
	text, _ := h.Handover()
	h.SetHandover(text)
}

// awaitHandover waits until the caches of all controllers have seen what the last leader's handover says, or, without
// one, until they have caught up with the server. It returns the entries that no ledger here knows, for the next
// leader, and false if ctx ends before.
func (m *Manager) awaitHandover(ctx context.Context, h handoverElector) (rest []debts.Legacy, ok bool) {
	text, waited := h.Handover()
	var left []debts.Legacy
	if text != "" {
		if err := json.Unmarshal([]byte(text), &left); err != nil {
			klog.FromContext(ctx).Error(err, "The last leader's handover in the Lease cannot be read; all caches list "+
				"anew")
			text, left, waited = "", nil, false
		}
	}
	if text == "" {
		left = m.ledgers.Unsteady(waited)
	}
	return m.inherit(ctx, left)
}

// inherit waits until the caches show what others have left, and says how that went. What it returns is as in
// awaitHandover.
func (m *Manager) inherit(ctx context.Context, left []debts.Legacy) (rest []debts.Legacy, ok bool) {
	log, began := klog.FromContext(ctx), time.Now()
	rest, seen, doubted := m.ledgers.Inherit(ctx, left)
	if ctx.Err() != nil {
		return nil, false
	}
	took := time.Since(began)
	m.progress.caughtUp(seen, took)
	switch {
	case !seen:
		log.Error(nil, "Caches are still behind what the last leader wrote; the workers start all the same", "after",
			took)
	case doubted:
		log.Info("The caches have seen what the last leader wrote", "took", took)
	default:
		log.V(1).Info("The caches have seen what the last leader wrote", "took", took)
	}
	return rest, true
}
