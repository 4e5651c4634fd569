package reconciletest

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/thermostat-go/thermostat/internal/network"
)

// Context returns a context for a program that uses the link: what packages of this library listen on with it, such as
// the webhooks of package reconcile/webhook, is reached in memory and in virtual time, by the server and by the
// program. A webhook is reached by the port that the program listens on, whatever its name: that of its Service, or the
// host of a URL. All of it breaks when the link is closed. [Check] gives such a context to [Scenario.Run].
func (l *Link) Context(ctx context.Context) context.Context {
	l.server.hosts.mu.Lock()
	defer l.server.hosts.mu.Unlock()
	l.server.hosts.used = true
	return network.With(ctx, &host{link: l, all: &l.server.hosts})
}

// hosts are what programs listen on.
type hosts struct {
	mu        sync.Mutex
	used      bool        // guarded by mu: there has been a program that could listen
	served    bool        // guarded by mu: one has listened
	missed    string      // guarded by mu: the first webhook that had to be called before; empty: there was none
	listeners []*listener // guarded by mu: the ones that are open, the newest one last
}

// could reports whether there has been a program that could serve a webhook. If none has listened yet, and the webhook
// has to be called, that is noted.
func (h *hosts) could(w webhook, host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.missed == "" && !h.served && !w.optional {
		h.missed = fmt.Sprintf("%s at %s", w.name, host)
	}
	return h.used
}

// unserved returns the webhook that had to be called, if no program has ever listened; empty: there is none.
func (h *hosts) unserved() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.served {
		return ""
	}
	return h.missed
}

// find returns the newest listener, of a port if one has it; nil: there is none.
func (h *hosts) find(port string) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range slices.Backward(h.listeners) {
		if l.port == port {
			return l
		}
	}
	if len(h.listeners) == 0 {
		return nil
	}
	return h.listeners[len(h.listeners)-1] // the port of a Service is another one than that of its pods
}

// dial connects to what listens in this process. Nothing does: the connection is refused.
func (h *hosts) dial(ctx context.Context, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	to := h.find(port)
	if to == nil {
		return nil, refusedTo(port)
	}
	here, there := net.Pipe()
	to.add(there)
	select {
	case to.arriving <- there:
		return here, nil
	case <-to.closed:
		return nil, refusedTo(port)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refusedTo is the error of a connection to a Service behind which nothing listens.
func refusedTo(port string) error {
	n, _ := strconv.Atoi(port) // a port that is no number is 0
	return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 10), Port: n},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// host is where one program runs.
type host struct {
	link *Link
	all  *hosts
}

func (h *host) Dial(ctx context.Context, address string) (net.Conn, error) {
	return h.all.dial(ctx, address)
}

func (h *host) Listen(_ context.Context, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	l := &listener{all: h.all, link: h.link, port: port, arriving: make(chan net.Conn), closed: make(chan struct{})}
	if !h.link.open() {
		return nil, errRefused
	}
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if slices.ContainsFunc(h.all.listeners, func(o *listener) bool { return o.link == h.link && o.port == port }) {
		return nil, fmt.Errorf("listen tcp %s: bind: address already in use", address)
	}
	h.all.listeners, h.all.served = append(h.all.listeners, l), true
	return l, nil
}

// closeAll ends what the program of a link listens on, and its connections.
func (h *hosts) closeAll(link *Link) {
	h.mu.Lock()
	mine := slices.Clone(h.listeners)
	h.mu.Unlock()
	for _, l := range mine {
		if l.link == link || link == nil {
			l.Close()
			l.breakAll()
		}
	}
}

// listener accepts connections that are made in this process.
type listener struct {
	all      *hosts
	link     *Link
	port     string
	arriving chan net.Conn
	closed   chan struct{}
	once     sync.Once

	mu    sync.Mutex
	conns []net.Conn // guarded by mu: all that were accepted
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arriving:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.all.mu.Lock()
		defer l.all.mu.Unlock()
		l.all.listeners = slices.DeleteFunc(l.all.listeners, func(other *listener) bool { return other == l })
	})
	return nil
}

func (l *listener) Addr() net.Addr { return inMemory(l.port) }

func (l *listener) add(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
}

func (l *listener) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// inMemory is an address that is reached in this process only.
type inMemory string

func (inMemory) Network() string  { return "in-memory" }
func (a inMemory) String() string { return net.JoinHostPort("in-memory", string(a)) }
