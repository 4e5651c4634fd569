package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// slownesses are the delays of the watch under which each fault is tried: none, and one that leaves the cache behind
// for a while.
var slownesses = []time.Duration{0, 2 * time.Second}

// TestKilledAtEveryWrite kills the process at each write in turn: before it reaches the server, after it was done but
// not answered, and after it was answered. The next process takes over with nothing but what the server has, and there
// is never a pod too many.
func TestKilledAtEveryWrite(t *testing.T) {
	deaths := map[string]func(kill func()) reconciletest.Fault{
		"before": func(kill func()) reconciletest.Fault {
			return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
				kill()
				return reconciletest.Reset(ctx, serve)
			}
		},
		"unanswered": func(kill func()) reconciletest.Fault { return reconciletest.Do(kill) },
		"answered": func(kill func()) reconciletest.Fault {
			return func(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
				resp, err := serve()
				time.AfterFunc(time.Nanosecond, kill)
				return resp, err
			}
		},
	}
	writes := storyWrites(t)
	for name, death := range deaths {
		for _, slow := range slownesses {
			for n := 1; n <= writes; n++ {
				t.Run(fmt.Sprintf("%s write %d, watches late by %s", name, n, slow), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						killed := make(chan struct{})
						first := w.start(options{prepare: func(p *process) {
							p.link.DelayWatches("pods", slow)
							hook, _ := numbered(n, death(func() { p.kill(); close(killed) }))
							p.link.Inject(hook)
						}})
						heir := make(chan *process, 1)
						go func() {
							<-killed
							time.Sleep(time.Second)
							heir <- w.start(options{prepare: func(p *process) { p.link.DelayWatches("pods", slow) }})
						}()
						w.story()
						require.Equal(t, storyTally, w.tally())
						first.requireKept()
						second := <-heir
						second.requireKept()
					})
				})
			}
		}
	}
}

// TestAWriteThatGoesWrongAtEveryWrite lets each write in turn fail in each of the ways in which writes fail: not done;
// done, and the answer lost; done, and answered with an error; refused. Only the first and the last are known not to
// have happened, and still there is never a pod too many.
func TestAWriteThatGoesWrongAtEveryWrite(t *testing.T) {
	faults := map[string]reconciletest.Fault{
		"not sent":           reconciletest.Reset,
		"the answer is lost": reconciletest.LoseAnswer,
		"done, and then 504": reconciletest.AnswerWith(apierrors.NewTimeoutError("the request took too long", 0)),
		"done, and then 500": reconciletest.AnswerWith(
			apierrors.NewInternalError(fmt.Errorf("it went wrong afterwards"))),
		"refused with 503": reconciletest.Refuse(apierrors.NewServiceUnavailable("not now")),
		"refused with 403": reconciletest.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p",
			fmt.Errorf("the quota is used up"))),
	}
	writes := storyWrites(t)
	for name, fault := range faults {
		for _, slow := range slownesses {
			for n := 1; n <= writes; n++ {
				t.Run(fmt.Sprintf("%s, write %d, watches late by %s", name, n, slow), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						hook, _ := numbered(n, fault)
						p := w.start(options{prepare: func(p *process) {
							p.link.DelayWatches("pods", slow)
							p.link.Inject(hook)
						}})
						w.story()
						require.Equal(t, storyTally, w.tally())
						p.requireKept()
					})
				})
			}
		}
	}
}

// TestWithoutTrackWritesALostAnswerMakesAPodTooMany shows that the test above would see it.
func TestWithoutTrackWritesALostAnswerMakesAPodTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook, _ := numbered(1, reconciletest.LoseAnswer)
		w.start(options{untracked: true, prepare: func(p *process) {
			p.link.DelayWatches("pods", 2*time.Second)
			p.link.Inject(hook)
		}})
		w.want("a", 3)
		w.settle("a")
		require.Greater(t, w.tally().made, 3)
	})
}

// TestAStormOfConflicts lets somebody else change the object all the time. What they write is never lost, and once they
// stop the status is right.
func TestAStormOfConflicts(t *testing.T) {
	for _, slow := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.start(options{prepare: func(p *process) { p.link.DelayWatches("replicasets", slow) }})
				w.want("a", 3)
				sets := w.admin.AppsV1().ReplicaSets("default")
				last := ""
				for i := range 1000 {
					last = fmt.Sprint(i)
					patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"storm":%q}}}`, last)
					set, err := sets.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
					require.NoError(t, err)
					require.Equal(t, last, set.Annotations["storm"])
					if i == 500 {
						w.want("a", 5)
					}
					time.Sleep(time.Millisecond)
				}
				w.settle("a")
				set, err := sets.Get(t.Context(), "a", metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, last, set.Annotations["storm"])
				require.Equal(t, tally{made: 5, peak: 5}, w.tally())
				p.requireKept()
			})
		})
	}
}

// TestCancelledAtEveryRequest ends the context of Run at each request that the process makes in turn, the first lists
// and watches included, while that request is being served and while it hangs. Run returns soon, no run begins any
// more, and nothing is left, or the bubble would say so.
func TestCancelledAtEveryRequest(t *testing.T) {
	requests := 0
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(options{})
		w.want("a", 3)
		w.settle("a")
		requests = len(p.link.Requests())
	})
	require.GreaterOrEqual(t, requests, 6)
	for n := 1; n <= requests; n++ {
		for _, hangs := range []bool{false, true} {
			t.Run(fmt.Sprintf("request %d, hangs %t", n, hangs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					cancelled := make(chan time.Time, 1)
					seen := 0
					p := w.start(options{prepare: func(p *process) {
						p.link.Inject(func(reconciletest.Request) reconciletest.Fault {
							p.mu.Lock()
							defer p.mu.Unlock()
							if seen++; seen != n {
								return nil
							}
							return func(ctx context.Context, serve func() (*http.Response, error)) (*http.Response,
								error) {
								p.cancel()
								cancelled <- time.Now()
								if hangs {
									return reconciletest.Delay(time.Hour, 0)(ctx, serve)
								}
								return serve()
							}
						})
					}})
					w.want("a", 3)
					at := <-cancelled
					synctest.Wait()
					p.mu.Lock()
					runs := p.runs
					p.mu.Unlock()
					require.NoError(t, p.stop())
					// A call that is under way may finish within DrainTimeout, and one that hangs has StopGrace in
					// addition.
					require.LessOrEqual(t, time.Since(at), 41*time.Second)
					time.Sleep(time.Hour)
					p.mu.Lock()
					defer p.mu.Unlock()
					require.Equal(t, runs, p.runs, "a run began although the context had ended")
					require.Empty(t, p.wrongs)
				})
			})
		}
	}
}

// tenures is an Elector that leads when and for as long as the test says.
type tenures struct {
	begin chan context.Context
}

func (e tenures) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case tenure := <-e.begin:
		return lead(tenure)
	case <-ctx.Done():
		return nil
	}
}

// TestTheLeaseIsLostAtEveryWrite ends the tenure at each write in turn and gives it back a minute later. In between
// nothing is written, and afterwards everything goes on where it was.
func TestTheLeaseIsLostAtEveryWrite(t *testing.T) {
	for n := 1; n <= storyWrites(t); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				elector := tenures{make(chan context.Context, 1)}
				tenure, lose := context.WithCancel(t.Context())
				defer lose()
				elector.begin <- tenure
				lost, idle := make(chan struct{}), 0
				hook, count := numbered(n, reconciletest.Do(func() { lose(); close(lost) }))
				p := w.start(options{elector: elector, prepare: func(p *process) { p.link.Inject(hook) }})
				back := make(chan struct{})
				go func() {
					defer close(back)
					<-lost
					synctest.Wait() // what was under way has ended
					idle = count()
					time.Sleep(time.Minute)
					require.Equal(t, idle, count(), "something was written without the lease")
					elector.begin <- t.Context()
				}()
				w.story()
				<-back
				require.Equal(t, storyTally, w.tally())
				p.requireKept()
			})
		})
	}
}

// TestTheSameStoryIsWrittenTheSameWay tells the story again and again: the same requests to write, in the same order.
func TestTheSameStoryIsWrittenTheSameWay(t *testing.T) {
	var first []string
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			began := time.Now()
			var log []string
			w.start(options{prepare: func(p *process) {
				p.link.DelayWatches("pods", 300*time.Millisecond)
				p.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
					if r.Writes() {
						p.mu.Lock()
						defer p.mu.Unlock()
						log = append(log, fmt.Sprintf("%s %s", time.Since(began), r))
					}
					return nil
				})
			}})
			w.story()
			if i == 0 {
				first = log
			}
			require.Equal(t, first, log)
		})
	}
	require.NotEmpty(t, first)
}

var _ reconcile.Elector = tenures{}
