package fakeapi

import (
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one open watch. Its buffer has no bound, so that the server side never waits for a client.
type watcher struct {
	mu sync.Mutex
	// Guarded by mu: what has not been handed to out yet, and whether more may come.
	queue []watch.Event
	ended bool
	// Guarded by mu: while held, nothing is handed out.
	held bool

	wake chan struct{}
	stop chan struct{}
	once sync.Once
	from int64  // the version after which its events are
	gone func() // lets the resource forget the watcher
	out  chan watch.Event

	timeout *time.Timer // nil: the watch has no end; set before the reader knows of it
}

// newWatcher starts the goroutine that feeds out; it ends with end or Stop, one of which the reader or the resource
// calls.
func newWatcher(from int64, gone func(*watcher)) *watcher {
	w := &watcher{from: from, wake: make(chan struct{}, 1), stop: make(chan struct{}), out: make(chan watch.Event)}
	w.gone = func() { gone(w) }
	go w.feed()
	return w
}

// send queues a copy of an event.
func (w *watcher) send(e watch.Event) {
	if e.Object != nil && !reflect.ValueOf(e.Object).IsNil() {
		e.Object = e.Object.DeepCopyObject()
	}
	w.mu.Lock()
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	w.signal()
}

// hold stops the stream where it stands, or lets it go on.
func (w *watcher) hold(held bool) {
	w.mu.Lock()
	w.held = held
	w.mu.Unlock()
	w.signal()
}

// end closes the stream once everything that was sent has been read.
func (w *watcher) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) feed() {
	defer close(w.out)
	for {
		w.mu.Lock()
		var queue []watch.Event
		ended := w.ended && !w.held
		if !w.held {
			queue, w.queue = w.queue, nil
		}
		w.mu.Unlock()
		for _, e := range queue {
			select {
			case w.out <- e:
			case <-w.stop:
				return
			}
		}
		if ended && len(queue) == 0 {
			return
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-w.wake:
		case <-w.stop:
			return
		}
	}
}

// Stop is the reader's.
func (w *watcher) Stop() {
	w.once.Do(func() {
		if w.timeout != nil {
			w.timeout.Stop()
		}
		close(w.stop)
		w.gone()
	})
}

// ResultChan is the reader's.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

func status(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: string(reason)}}
}
