package informer

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// page is a list, or a part of one, that the server has begun to answer with.
type page struct {
	// each calls visit with some of the objects at a time, in order, until that returns an error, which is then its
	// own. visit may keep the objects, but not the slice. The ListMeta is nil as long as it is not known. It is called
	// once.
	each func(visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error)
	stop func() // ends it, and waits for its end
}

// pageRequest is a page that has been asked for. It may arrive while something else is done: the time that nobody reads
// it does not count as the server's silence. It has a goroutine, which ends with close.
type pageRequest struct {
	opts     metav1.ListOptions
	patience time.Duration // within which the answer must begin; where it can be seen to come, it must go on within it
	watchdog *time.Timer
	ctx      context.Context
	cancel   context.CancelCauseFunc
	answered chan struct{} // closed once there is a page, or an error
	page     page
	err      error
}

// request asks the source for a page.
func (r *reflector[T]) request(ctx context.Context, opts metav1.ListOptions, patience time.Duration) *pageRequest {
	p := &pageRequest{opts: opts, patience: patience, answered: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.watchdog = time.AfterFunc(patience, func() { p.cancel(errSilent) })
	go func() {
		defer p.answer()
		// The client is the user's code, and so is the transport below it.
		p.err = lifecycle.ErrExited
		if panicked := lifecycle.Try(func() {
			p.page,
				p.err = r.source.list(withPatience(p.ctx, p.watchdog, patience), opts)
		}); panicked != nil {
			p.err = fmt.Errorf("the client's List: %w", panicked)
		}
	}()
	return p
}

func (p *pageRequest) answer() {
	p.watchdog.Stop()
	close(p.answered)
}

// read waits for the page and hands on what is on it, as [page] says.
func (p *pageRequest) read(visit func(*metav1.ListMeta, []wire.Event) error) (list metav1.ListMeta, err error) {
	if <-p.answered; p.err != nil {
		return list, p.silent(p.err)
	}
	p.watchdog.Reset(p.patience)
	list, err = p.page.each(func(list *metav1.ListMeta, arrived []wire.Event) error {
		p.watchdog.Stop()
		defer p.watchdog.Reset(p.patience)
		return visit(list, arrived)
	})
	return list, p.silent(err)
}

func (p *pageRequest) silent(err error) error {
	if err != nil && context.Cause(p.ctx) == errSilent {
		return fmt.Errorf("%w for %s", errSilent, p.patience)
	}
	return err
}

// close ends the request, and waits for its end. That of no request does nothing.
func (p *pageRequest) close() {
	if p == nil {
		return
	}
	p.cancel(nil)
	p.watchdog.Stop()
	if <-p.answered; p.err == nil {
		p.page.stop()
	}
}
