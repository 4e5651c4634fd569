package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// process is one incarnation of the program, or one of the programs beside it.
type process struct {
	Program
	incarnation int           // from 1; 0: a program beside
	latency     time.Duration // that each request takes; the driver's
	gates       *gates
	link        *Link
	ctx         context.Context // what Run gets, but for the link's own
	cancel      context.CancelFunc
	ended       chan struct{}
	err         error // valid once ended is closed
	exiting     sync.Once
	exited      chan struct{} // closed when it has ended itself as os.Exit does
	code        int           // valid once exited is closed
	gone        bool          // it has ended by itself, and another one takes its place; the driver's
	dies        time.Time     // when another incarnation takes its place; zero: it has the place
}

var errIgnoresContext = errors.New("the program has not ended one minute after its ctx ended and its connection " +
	"broke: it waits for something that does not come, without looking at ctx")

// launch starts a program on a goroutine of the group.
func launch(group *lifecycle.Group, gates *gates, program Program, incarnation int) *process {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	p := &process{Program: program, incarnation: incarnation, latency: usualLatency, gates: gates,
		link: gates.server.LinkAs(program.User), cancel: cancel, ended: make(chan struct{}),
		exited: make(chan struct{})}
	p.link.Inject(gates.hold(p))
	gates.mu.Lock()
	label := pprof.Labels(processLabel, strconv.Itoa(len(gates.launched)), scheduleLabel, gates.schedule)
	gates.live, gates.launched = append(gates.live, p), append(gates.launched, p)
	gates.mu.Unlock()
	p.ctx = pprof.WithLabels(context.WithValue(ctx, processKey{}, p), label)
	group.Go("program", func() {
		pprof.SetGoroutineLabels(p.ctx)
		defer close(p.ended)
		defer func() {
			if r := recover(); r != nil {
				p.err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		p.err = p.Run(p.link.Context(p.ctx), p.link.Config())
	})
	return p
}

// String is what begins a line of the timeline: "1", or with several programs "autoscaler 1".
func (p *process) String() string {
	if p.Name == "" {
		return fmt.Sprint(p.incarnation)
	}
	return fmt.Sprintf("%s %d", p.Name, p.incarnation)
}

// title names an incarnation within a sentence.
func (p *process) title() string {
	if p.Name == "" {
		return fmt.Sprintf("incarnation %d", p.incarnation)
	}
	return p.String()
}

// running reports whether the program has not ended by itself.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	case <-p.exited:
		return false
	default:
		return true
	}
}

// exit is the end of a process by one of its goroutines: from now on nothing that it does reaches anybody.
func (p *process) exit(code int) {
	p.exiting.Do(func() {
		p.code = code
		p.link.Close()
		p.cancel()
		close(p.exited)
	})
}

// why says with what a process has ended by itself.
func (p *process) why() error {
	select {
	case <-p.exited:
		return fmt.Errorf("klog has ended the process with the code %d", p.code)
	default:
		return p.err
	}
}

// failed reports whether a process has ended by itself, and not well, or could not start since it was killed before it
// watched anything. What another one returns that was killed says nothing.
func (p *process) failed() bool {
	if isClosed(p.exited) {
		return true
	}
	starts := !slices.ContainsFunc(p.link.Requests(), func(r Request) bool { return r.Verb == "watch" })
	return (p.gone || starts) && !p.running() && p.err != nil && !errors.Is(p.err, context.Canceled)
}

// waits sleeps, and reports whether that was not cut short by the end of a ctx or of the process.
func (p *process) waits(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.ctx.Done():
	}
	return false
}

// kill is the death of a process: first its connections break, then its ctx ends, so that what it does at its end
// reaches nobody. Then its goroutines have a minute to end, since a bubble cannot throw them away.
func (gs *gates) kill(p *process) error {
	p.link.Close()
	p.cancel()
	gs.mu.Lock()
	gs.live = slices.DeleteFunc(gs.live, func(other *process) bool { return other == p })
	gs.mu.Unlock()
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
			if isClosed(p.exited) {
				return nil // a real one would be gone: nothing that it waits for has to come
			}
			return errIgnoresContext
		}
	}
}
