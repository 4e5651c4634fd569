package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	peer "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kind of elector to compare.
type kind struct {
	name  string
	begin func(p *process, ctx context.Context, cfg *rest.Config) error // one campaign and, perhaps, one tenure
}

func ours(change ...func(*Config)) kind {
	return kind{"thermostat", func(p *process, ctx context.Context, cfg *rest.Config) error {
		if p.elector.Load() == nil {
			c := Config{REST: cfg, Namespace: "ns", Name: "lock", Identity: p.identity, SkipFirstWait: true}
			for _, change := range change {
				change(&c)
			}
			e, err := New(c)
			if err != nil {
				return err
			}
			if p.tweak != nil {
				p.tweak(e)
			}
			p.elector.Store(e)
		}
		return p.elector.Load().Run(ctx, p.work)
	}}
}

// clientGo is client-go's elector with its own defaults. releases is its ReleaseOnCancel, timeout that of its client.
func clientGo(releases bool, timeout time.Duration, change ...func(*peer.LeaderElectionConfig)) kind {
	return kind{fmt.Sprintf("client-go (release %v, timeout %v)", releases, timeout),
		func(p *process, ctx context.Context, cfg *rest.Config) error {
			cfg = rest.CopyConfig(cfg)
			cfg.Timeout = timeout
			cfg.ContentType = "application/json"
			client, err := coordinationclient.NewForConfig(cfg)
			if err != nil {
				return err
			}
			c := peer.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "lock"},
					Client:     client,
					LockConfig: resourcelock.ResourceLockConfig{Identity: p.identity},
				},
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				ReleaseOnCancel: releases,
				Callbacks: peer.LeaderCallbacks{
					OnStartedLeading: func(ctx context.Context) { _ = p.work(ctx) },
					OnStoppedLeading: func() { p.stoppedCallbacks.Add(1) },
				},
			}
			for _, change := range change {
				change(&c)
			}
			e, err := peer.NewLeaderElector(c)
			if err != nil {
				return err
			}
			e.Run(ctx)
			return nil
		}}
}

// A process runs one kind of elector over a link, again and again until it is stopped, and notes when its work function
// worked.
type process struct {
	name, identity string
	link           *link
	linger         time.Duration               // how long the work goes on after its context has ended
	act            func(context.Context) error // instead of working until ctx ends
	tweak          func(*Elector)
	once           bool // do not campaign again
	exit           bool // end like a process that exits when its work did not stop
	elector        atomic.Pointer[Elector]

	stoppedCallbacks atomic.Int64
	working          atomic.Int64 // work functions that run
	cancel           context.CancelFunc
	done             chan struct{}
	err              error

	mu    sync.Mutex
	spans []span
	dead  time.Time
}

func (p *process) work(ctx context.Context) error {
	p.working.Add(1)
	defer p.working.Add(-1)
	p.mu.Lock()
	i := len(p.spans)
	p.spans = append(p.spans, span{from: time.Now()})
	p.mu.Unlock()
	var err error
	if p.act != nil {
		err = p.act(ctx)
	} else {
		<-ctx.Done()
		time.Sleep(p.linger)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spans[i].to = time.Now()
	return err
}

func spawn(t testing.TB, k kind, l *link, change ...func(*process)) *process {
	p := &process{name: l.name, identity: l.name, link: l, done: make(chan struct{})}
	for _, c := range change {
		c(p)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	p.cancel = cancel
	go func() {
		defer close(p.done)
		for ctx.Err() == nil {
			p.err = k.begin(p, ctx, l.config())
			if p.exit && errors.Is(p.err, ErrStuck) {
				p.kill()
			}
			if p.once || errors.Is(p.err, ErrStuck) {
				break
			}
			lifecycle.Sleep(ctx, 10*time.Millisecond)
		}
	}()
	return p
}

// stop is SIGTERM, and the wait for the process.
func (p *process) stop() {
	p.cancel()
	p.wait()
}

func (p *process) wait() {
	<-p.done
	for time.Sleep(time.Millisecond); p.working.Load() > 0; {
		time.Sleep(100 * time.Millisecond)
	}
}

// kill is kill -9, as far as the others can see.
func (p *process) kill() {
	p.link.cut(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead.IsZero() {
		p.dead = time.Now()
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tenures returns when the process worked; what goes on ends now.
func (p *process) tenures() []span {
	p.mu.Lock()
	defer p.mu.Unlock()
	var spans []span
	for _, s := range p.spans {
		if s.to.IsZero() {
			s.to = time.Now()
		}
		if !p.dead.IsZero() && s.to.After(p.dead) {
			s.to = p.dead
		}
		if s.to.After(s.from) {
			spans = append(spans, s)
		}
	}
	return spans
}

func (p *process) leads() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead.IsZero() && len(p.spans) > 0 && p.spans[len(p.spans)-1].to.IsZero()
}

// overlap is for how long more than one of the processes worked. It is the invariant I15, as a function of the history.
func overlap(processes ...*process) time.Duration {
	type edge struct {
		at    time.Time
		delta int
	}
	var edges []edge
	for _, p := range processes {
		for _, s := range p.tenures() {
			edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
		}
	}
	// who ends makes room first
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), a.delta-b.delta) })
	var total time.Duration
	for i, n := 0, 0; i < len(edges); i++ {
		if n > 1 {
			total += edges[i].at.Sub(edges[i-1].at)
		}
		n += edges[i].delta
	}
	return total
}

// leader waits until one of the processes works.
func leader(t testing.TB, processes ...*process) *process {
	for range 10 * 60 * 1000 {
		for _, p := range processes {
			if p.leads() {
				return p
			}
		}
		time.Sleep(time.Millisecond)
	}
	require.FailNow(t, "nobody leads")
	return nil
}
