package informer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// filling lists the objects of slices that have come (see Options.Shard) beside the watch, which goes on: so the store
// stays up to date with the others, however long the list takes, and if it fails.
//
// From its beginning on the watch brings what happens to objects of these slices, too. So an object of the list is
// taken unless the watch has told of its key meanwhile: then it has told what is later, or is about to. And what the
// list does not contain did not exist then. A list of all objects, as after a 410, has them all, and ends the filling.
//
// Slices that come meanwhile have the next one, all of them one: if each began the list anew, it would not end while
// slices come.
//
// It has one goroutine, which ends with stop. The rest belongs to the goroutine of the reflector.
type filling struct {
	growth  uint64 // of the share when it began: see kept
	cancel  context.CancelFunc
	lister  lifecycle.Group
	arrived chan arrival // closed when the list is complete
	version string       // of the list; set before arrived is closed
	// told is what the watch has told of since the list began, and least the version of the latest event since that was
	// stale: see share.stale.
	told  map[Key]struct{}
	least string
}

// arrival is what a filling brings: objects, or the news that a list begins. The answer to that is the version up to
// which the watch has come.
type arrival struct {
	events []wire.Event
	begins chan<- string
}

// fillUp begins a filling if slices have come since the latest list, unless there is one.
func fillUp[T any](r *reflector[T]) {
	growth := r.share.growth()
	if growth <= r.filled || r.filling != nil {
		return
	}
	f := &filling{growth: growth, arrived: make(chan arrival), told: make(map[Key]struct{})}
	ctx, cancel := context.WithCancel(r.alive)
	r.filling, f.cancel = f, cancel
	before, opts := r.filled, r.selector
	opts.Limit = r.pageSize
	comes := func(e wire.Event) bool {
		slice, _ := r.share.judgeEvent(e)
		return r.share.fills(slice, before) && !r.share.fills(slice, growth)
	}
	f.lister.Go("list for slices that have come", func() {
		pace := lifecycle.Backoff{Base: 800 * time.Millisecond, Cap: 30 * time.Second, Costly: true, Purpose: r.purpose}
		for failed := false; ctx.Err() == nil; {
			err := f.list(ctx, r.source, opts, comes)
			switch {
			case ctx.Err() != nil:
			case err == nil:
				close(f.arrived)
				return
			default:
				r.health.failedBeside(err)
				if !failed {
					failed = true
					r.log.Error(err, "A list of objects of slices that have come failed; it is tried again")
				}
				lifecycle.Pause[struct{}](ctx, pace.After(kube.RetryAfter(err)), nil)
			}
		}
	})
}

// list lists once, page by page. What has been received of a list that fails does no harm: it was true, and the watch
// tells what has happened to it since.
func (f *filling) list(ctx context.Context, from source, opts metav1.ListOptions, comes func(wire.Event) bool) error {
	begins := make(chan string, 1)
	if err := f.send(ctx, arrival{begins: begins}); err != nil {
		return err
	}
	notBefore := <-begins
	for range maxPages {
		var kept []wire.Event
		page, err := fetch(ctx, from, opts, listTimeout, func(_ *metav1.ListMeta, events []wire.Event) error {
			for _, e := range events {
				if comes(e) {
					kept = append(kept, e)
				}
			}
			return ctx.Err()
		})
		switch {
		case err != nil:
			return fmt.Errorf("list: %w", err)
		case notBefore != "" && kube.Older(page.ResourceVersion, notBefore): // it may have what is gone
			return wentBack(notBefore, page.ResourceVersion)
		}
		if len(kept) > 0 {
			if err := f.send(ctx, arrival{events: kept}); err != nil {
				return err
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			f.version = page.ResourceVersion
			return nil
		}
	}
	return fmt.Errorf("%w: %w: %d pages of %d objects and no end", wire.ErrViolation, ErrTooLarge, maxPages, opts.Limit)
}

func (f *filling) send(ctx context.Context, a arrival) error {
	select {
	case f.arrived <- a:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arrivals returns what a filling brings; nil: there is none.
func (f *filling) arrivals() <-chan arrival {
	if f == nil {
		return nil
	}
	return f.arrived
}

// stop ends a filling, and waits for its goroutine. On a nil filling it does nothing.
func (f *filling) stop() {
	if f == nil {
		return
	}
	f.cancel()
	<-f.lister.Done()
}

// receiveFilling puts what a filling has brought into the FIFO. Without more, that is all of it.
func receiveFilling[T any](r *reflector[T], a arrival, more bool) error {
	f := r.filling
	if !more {
		if !kube.Older(f.version, f.least) { // else another list brings what the event has changed
			r.filled = f.growth
			r.fifo.fill(r.filled)
		}
		f.stop()
		r.filling = nil
		fillUp(r)
		return nil
	}
	if a.begins != nil {
		f.told, f.least = make(map[Key]struct{}), ""
		a.begins <- r.resourceVersion
		return nil
	}
	for _, e := range a.events {
		object, err := meta.Accessor(e.Object)
		if err != nil {
			return err
		}
		if _, told := f.told[KeyOf(object)]; told {
			continue
		}
		if err := r.receiveItem(e); err != nil {
			return err
		}
	}
	return nil
}

// stale reports whether the decoder has left out the object of an event that is kept now: its slice has come in
// between, and a list brings it: one from after the event, see filling.least.
func (s *share) stale(e wire.Event) bool {
	return s != nil && e.Err == wire.ErrNotKept && s.keepsObject(briefOf(e.Object, false))
}
