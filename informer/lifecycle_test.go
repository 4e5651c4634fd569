package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

func TestAnInformerRunsOnce(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Name: "pods"}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- inf.Run(ctx) }()
		synctest.Wait()
		second := inf.Run(t.Context())
		require.ErrorIs(t, second, ErrStarted)
		require.EqualError(t, second, "the informer has been started before: pods runs once; a Manager that has it "+
			"runs it")
		cancel()
		require.NoError(t, <-first)
		require.ErrorIs(t, inf.Run(t.Context()), ErrStarted)

		require.Equal(t, Stopped, inf.Health().State)
		require.Equal(t, 2, inf.Len(), "the cache still answers")
		require.NoError(t, inf.WaitForSync(t.Context()), "it was synced")
		_, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{})
		require.ErrorIs(t, err, ErrStopped)
		byName, err := AddIndex(inf, func(o *corev1.Pod, add func(string)) { add(o.Name) })
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"a", "b"}, byName.Values())
	})
}

// From whatever it does, Run returns at once.
func TestStopsFromEveryPhase(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		opts  Options[*corev1.Pod]
		setup func(p *proxy)
		after time.Duration
	}{
		"before it began": {},
		"live":            {after: time.Minute},
		"asking for a stream": {setup: func(p *proxy) {
			p.onWatch = func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
				return nil,
					hang(ctx)
			}
		}, after: time.Second},
		"waiting for a stream's first event": {setup: func(p *proxy) { p.onWatch = silence }, after: time.Second},
		"waiting for a page": {opts: Options[*corev1.Pod]{DisableWatchList: true}, setup: func(p *proxy) {
			p.onList = func(ctx context.Context, _ metav1.ListOptions) (*corev1.PodList, error) {
				return nil,
					hang(ctx)
			}
		}, after: time.Second},
		"between endless pages": {opts: Options[*corev1.Pod]{DisableWatchList: true}, setup: func(p *proxy) {
			p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				time.Sleep(time.Millisecond)
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: opts.Continue + "x"}},
					nil
			}
		}, after: time.Second},
		"backing off": {setup: func(p *proxy) { p.onWatch = refuse(errBusy) }, after: time.Hour},
		"obeying Retry-After": {setup: func(p *proxy) {
			p.onWatch = refuse(problem(429, metav1.StatusReasonTooManyRequests, 3600))
		}, after: time.Minute},
		"denied": {setup: func(p *proxy) { p.onWatch = refuse(errForbidden) }, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.opts, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				if c.setup != nil {
					c.setup(p)
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(c.after, cancel)
				began := time.Now()
				require.NoError(t, inf.Run(ctx))
				require.LessOrEqual(t, time.Since(began), c.after+time.Millisecond)
				require.Zero(t, p.Watchers())
				if !inf.HasSynced() {
					err := inf.WaitForSync(t.Context())
					require.ErrorIs(t, err, ErrStopped)
				}
			})
		})
	}
}

func TestWhoeverIsStuckIsNamed(t *testing.T) {
	for name, opts := range map[string]HandlerOptions{"own goroutine": {Name: "printer"},
		"inline": {Name: "printer", Inline: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{Name: "pods", StopGrace: 3 * time.Second},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					release := make(chan struct{})
					stuck, err := inf.AddHandler(func(Event[*corev1.Pod]) { <-release }, opts)
					require.NoError(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					began := time.Now()
					err = inf.Run(ctx)
					require.ErrorIs(t, err, ErrStuck)
					require.ErrorContains(t, err, "printer")
					require.ErrorContains(t, err, "informer pods")
					require.Equal(t, time.Minute+3*time.Second, time.Since(began))

					// Nobody else has to wait for it.
					_, err = inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{})
					require.ErrorIs(t, err, ErrStopped)
					if opts.Inline {
						_, err = AddIndex(inf, func(*corev1.Pod, func(int)) {})
						require.ErrorIs(t, err, ErrStopped)
					}
					require.ErrorIs(t, inf.Run(t.Context()), ErrStarted)
					gone, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					require.ErrorIs(t, stuck.Remove(gone), context.DeadlineExceeded)
					close(release)
					require.NoError(t, stuck.Remove(t.Context()))
				})
		})
	}
}

func TestWaitForSync(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Name: "pods"}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		soon := errors.New("the pod has been told to go")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, soon)
		defer cancel()
		err := inf.WaitForSync(ctx)
		require.ErrorIs(t, err, soon)
		require.ErrorContains(t, err, "informer pods")
		require.Equal(t, Listing, inf.Health().State)

		// A complaint about one object is not why there is no list yet.
		inf.health.badObject(errors.New("a bad object"))
		require.NotContains(t, inf.WaitForSync(ctx).Error(), "bad object")

		run(t, inf)
		synced(t, inf)
		require.NoError(t, inf.WaitForSync(ctx), "synced is synced, whatever the context")
	})
}

// Under any storm few lines, and never an object.
func TestLogsAreCalmAndDiscreet(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
		if strings.HasPrefix(p.Name, "bad") {
			return nil, errors.New("refused")
		}
		return p, nil
	}}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		_, err := AddIndex(inf, func(o *corev1.Pod, _ func(string)) {
			if strings.HasSuffix(o.Name, "7") {
				panic(o)
			}
		})
		require.NoError(t, err)
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) { panic(e) }, HandlerOptions{})
		require.NoError(t, err)
		// A logger may well want to know how the informer is doing.
		log := &lines{each: func() { inf.Health() }}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.New(log)))
		done := make(chan error, 1)
		go func() { done <- inf.Run(ctx) }()
		synctest.Wait()
		for i := range 500 {
			p.Create(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("bad-%d", i),
					Annotations: map[string]string{"a": "swordfish"}},
			})
			p.Create(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("good-%d", i),
					Annotations: map[string]string{"a": "swordfish"}},
			})
		}
		synctest.Wait()
		p.set(func() { p.onWatch = refuse(errBusy) })
		p.Cut()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 550, inf.Health().Rejected)
		cancel()
		require.NoError(t, <-done)
		require.NotEmpty(t, log.all())
		require.LessOrEqual(t, len(log.all()), 100)
		require.NoError(t, calmly(log.all()))
		require.NoError(t, discreetly("swordfish", log.all(), inf.Health()))
	})
}

// A line about an object has a stack where there is one: that of a panic.
func TestAStackIsOnlyThatOfAPanic(t *testing.T) {
	log := &lines{}
	h := &health{log: klog.New(log)}
	h.badObject(errors.New("refused"))
	h.badObject(lifecycle.Try(func() { panic("swordfish") }))
	require.Len(t, log.all(), 2)
	require.NotContains(t, log.all()[0].text, "stack")
	require.Contains(t, log.all()[1].text, "stack goroutine")
	require.NoError(t, discreetly("swordfish", log.all(), Health{}))
}

// lines is a log that remembers.
type lines struct {
	each func() // nil: nothing

	mu     sync.Mutex
	logged []line
}

// line is one line of a log: what is the same in all lines of its kind, and all of it.
type line struct {
	at                      time.Time
	message, handler, state string
	text                    string
	isError                 bool // logged at the level of errors
}

func (l *lines) write(isError bool, message string, err error, kv []any) {
	if l.each != nil {
		l.each()
	}
	written := line{at: time.Now(), message: message, text: fmt.Sprint(message, err, kv), isError: isError}
	for i := 0; i+1 < len(kv); i += 2 {
		switch kv[i] {
		case "handler":
			written.handler = fmt.Sprint(kv[i+1])
		case "state":
			written.state = fmt.Sprint(kv[i+1])
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logged = append(l.logged, written)
}

func (l *lines) all() []line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.logged
}

func (l *lines) Init(klog.RuntimeInfo)                  {}
func (l *lines) Enabled(level int) bool                 { return level <= 1 }
func (l *lines) Info(_ int, msg string, kv ...any)      { l.write(false, msg, nil, kv) }
func (l *lines) Error(err error, msg string, kv ...any) { l.write(true, msg, err, kv) }
func (l *lines) WithValues(...any) klog.LogSink         { return l }
func (l *lines) WithName(string) klog.LogSink           { return l }
