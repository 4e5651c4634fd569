package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// process is one incarnation of the program, or one of the programs beside it.
type process struct {
	incarnation int // from 1; 0: a program beside
	link        *Link
	cancel      context.CancelFunc
	ended       chan struct{}
	err         error     // valid once ended is closed
	dies        time.Time // when another incarnation takes its place; zero: it has the place
}

var errIgnoresContext = errors.New("the program has not ended one minute after its ctx ended and its connection " +
	"broke: it waits for something that does not come, without looking at ctx")

// launch starts a program on a goroutine of the group.
func launch(group *lifecycle.Group, gates *gates, user string, incarnation int,
	run func(context.Context, *rest.Config) error) *process {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	p := &process{incarnation: incarnation, link: gates.server.LinkAs(user), cancel: cancel,
		ended: make(chan struct{})}
	p.link.Inject(gates.hold(p))
	group.Go("program", func() {
		defer close(p.ended)
		defer func() {
			if r := recover(); r != nil {
				p.err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		p.err = run(p.link.Context(ctx), p.link.Config())
	})
	return p
}

// running reports whether the program has not ended by itself.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill is the death of a process: first its connections break, then its ctx ends, so that what it does at its end
// reaches nobody. Then its goroutines have a minute to end, since a bubble cannot throw them away.
func (gs *gates) kill(p *process) error {
	p.link.Close()
	p.cancel()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		for gs.release(p) {
		}
		select {
		case <-p.ended:
			return nil
		case <-gs.arrived:
		case <-deadline.C:
			return errIgnoresContext
		}
	}
}
