package leaderelection

import coordinationv1 "k8s.io/api/coordination/v1"

// handoverAnnotation is where in the Lease a leader that releases it leaves a word for the next one.
const handoverAnnotation = "thermostat-go.github.io/handover"

// Leave says what the next leader is to be told: the release of this tenure's Lease writes it into an annotation. It is called by the lead function before it
// returns; the last call counts. A leader that crashes, or whose Lease expires, leaves nothing; one that releases it without a word lets that of the leader
// before it stand.
func (e *Elector) Leave(word string) { e.word.Store(&word) }

// Left returns what the last leader has left, or the last one of those that have released the Lease since somebody crashed; empty if there is nothing, or if this
// candidate does not lead. Anybody who may write the Lease may have written it, too.
func (e *Elector) Left() string {
	t := e.tenure.Load()
	if t == nil {
		return ""
	}
	lease, _ := t.last()
	return lease.Annotations[handoverAnnotation]
}

// bequeath writes the word, if there is one, into a Lease that is about to be released.
func bequeath(lease *coordinationv1.Lease, word *string) *coordinationv1.Lease {
	if word == nil {
		return lease
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[handoverAnnotation] = *word
	return lease
}
