package tap

import (
	"context"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// List is a list that wire reads. The client's call goes on meanwhile, on a goroutine that Stop waits for.
type List struct {
	tap    *Tap
	ctx    context.Context
	mark   *mark
	reader *wire.Reader

	call     lifecycle.Group
	returned chan struct{} // closed once list and err are set
	list     runtime.Object
	err      error
}

// List calls the client. It returns a List once the answer has begun, or what the client has returned if the answer is
// not for wire.
func (t *Tap) List(ctx context.Context, call func(context.Context) (runtime.Object, error)) (*List, runtime.Object,
	error) {
	ctx, m := t.mark(ctx, false)
	if m == nil {
		list, err := call(ctx)
		return nil, list, err
	}
	l := &List{tap: t, ctx: ctx, mark: m, returned: make(chan struct{})}
	l.call.Go("list of a client", func() {
		defer close(l.returned)
		l.list, l.err = call(ctx)
	})
	select {
	case <-m.taken:
		l.reader = t.decoder().Read(ctx, m.body, true)
		return l, nil, nil
	case <-l.returned:
		if l.err == nil {
			t.passed(ctx)
		}
		return nil, l.list, l.err
	}
}

// Each calls visit with some of the objects at a time, in order, until visit returns an error, which Each returns. A
// list that has samples for the client is visited at its end, when the client has returned them.
func (l *List) Each(visit func([]wire.Event) error) (metav1.ListMeta, error) {
	var sampled []*wire.Batch
	var unproven []wire.Event
	now := l.tap.shapeOf(&l.tap.lists)
	for b := range l.reader.Batches {
		events := b.Events()
		if err := unread(events); err != nil {
			return metav1.ListMeta{}, l.failed(err)
		}
		if now.proven() {
			now.shaped(events)
			if err := visit(events); err != nil {
				return metav1.ListMeta{}, err
			}
			l.reader.Recycle(b)
			continue
		}
		wanted := len(unproven) < samples
		unproven = append(unproven, events...)
		if wanted {
			sampled = append(sampled, b)
		} else {
			l.reader.Recycle(b)
		}
	}
	head, err := l.reader.End()
	if err != nil {
		return metav1.ListMeta{}, l.failed(err)
	}
	err = l.answer(head, sampled, unproven[:min(len(unproven), samples)])
	if err == nil && len(unproven) > 0 {
		l.tap.shapeOf(&l.tap.lists).shaped(unproven)
		err = visit(unproven)
	}
	return head, err
}

// failed lets the client's call end with the error of the answer, and returns what the client makes of it.
func (l *List) failed(err error) error {
	l.tap.doubts(err)
	l.mark.standIn.end(nil, err)
	if <-l.returned; l.err != nil {
		return l.err
	}
	return err
}

// answer lets the client's call end with its stand-in, and returns an error unless it returns that.
func (l *List) answer(head metav1.ListMeta, sampled []*wire.Batch, ours []wire.Event) error {
	l.mark.standIn.end(l.reader.ListAnswer(sampled, len(ours)), io.EOF)
	if <-l.returned; l.err != nil {
		return l.err
	}
	theirs, err := meta.ExtractList(l.list)
	same, _ := meta.ListAccessor(l.list)
	if err != nil || same == nil || l.mark.count() > 1 || len(theirs) != len(ours) ||
		same.GetResourceVersion() != head.ResourceVersion || same.GetContinue() != head.Continue {
		return l.tap.refuse(l.ctx, "the ListerWatcher returns another list than the server sent")
	}
	return l.tap.compare(l.ctx, &l.tap.lists, ours, theirs)
}

// Stop ends the list, and waits for the client's call.
func (l *List) Stop() {
	l.mark.standIn.end(nil, context.Canceled)
	l.reader.Close()
	<-l.returned
}
