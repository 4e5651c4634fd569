package events

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	waitingAtMost = 1000        // Events that have something to write
	objectsAtMost = 4096        // objects whose Events are remembered
	messageAtMost = 1024        // bytes of a message
	flushTime     = time.Second // for what waits when Run is told to end
	stopGrace     = 10 * time.Second
)

// Recorder records Events, and writes them while [Recorder.Run] runs. Make one with [NewRecorder]. A nil Recorder
// records nothing. Safe for concurrent use.
type Recorder struct {
	// Never changed after NewRecorder.
	component string
	client    *informer.Resource[*corev1.Event]
	news      chan struct{} // has a value after something was put into waiting, and when the end has come

	// These two limit the lines in the log about Events that were dropped, and about writes that have failed.
	dropped, failed lifecycle.LogLimit

	mu      sync.Mutex // guards the fields below, and what they refer to
	memory  memory
	waiting []*series // have something to write, each once
	suffix  int64     // of the name of the last new Event
	started bool
	ended   bool // nothing is recorded any more
}

// NewRecorder makes a Recorder for the Events of a component, such as "cronbackup": kubectl describe shows its name in
// the column From. Nothing is sent before [Recorder.Run] runs; until then Events wait.
//
// cfg is the one that the Elector is made from, and not what [reconcile.ClientConfig] returns for it: the Fence would
// refuse the last Events, which are written when leadership is given up. Without QPS it has no client-side limit of
// requests. It is not changed.
//
// The error is that of a component that is empty or longer than 128 bytes, or of a cfg that is nil or has no Host.
//
// [reconcile.ClientConfig]: https://pkg.go.dev/github.com/thermostat-go/thermostat/reconcile#ClientConfig
func NewRecorder(cfg *rest.Config, component string) (*Recorder, error) {
	var wrong error
	if component == "" || len(component) > 128 {
		wrong = fmt.Errorf("the component has %d bytes; it is the name of the controller, of 1 to 128 bytes",
			len(component))
	}
	client, err := informer.NewResource[*corev1.Event](cfg, corev1.SchemeGroupVersion.WithResource("events"),
		informer.ResourceOptions{})
	if err := errors.Join(wrong, err); err != nil {
		return nil, fmt.Errorf("NewRecorder: %w", err)
	}
	return &Recorder{component: component, client: client, news: make(chan struct{}, 1), memory: newMemory()}, nil
}

// Event records an Event about an object. It returns at once, and keeps neither the object nor anything of it but its
// kind, namespace, name, UID and version.
//
// eventType is corev1.EventTypeNormal or corev1.EventTypeWarning. reason is one word in CamelCase, for programs.
// message is for people; of one that is longer than 1,024 bytes the first 1,021 are kept. Do not put values of a Secret
// into it.
//
// The object has to carry its kind and apiVersion. One that an [informer.Resource] or its cache returned does. For one
// of a client of client-go use [As]. An Event that cannot be written, because of that or because eventType or reason
// is none, is dropped, and the log says why.
func (r *Recorder) Event(object runtime.Object, eventType, reason, message string) {
	r.record(object, nil, eventType, reason, message)
}

// Eventf is Event with a message that is formatted as fmt.Sprintf does it.
func (r *Recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.record(object, nil, eventType, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf is Eventf, and the Event has annotations. Of a series the first ones stay.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason,
	format string, args ...any) {
	r.record(object, maps.Clone(annotations), eventType, reason, fmt.Sprintf(format, args...))
}

// As returns a stand-in for an object that does not carry its kind, as those of a typed client of client-go do not:
//
//	recorder.Event(events.As(pod, corev1.SchemeGroupVersion.WithKind("Pod")), corev1.EventTypeNormal, ...)
func As(object metav1.Object, kind schema.GroupVersionKind) runtime.Object {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	if !kube.IsNil(object) {
		o.Namespace, o.Name, o.UID = object.GetNamespace(), object.GetName(), object.GetUID()
		o.ResourceVersion = object.GetResourceVersion()
	}
	return o
}

func (r *Recorder) record(object runtime.Object, annotations map[string]string, eventType, reason, message string) {
	if r == nil {
		return
	}
	about, err := reference(object)
	switch {
	case err != nil:
	case eventType != corev1.EventTypeNormal && eventType != corev1.EventTypeWarning:
		err = fmt.Errorf("the type is %q; it is %s or %s", kube.Brief(eventType), corev1.EventTypeNormal,
			corev1.EventTypeWarning)
	case reason == "" || len(reason) > 128:
		err = fmt.Errorf("the reason has %d bytes; it is one word of 1 to 128 bytes", len(reason))
	}
	if err == nil {
		err = r.note(about, text{eventType, reason, shortened(message)}, annotations)
	}
	if err == nil {
		return
	}
	if dropped, ok := r.dropped.Allow(5); ok {
		klog.Background().Info("An Event is dropped", "err", err, "component", r.component, "kind", about.Kind,
			"object",
			klog.KRef(about.Namespace, about.Name), "reason", kube.Brief(reason), "notLogged", dropped)
	}
}

// reference says what an Event is about.
func reference(object runtime.Object) (about corev1.ObjectReference, err error) {
	if kube.IsNil(object) {
		return about, errors.New("the object is nil")
	}
	o, err := meta.Accessor(object)
	if err != nil {
		return about, fmt.Errorf("a %T has no metadata", object)
	}
	about.Namespace, about.Name, about.UID = o.GetNamespace(), o.GetName(), o.GetUID()
	about.ResourceVersion = o.GetResourceVersion()
	about.APIVersion, about.Kind = object.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	switch {
	case about.Kind == "" || about.APIVersion == "":
		err = fmt.Errorf("this %T does not carry its kind and apiVersion: take it from an informer.Resource or its "+
			"cache, or give it to events.As", object)
	case about.Name == "":
		err = fmt.Errorf("this %T has no name", object)
	}
	return about, err
}

// shortened returns the message in at most messageAtMost bytes.
func shortened(message string) string {
	const end = "..."
	if len(message) > messageAtMost {
		message = message[:messageAtMost-len(end)] + end
	}
	return strings.ToValidUTF8(message, "")
}

// Run writes Events until ctx ends, and what waits then within a second more. Give it to ManagerOptions.Beside, or run
// it on a goroutine of your own. It returns nil; an error that wraps [reconcile.ErrStuck] if a request has not returned
// 10 s after its ctx has ended; or an error at once if it is called again.
//
// [reconcile.ErrStuck]: https://pkg.go.dev/github.com/thermostat-go/thermostat/reconcile#ErrStuck
func (r *Recorder) Run(ctx context.Context) error {
	r.mu.Lock()
	again := r.started
	r.started = true
	r.mu.Unlock()
	if again {
		return fmt.Errorf("the recorder of %s has been started before", r.component)
	}
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var group lifecycle.Group
	group.Go("the writer of Events", func() { r.write(requests) })
	<-ctx.Done()
	r.end()
	select {
	case <-group.Done():
		return nil
	case <-time.After(flushTime):
		cut()
	}
	err := group.Wait(stopGrace)
	r.mu.Lock()
	left := len(r.waiting)
	r.mu.Unlock()
	if left > 0 {
		klog.FromContext(ctx).Info("Events were not written in time", "component", r.component, "events", left)
	}
	return err
}

// end lets the writer return when nothing waits any more.
func (r *Recorder) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.wake()
}

func (r *Recorder) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}
