package events

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	burst        = 25               // writes that an object has at once
	refill       = 5 * time.Minute  // until it has one more
	messages     = 10               // of one type and reason that have Events of their own
	messagesIn   = 10 * time.Minute // the time in which these are counted
	rememberedIn = time.Hour        // without a change; by default the server deletes the Event then
	combined     = "(combined from similar events): "
)

// text is what tells the Events of an object apart.
type text struct{ eventType, reason, message string }

// series is one Event, as it is to be written.
type series struct {
	event   corev1.Event
	waits   bool  // it is in Recorder.waiting
	written int32 // the count that the server has; 0: it does not have the Event
}

// history is what is remembered of an object.
type history struct {
	about   corev1.ObjectReference
	tokens  float64 // writes that it has left
	at      time.Time
	events  map[text]*series
	element *list.Element
}

// memory has the histories of the objects that had an Event last.
type memory struct {
	byObject map[corev1.ObjectReference]*history
	byUse    *list.List // of *history, the latest first
}

func newMemory() memory {
	return memory{byObject: make(map[corev1.ObjectReference]*history), byUse: list.New()}
}

// of returns the history of an object, and makes one if there is none.
func (m *memory) of(about corev1.ObjectReference, now time.Time) *history {
	about.ResourceVersion = ""
	if h, ok := m.byObject[about]; ok {
		m.byUse.MoveToFront(h.element)
		return h
	}
	if len(m.byObject) >= objectsAtMost {
		oldest := m.byUse.Back()
		delete(m.byObject, m.byUse.Remove(oldest).(*history).about)
	}
	h := &history{about: about, tokens: burst, at: now, events: make(map[text]*series)}
	h.element = m.byUse.PushFront(h)
	m.byObject[about] = h
	return h
}

// spend reports whether the object may have one more write.
func (h *history) spend(now time.Time) bool {
	h.tokens = min(burst, h.tokens+float64(now.Sub(h.at))/float64(refill))
	h.at = now
	if h.tokens < 1 {
		return false
	}
	h.tokens--
	return true
}

// place returns under which text an Event is remembered: its own, or that of all messages of its type and reason, if
// there are many of them.
func (h *history) place(of text, now time.Time) text {
	maps.DeleteFunc(h.events, func(_ text,
		s *series) bool {
		return now.Sub(s.event.LastTimestamp.Time) > rememberedIn
	})
	if _, known := h.events[of]; known {
		return of
	}
	similar := 0
	for t, s := range h.events {
		if t.eventType == of.eventType && t.reason == of.reason && now.Sub(s.event.LastTimestamp.Time) < messagesIn {
			similar++
		}
	}
	if similar >= messages {
		of.message = combined
	}
	return of
}

var (
	errEnded = errors.New("the recorder has ended")
	errFull  = fmt.Errorf("%d Events wait to be written already", waitingAtMost)
	errSpam  = fmt.Errorf("the object has had more than %d new Events, and one is allowed each %s", burst, refill)
)

// note records an Event, or says why it does not.
func (r *Recorder) note(about corev1.ObjectReference, of text, annotations map[string]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errEnded
	}
	now := time.Now()
	h := r.memory.of(about, now)
	at := h.place(of, now)
	s, known := h.events[at]
	if !known || !s.waits {
		switch allowed := len(r.waiting) < waitingAtMost; {
		case !known && !allowed:
			return errFull
		case allowed && h.spend(now):
		case !known:
			return errSpam
		default: // the next write that is allowed shows this one, too
			s.add(about, now)
			return nil
		}
	}
	if !known {
		s = &series{event: r.newEvent(about, of, annotations, now)}
		h.events[at] = s
	}
	s.add(about, now)
	if at != of {
		s.event.Message = shortened(combined + of.message)
	}
	if !s.waits {
		s.waits = true
		r.waiting = append(r.waiting, s)
		r.wake()
	}
	return nil
}

// add counts one more.
func (s *series) add(about corev1.ObjectReference, now time.Time) {
	s.event.Count++
	s.event.LastTimestamp = metav1.NewTime(now)
	s.event.InvolvedObject = about
}

func (r *Recorder) newEvent(about corev1.ObjectReference, of text, annotations map[string]string,
	now time.Time) corev1.Event {
	return corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault),
			Name: nameOf(about, r.nextSuffix(now)), Annotations: annotations},
		Reason: of.reason, Message: of.message, Type: of.eventType,
		FirstTimestamp:      metav1.NewTime(now),
		Source:              corev1.EventSource{Component: r.component},
		ReportingController: r.component,
	}
}

// nextSuffix returns a time in nanoseconds for the name of an Event, which none of this recorder's has had: a clock may
// stand still between two Events.
func (r *Recorder) nextSuffix(now time.Time) int64 {
	r.suffix = max(r.suffix+1, now.UnixNano())
	return r.suffix
}

// nameOf returns a name for an Event: that of the object and a number. A name that is too long for that is cut, and one
// that an Event cannot have, such as system:node of a ClusterRole, is left out for the kind.
func nameOf(about corev1.ObjectReference, number int64) string {
	suffix := fmt.Sprintf(".%x", number)
	name := about.Name
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		name = strings.ToLower(about.Kind)
	}
	if most := validation.DNS1123SubdomainMaxLength - len(suffix); len(name) > most {
		name = strings.TrimRight(name[:most], ".-")
	}
	return name + suffix
}
