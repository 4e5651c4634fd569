package tap

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// The client must return the object that it was given within this time.
const sampleTimeout = 10 * time.Second

// Watch is a watch that wire reads.
type Watch struct {
	// Reader delivers the events.
	Reader *wire.Reader
	// Client is the client's watch. It ends when whoever made the client ends it.
	Client watch.Interface

	tap     *Tap
	ctx     context.Context
	mark    *mark
	sampled bool
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
		err := e.Err
		if err == nil && !w.sampled && i == 0 && e.Type != watch.Error {
			err = w.sample(b, e)
		}
		if err != nil {
			w.tap.doubts(err)
			events[i] = wire.Event{Type: watch.Error, Err: err}
		}
	}
	w.tap.shapeOf(&w.tap.watches).shaped(events)
}

// sample gives the first event to the client and compares what it returns.
func (w *Watch) sample(b *wire.Batch, e wire.Event) error {
	w.sampled = true
	if w.tap.shapeOf(&w.tap.watches).proven {
		return nil
	}
	w.mark.standIn.write(b.WatchAnswer())
	late := time.NewTimer(sampleTimeout)
	defer late.Stop()
	select {
	case returned, open := <-w.Client.ResultChan():
		if !open || returned.Type != e.Type {
			return w.tap.refuse(w.ctx, "the client, or what is behind it, changes the events of a watch")
		}
		// A bookmark has next to nothing that could be changed.
		return w.tap.compare(w.ctx, &w.tap.watches, e.Type != watch.Bookmark, e.Object, returned.Object)
	case <-late.C:
		return w.tap.refuse(w.ctx, "the client, or what is behind it, keeps an event of a watch")
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// Stop ends the watch, and waits for its end.
func (w *Watch) Stop() {
	w.mark.standIn.end(nil, io.EOF)
	w.Client.Stop()
	w.Reader.Close()
	_, err := w.Reader.End()
	w.tap.doubts(err)
}
