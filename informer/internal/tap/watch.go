package tap

import (
	"context"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// The client must return the events that it was given within this time.
const sampleTimeout = 10 * time.Second

// Watch is a watch that wire reads.
type Watch struct {
	// Reader delivers the events.
	Reader *wire.Reader
	// Client is the client's watch. It ends when whoever made the client ends it.
	Client watch.Interface

	tap  *Tap
	ctx  context.Context
	mark *mark
}

// Watch calls the client. It returns a Watch, or the client's if the answer is not for wire.
func (t *Tap) Watch(ctx context.Context, call func(context.Context) (watch.Interface, error)) (*Watch, watch.Interface,
	error) {
	ctx, m := t.mark(ctx, true)
	client, err := call(ctx)
	if m == nil {
		return nil, client, err
	}
	switch taken := m.count(); {
	case taken > 0 && err != nil:
		m.standIn.Close()
		return nil, nil, err
	case taken > 1:
		client.Stop()
		m.standIn.Close()
		return nil, nil, t.refuse(ctx, "the ListerWatcher makes one watch of several")
	case taken == 0 && err == nil:
		t.passed(ctx)
		fallthrough
	case taken == 0:
		return nil, client, err
	}
	w := &Watch{Reader: t.decoder().Read(ctx, m.body, false), Client: client, tap: t, ctx: ctx, mark: m}
	w.Reader.Edit = w.edit
	return w, nil, nil
}

// edit makes the events of a batch those that the client would have delivered. One of the type Error ends the watch.
func (w *Watch) edit(b *wire.Batch, events []wire.Event) {
	for i, e := range events {
		if e.Err != nil {
			w.tap.doubts(e.Err)
			events[i] = wire.Event{Type: watch.Error, Err: e.Err}
		}
	}
	now := w.tap.shapeOf(&w.tap.watches)
	good := slices.IndexFunc(events, func(e wire.Event) bool { return e.Type == watch.Error })
	if !now.proven() {
		if good < 0 {
			good = len(events)
		}
		if err := w.sample(b, events[:good]); err != nil {
			events[0] = wire.Event{Type: watch.Error, Err: err}
			return
		}
	}
	w.tap.shapeOf(&w.tap.watches).shaped(events)
}

// sample gives events to the client and compares what it returns.
func (w *Watch) sample(b *wire.Batch, events []wire.Event) error {
	w.mark.standIn.write(b.WatchAnswer(len(events)))
	late := time.NewTimer(sampleTimeout)
	defer late.Stop()
	var theirs []runtime.Object
	for _, e := range events {
		select {
		case returned, open := <-w.Client.ResultChan():
			if !open || returned.Type != e.Type {
				return w.tap.refuse(w.ctx, "the client, or what is behind it, changes the events of a watch")
			}
			theirs = append(theirs, returned.Object)
		case <-late.C:
			return w.tap.refuse(w.ctx, "the client, or what is behind it, keeps an event of a watch")
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	return w.tap.compare(w.ctx, &w.tap.watches, events, theirs)
}

// Stop ends the watch, and waits for its end.
func (w *Watch) Stop() {
	w.mark.standIn.end(nil, io.EOF)
	w.Client.Stop()
	w.Reader.Close()
	_, err := w.Reader.End()
	w.tap.doubts(err)
}
