package network

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// End is one end of a connection. See [Pod], [Network.Start] and [Network.Listen].
type End string

// Outside is every process that is no other End.
const Outside End = ""

// Pod is the end that a pod of package processnode is. A pod that is made again under the same name is the same end.
func Pod(pod types.NamespacedName) End { return End(pod.String()) }

// Network has ends, and faults between them. Its methods may be called by several goroutines at the same time.
type Network struct {
	// The end of ctx ends all goroutines of the group. Close waits for them.
	ctx    context.Context
	cancel context.CancelFunc
	group  lifecycle.Group

	// starting is held for reading until a process that starts is known as an end, and for writing while the origin of
	// a connection is looked for: no process dials before it is known.
	starting sync.RWMutex

	mu        sync.Mutex // guards the fields below
	processes []known
	addresses map[End]netip.Addr // at which ends serve
	faults    map[*fault]struct{}
	changed   chan struct{} // closed when faults change, and made anew
}

// known is a process and which end it is.
type known struct {
	end   End
	pid   int
	ended <-chan struct{}
}

// way is one direction between two ends.
type way struct{ from, to End }

// fault is what a way has. A cut has no delay.
type fault struct {
	way
	cut   bool
	delay time.Duration
}

// New returns a network without faults. Its user has to call Close, after the ends have ended. If the kernel does not
// tell which process has a socket, New returns an error, which wraps [errors.ErrUnsupported] on systems other than
// Linux.
func New() (*Network, error) {
	if err := canTell(); err != nil {
		return nil, fmt.Errorf("make a network: %w", err)
	}
	n := &Network{addresses: map[End]netip.Addr{}, faults: map[*fault]struct{}{}, changed: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, nil
}

// Close closes all ports and connections. It returns an error that wraps lifecycle.ErrStuck if one does not end within
// ten seconds.
func (n *Network) Close() error {
	n.cancel()
	return n.group.Wait(10 * time.Second)
}

// Start calls start, which starts a process or restarts one, and returns what it does. The process and the children in
// its process group are the end.
func (n *Network) Start(end End, start func() (*cluster.Process, error)) (*cluster.Process, error) {
	n.starting.RLock()
	defer n.starting.RUnlock()
	process, err := start()
	if err != nil {
		return nil, err
	}
	n.own(known{end, process.PID, process.Ended()})
	return process, nil
}

func (n *Network) own(k known) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.processes = append(n.processes, k)
}

// Cut lets no byte from one end arrive at another one until heal is called. The other direction is not cut. A way that
// is cut twice is whole when both have healed.
func (n *Network) Cut(from, to End) (heal func()) {
	return n.add(&fault{way: way{from, to}, cut: true})
}

// Delay has the bytes from one end arrive at another one later, until heal is called. The delays of a way add up. A new
// connection takes the delays of both directions.
func (n *Network) Delay(from, to End, by time.Duration) (heal func()) {
	return n.add(&fault{way: way{from, to}, delay: by})
}

func (n *Network) add(f *fault) (heal func()) {
	n.change(func() { n.faults[f] = struct{}{} })
	return func() { n.change(func() { delete(n.faults, f) }) }
}

func (n *Network) change(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.changed)
	n.changed = make(chan struct{})
}

// state returns what a way has now, and a channel that is closed when that may have changed.
func (n *Network) state(w way) (cut bool, delay time.Duration, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.faults {
		if f.way == w {
			cut, delay = cut || f.cut, delay+f.delay
		}
	}
	return cut, delay, n.changed
}

// pass waits until what was sent at a time arrives at the other end. It returns false if ctx has ended before.
func (n *Network) pass(ctx context.Context, w way, sent time.Time) bool {
	for {
		cut, delay, changed := n.state(w)
		left := time.Until(sent.Add(delay))
		if !cut && left <= 0 {
			return ctx.Err() == nil
		}
		if !n.pause(ctx, cut, left, changed) {
			return false
		}
	}
}

// pause waits for a change, and, if the way is not cut, no longer than left. It returns false when ctx has ended.
func (n *Network) pause(ctx context.Context, cut bool, left time.Duration, changed <-chan struct{}) bool {
	var due <-chan time.Time
	if !cut {
		timer := time.NewTimer(left)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-due:
	}
	return true
}
