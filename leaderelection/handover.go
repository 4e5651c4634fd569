package leaderelection

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// handoverAnnotation is where a leader that releases the Lease writes a text for the next one.
const handoverAnnotation = "thermostat-go.github.io/handover"

// maxText is the length of the longest text, in bytes. An object has room for 256 KiB of annotations, and others write
// some, too.
const maxText = 128 << 10

// A handoverRecord is the value of that annotation. It counts only for the released record that it was written with:
// the two name the same Lease, term and moment of release. The next acquisition removes it, so a leader that crashes
// leaves none; client-go's elector keeps it, but raises the term.
type handoverRecord struct {
	LeaseUID    types.UID        `json:"lease"`
	Transitions int32            `json:"transitions"`
	Holder      string           `json:"holder"` // whose tenure it was, for people: the released record names no holder
	Released    metav1.MicroTime `json:"released"`
	Text        string           `json:"word"`
}

// withHandover adds the text of the tenure of that token, if there is one, to a Lease that is about to be released.
func withHandover(lease *coordinationv1.Lease, token Token, text string) *coordinationv1.Lease {
	delete(lease.Annotations, handoverAnnotation)
	if text == "" || len(text) > maxText {
		return lease
	}
	record, err := json.Marshal(handoverRecord{token.LeaseUID, token.Transitions, token.Holder, *lease.Spec.RenewTime,
		text})
	if err != nil {
		return lease // no text is what the next leader is prepared for
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[handoverAnnotation] = string(record)
	return lease
}

// handoverOf returns the text that a released Lease was released with, or "".
func handoverOf(lease *coordinationv1.Lease) string {
	var r handoverRecord
	if !isReleased(lease) || json.Unmarshal([]byte(lease.Annotations[handoverAnnotation]), &r) != nil {
		return ""
	}
	sameTerm := r.LeaseUID == lease.UID && r.Transitions == value(lease.Spec.LeaseTransitions)
	if !sameTerm || !r.Released.Equal(lease.Spec.RenewTime) {
		return ""
	}
	return r.Text
}

// A handover is what a tenure begins with.
type handover struct {
	text   string // of the leader before; empty if there is none that counts
	waited bool   // the Lease was not released: it stood unchanged for the whole wait
}

// SetHandover sets the text that this tenure leaves to the next leader, in an annotation that the release of the Lease
// writes. The lead function calls it before it returns; the last call counts. A call while this candidate does not lead
// does nothing. An empty text, and one of more than 128 KiB, is none.
//
// No text reaches the next leader if this one crashes, gets stuck, lets its Lease expire or never calls SetHandover. A
// leader that has written nothing should therefore set what [Elector.Handover] returned.
func (e *Elector) SetHandover(text string) {
	if t := e.tenure.Load(); t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.text = text
	}
}

// Handover returns the text that the leader before this tenure has left. It is "" if that leader left none, if another
// one has led since, or if this candidate does not lead. Without a text, waited tells how the Lease was acquired: true
// after it had stood unchanged for its whole duration, false at once, as when its holder released it. A client that
// may update the Lease can change the text.
func (e *Elector) Handover() (text string, waited bool) {
	t := e.tenure.Load()
	if t == nil {
		return "", false
	}
	return t.received.text, t.received.waited
}

func (t *tenure) nextText() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}
