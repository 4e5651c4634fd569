package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	// The server must answer a watch request, if only with headers, within this time.
	answerTimeout = 30 * time.Second
	// The server is asked to end each watch after 5 to 10 minutes, so that the watches spread over its replicas again
	// after one of them was replaced. A watch that is silent for longer than it was asked to live, and a little, hangs:
	// the connection is dead. The server's clock may be a little faster than ours.
	minWatch, watchSlack, clockSkew = 5 * time.Minute, 10 * time.Second, time.Second
	// API servers send a bookmark about every minute. Once two bookmarks of one watch have come within this time, a
	// watch that brings nothing for as long hangs. After maxHung such watches the server may have stopped sending
	// bookmarks, so the bound holds again only after another two. Servers without a cache send one every ten minutes,
	// or none, and some send one early in each watch.
	twoBookmarks, maxHung = 2 * time.Minute, 3
	// A streamed list must begin, and go on, within these times. After two failures the reflector uses plain lists for
	// good. A server that is overloaded, as when all informers of a program begin at once, begins late: to give up then
	// and ask again would make it later.
	streamBegins, streamGoesOn, streamTries = 30 * time.Second, 60 * time.Second, 2
	// Only a watch that has lived this long is followed by the next one at once.
	longLived = 5 * time.Second
	// No more events than these are received from a channel at once.
	maxDrained = 32
)

// streamedList asks for the list as a watch that begins with it, and stays with that watch once the list is complete.
func (r *reflector[T]) streamedList(ctx context.Context) error {
	r.begin()
	defer func() { r.early = earlyEvents{} }()
	opts := r.watchOptions()
	sendInitialEvents := true
	opts.SendInitialEvents = &sendInitialEvents
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	return r.stream(ctx, opts)
}

// watch resumes where the last list or watch ended.
func (r *reflector[T]) watch(ctx context.Context) error {
	opts := r.watchOptions()
	opts.ResourceVersion = r.resourceVersion
	return r.stream(ctx, opts)
}

func (r *reflector[T]) watchOptions() metav1.ListOptions {
	opts := r.selector
	opts.AllowWatchBookmarks = true
	timeout := int64((minWatch + lifecycle.RandomDuration(minWatch, r.purpose)).Seconds())
	opts.TimeoutSeconds = &timeout
	return opts
}

// watching is one watch that the server has answered.
type watching[T any] struct {
	*reflector[T]
	stream     stream
	began      time.Time
	bookmarkAt time.Time     // when the latest bookmark came; zero: there was none
	lifetime   time.Duration // as the server was asked
	checked    bool          // the server has this version, as far as it can be asked: see checkVersion

	// watchdog fires when nothing has come for as long as silence, in which the time of retries does not count.
	watchdog *time.Timer
	silence  time.Duration
	silentAt time.Time // when watchdog fires
	// proven fires when the watch has lived for long enough to be trusted: the server accepted it and did not take that
	// back.
	proven         *time.Timer
	trusted, heard bool         // proven has fired; an event has come
	drained        []wire.Event // scratch space of receiveEvents
}

// stream reads one watch to its end. It returns nil if another one may follow at once.
func (r *reflector[T]) stream(ctx context.Context, opts metav1.ListOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.pulse.does(asking)
	replacesLost := r.lost
	r.lost = true // until this watch ends in time
	w := watching[T]{reflector: r, began: time.Now(), checked: true,
		lifetime: time.Duration(*opts.TimeoutSeconds) * time.Second}
	var err error
	if err = w.connect(ctx, cancel, opts); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.disconnect(cancel)
	if replacesLost && r.resourceVersion != "" {
		if w.checked, err = w.checkVersion(ctx); err != nil {
			return err
		}
	}
	w.proven = time.NewTimer(longLived)
	defer w.proven.Stop()
	w.watchdog = time.NewTimer(0)
	defer w.watchdog.Stop()
	if w.expect(w.longest()); r.resourceVersion == "" {
		w.expect(streamBegins)
		w.proven.Stop()
	}
	return w.run(ctx)
}

// expect lets the watchdog fire if nothing comes for as long as silence.
func (w *watching[T]) expect(silence time.Duration) {
	w.silence, w.silentAt = silence, time.Now().Add(silence)
	w.watchdog.Reset(silence)
}

// connect sends a watch request and waits until the response begins.
func (w *watching[T]) connect(ctx context.Context, cancel context.CancelFunc, opts metav1.ListOptions) (err error) {
	unanswered := time.AfterFunc(answerTimeout, cancel)
	w.stream, err = w.source.watch(withAnswerTimer(ctx, unanswered, answerTimeout), opts)
	if !unanswered.Stop() && err == nil {
		w.disconnect(cancel)
		err = context.Canceled
	}
	if errors.Is(err, context.Canceled) {
		err = errSilent // or the caller's ctx has ended, and run ignores the error
	}
	return err
}

// disconnect ends the request before it stops the stream, since a transport may obey only the one or the other.
func (w *watching[T]) disconnect(cancel context.CancelFunc) {
	w.pulse.does(ending)
	cancel()
	w.stream.stop()
}

// checkVersion asks the server for its version, once a new watch has replaced a lost one: a server that was restored
// from a backup may be older than the cache. Such a server accepts a watch that begins in its future, and sends
// nothing, not even bookmarks, until it gets there.
//
// The request is a list of one object, for the sake of the list's version. It asks for the most recent state, since a
// server that lags would make any other version wait, and not for "0", for which API servers ignore the limit. Most
// servers answer from memory and ask etcd for its version only. The list has no selectors, since a server without a
// cache of the resource may have to read all objects to find a selected one. If the right to list depends on the
// selectors, or the object cannot be read, they are used.
//
// There is one such request for each watch that was replaced, after the watch: a server that accepts no watches is not
// asked, and the informers of a cluster whose server has come back are spread out by their backoff, or the [Gate].
//
// The watch fails with the request, since it may have reached a server of the past. But if the resource cannot be
// listed at all because of an object that nothing can decode, the watch goes on, and checked is false: the next watch
// asks again.
func (w *watching[T]) checkVersion(ctx context.Context) (checked bool, err error) {
	opts := metav1.ListOptions{Limit: 1}
	first := func() (metav1.ListMeta, error) {
		return fetch(ctx, w.source, opts, answerTimeout, func(*metav1.ListMeta, []wire.Event) error { return nil })
	}
	unreadable := func(err error) bool { return errors.Is(err, wire.ErrUndecodable) || apierrors.IsInternalError(err) }
	if w.part.name != "" { // then that is all that a Role may allow, and by a name servers find an object at once
		opts.LabelSelector, opts.FieldSelector = w.selector.LabelSelector, w.selector.FieldSelector
	}
	list, err := first()
	selected, unselected := w.selector, err
	// An unreadable answer may be a fault of the server or a connection that passes. So one request is sent for each of
	// the first watches, and two only after that.
	if selected != (metav1.ListOptions{}) && w.part.name == "" &&
		(apierrors.IsForbidden(err) || unreadable(err) && w.unanswered >= maxUnanswered-1) {
		opts.LabelSelector, opts.FieldSelector = selected.LabelSelector, selected.FieldSelector
		list, err = first()
	}
	switch {
	case unreadable(err):
		if w.unanswered++; w.unanswered >= maxUnanswered {
			return false, nil
		}
		if errors.Is(err, wire.ErrUndecodable) {
			err = errors.New(err.Error()) // failed must not take it for an error of the watch
		}
	case err == nil || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsBadRequest(err):
		if !unreadable(unselected) {
			w.unanswered = 0
		}
		if err != nil || !w.goesBack(list.ResourceVersion) {
			return true, nil // with an error: a client that may watch and not list has no such check
		}
		err = wentBack(w.newest, list.ResourceVersion)
	}
	return false, fmt.Errorf("%w: %w", errUnversioned, err)
}

// run receives the events of the watch until it ends.
func (w *watching[T]) run(ctx context.Context) error {
	if w.share != nil && w.resourceVersion != "" {
		fillUp(w.reflector)
	}
	for {
		relistWanted := w.relistWanted
		if w.resourceVersion == "" {
			relistWanted = nil // a list that is under way is completed
		}
		var err error
		w.pulse.does(resting)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.watchdog.C:
			return w.silent()
		case <-w.quarantine.due.C:
			began := time.Now()
			w.retry()
			w.silentAt = w.silentAt.Add(time.Since(began))
			w.watchdog.Reset(time.Until(w.silentAt))
		case <-w.namelessTimer.C:
			if w.listsForNameless() {
				return nil
			}
		case <-relistWanted:
			if w.share != nil && !w.listWanted.Load() {
				fillUp(w.reflector)
				continue
			}
			w.resourceVersion = ""
			return nil
		case a, more := <-w.filling.arrivals():
			err = receiveFilling(w.reflector, a, more)
		case <-w.proven.C:
			w.trusted = true
			w.reconnect.Reset()
			w.calmDown()
			w.lives()
		case event, open := <-w.stream.events:
			if !open {
				return w.ended(nil)
			}
			err = w.receiveEvents(event)
		case batch, open := <-w.stream.batches:
			if !open {
				_, err := w.stream.reader.End()
				return w.ended(err)
			}
			err = w.receiveBatch(batch)
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
}

// receiveEvents receives an event and those that wait behind it. To wait for a single event among seven channels takes
// longer than everything else that the reflector does with it.
func (w *watching[T]) receiveEvents(event watch.Event) error {
	w.drained = append(w.drained[:0], wire.Event{Type: event.Type, Object: event.Object})
	for more := true; more && len(w.drained) < maxDrained; {
		select {
		case event, more = <-w.stream.events:
			if more {
				w.drained = append(w.drained, wire.Event{Type: event.Type, Object: event.Object})
			}
		default:
			more = false
		}
	}
	err := w.received(w.drained)
	clear(w.drained) // drop the references to the objects
	return err
}

func (w *watching[T]) receiveBatch(batch *wire.Batch) error {
	w.pulse.does(receiving)
	err := w.received(batch.Events())
	w.stream.reader.Recycle(batch)
	return err
}

// received puts some events into the FIFO and resets the watchdog.
func (w *watching[T]) received(events []wire.Event) error {
	listing := w.resourceVersion == ""
	w.heard, w.mutes = true, 0
	w.fifo.arrived(time.Now())
	for _, e := range events {
		w.pulse.does(receiving)
		if err := w.receive(e); err != nil {
			return err
		}
	}
	if w.resourceVersion == "" {
		w.expect(streamGoesOn)
		return nil
	}
	w.failing = failing{}
	switch {
	case listing: // the streamed list is complete
		w.proven.Reset(longLived)
		w.streamsLeft = streamTries
	case !w.trusted:
		w.lives()
	}
	w.expect(w.longest())
	return nil
}

// lives records that the watch has brought something after its list, or has lived for a while.
func (w *watching[T]) lives() {
	w.failures, w.vain = 0, 0
	w.listPace.Reset()
	w.health.following(w.completed)
}

// longest returns how long a watch may be silent.
func (w *watching[T]) longest() time.Duration {
	if w.bookmarks > 0 {
		return twoBookmarks
	}
	return w.lifetime + watchSlack
}

func (w *watching[T]) silent() error {
	if w.resourceVersion == "" {
		return fmt.Errorf("watch: %w for %s; a client that cannot stream one, such as a fake, may need "+
			"Options.DisableWatchList", errSlowStream, w.silence)
	}
	w.bookmarks = max(0, w.bookmarks-1)
	if !w.heard {
		w.mutes++
	}
	return fmt.Errorf("watch: %w for %s", errSilent, w.silence)
}

// ended returns what the end of the watch means: the bytes were wrong, or the watch was too short. The error is that of
// the bytes, if they were seen.
func (w *watching[T]) ended(err error) error {
	inTime := time.Since(w.began) >= w.lifetime-clockSkew
	w.lost = !inTime || !w.checked
	w.mutes = 0
	if inTime {
		w.failing = failing{}
	} else {
		w.fails()
	}
	switch {
	case errors.Is(err, wire.ErrUndecodable) || errors.Is(err, wire.ErrViolation) || errors.Is(err, ErrTooLarge):
		return fmt.Errorf("watch: %w", err)
	case w.resourceVersion == "":
		return fmt.Errorf("watch: %w", errIncomplete)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errCutOff
	case w.trusted:
		if w.impatient() {
			w.resourceVersion = ""
		}
		return nil
	default:
		return errShortLived
	}
}
