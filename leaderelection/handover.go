package leaderelection

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// handoverAnnotation is where in the Lease a leader that releases it leaves a word for the next one.
const handoverAnnotation = "thermostat-go.github.io/handover"

// maxWord is the length of the longest word, in bytes. An object has room for 256 KiB of annotations, and others write
// some, too.
const maxWord = 128 << 10

// A bequest is the value of that annotation. It counts for the released record that it was written with and for no
// other: the two name the same Lease, term and moment of release. The next take removes it, so a leader that crashes
// leaves nothing; and a tenure of client-go's elector in between, which leaves annotations alone, has raised the term.
type handoverRecord struct {
	LeaseUID    types.UID        `json:"lease"`
	Transitions int32            `json:"transitions"`
	Holder      string           `json:"holder"` // whose tenure it was, for people: the released record names nobody
	Released    metav1.MicroTime `json:"released"`
	Word        string           `json:"word"`
}

// withHandover adds the word of the tenure of that token, if there is one, to a Lease that is about to be released.
func withHandover(lease *coordinationv1.Lease, token Token, word string) *coordinationv1.Lease {
	delete(lease.Annotations, handoverAnnotation)
	if word == "" || len(word) > maxWord {
		return lease
	}
	value, err := json.Marshal(handoverRecord{token.LeaseUID, token.Transitions, token.Holder, *lease.Spec.RenewTime, word})
	if err != nil {
		return lease // the next leader then finds no word, and knows what that means
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[handoverAnnotation] = string(value)
	return lease
}

// handoverOf returns the word that a released Lease was released with, or "".
func handoverOf(lease *coordinationv1.Lease) string {
	var b handoverRecord
	if !isReleased(lease) || json.Unmarshal([]byte(lease.Annotations[handoverAnnotation]), &b) != nil {
		return ""
	}
	sameTerm := b.LeaseUID == lease.UID && b.Transitions == value(lease.Spec.LeaseTransitions)
	if !sameTerm || !b.Released.Equal(lease.Spec.RenewTime) {
		return ""
	}
	return b.Word
}

// A legacy is what a tenure begins with.
type handover struct {
	word   string // of the last leader; empty if there is none that counts
	waited bool   // the Lease was not released: it stood unchanged for the whole wait
}

// SetHandover says what the next leader is to be told: the release of this tenure's Lease writes it into an annotation. The
// lead function calls it before it returns; the last call counts, and one by anybody who does not lead does nothing. An
// empty word, and one of more than 128 KiB, is none. No word is left by a leader that crashes or gets stuck, whose
// Lease expires, or that never calls SetHandover: whoever wrote nothing leaves what [Elector.Handover] returned.
func (e *Elector) SetHandover(word string) {
	if t := e.tenure.Load(); t != nil {
		t.setHandover(word)
	}
}

// Handover returns the word that the leader before this tenure has left, or "" if it has left none, if somebody else has
// led since, or if this candidate does not lead. Without a word, waited tells how the Lease was taken: true after it
// had stood unchanged for its whole duration, false at once, as when its holder released it. Anybody who may write the
// Lease may have written the word, too.
func (e *Elector) Handover() (word string, waited bool) {
	t := e.tenure.Load()
	if t == nil {
		return "", false
	}
	return t.received.word, t.received.waited
}
