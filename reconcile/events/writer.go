package events

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	tries          = 12
	requestTimeout = 10 * time.Second
)

// write writes what waits, until the recorder has ended and nothing waits, or ctx ends.
func (r *Recorder) write(ctx context.Context) {
	for ctx.Err() == nil {
		s, ended := r.next()
		switch {
		case s != nil:
			r.deliver(ctx, s)
		case ended:
			return
		default:
			select {
			case <-r.news:
			case <-ctx.Done():
			}
		}
	}
}

// next takes the series that has waited longest. There is none if s is nil.
func (r *Recorder) next() (s *series, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.waiting = nil
		return nil, r.ended
	}
	s = r.waiting[0]
	r.waiting[0], r.waiting = nil, r.waiting[1:]
	s.waits = false
	return s, r.ended
}

// deliver writes a series, and tries again while that may help.
func (r *Recorder) deliver(ctx context.Context, s *series) {
	pace := lifecycle.Backoff{Base: 500 * time.Millisecond, Cap: 15 * time.Second}
	for try := 1; ; try++ {
		err := r.send(ctx, s)
		if err == nil {
			return
		}
		if try == tries || !worthRetrying(err) || ctx.Err() != nil {
			r.logFailure(ctx, s, err)
			return
		}
		lifecycle.Pause[struct{}](ctx, pace.After(kube.RetryAfter(err)), nil)
	}
}

// send makes the server's Event what the series is now.
func (r *Recorder) send(ctx context.Context, s *series) (err error) {
	r.mu.Lock()
	event, written := *s.event.DeepCopy(), s.written
	r.mu.Unlock()
	if event.Count == written {
		return nil // an earlier write has told already
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	here := r.client.In(event.Namespace)
	if written == 0 {
		_, err = here.Create(ctx, &event, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
			written = 1
		}
	}
	if written > 0 {
		var patch []byte
		if patch, err = json.Marshal(change(&event)); err != nil {
			return err
		}
		_, err = here.Patch(ctx, event.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) { // the server has deleted it after its time
			_, err = here.Create(ctx, &event, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	s.written = event.Count
	r.mu.Unlock()
	return nil
}

// change is the patch for an Event that exists.
func change(event *corev1.Event) any {
	return struct {
		Count         int32       `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message"`
	}{event.Count, event.LastTimestamp, event.Message}
}

// worthRetrying reports whether the server may answer otherwise later. That it refuses a request is final.
func worthRetrying(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // the network
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests ||
		code == http.StatusRequestTimeout
}

// logFailure says that an Event was not written. An answer that the Event is invalid quotes it, so of that only the
// fields are logged.
func (r *Recorder) logFailure(ctx context.Context, s *series, err error) {
	log := klog.FromContext(ctx)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		log = log.V(1)
	}
	dropped, ok := r.failed.Allow(5)
	if !ok {
		return
	}
	var status apierrors.APIStatus
	var fields []string
	if errors.As(err, &status) && !apierrors.IsForbidden(err) {
		if details := status.Status().Details; details != nil {
			for _, cause := range details.Causes {
				fields = append(fields, cause.Field)
			}
		}
		err = errors.New("the answer of the server is " + string(apierrors.ReasonForError(err)))
	}
	r.mu.Lock()
	about, reason := s.event.InvolvedObject, s.event.Reason
	r.mu.Unlock()
	log.Info("An Event was not written", "err", err, "fields", fields, "component", r.component, "kind", about.Kind,
		"object", klog.KRef(about.Namespace, about.Name), "reason", kube.Brief(reason), "notLogged", dropped)
}
