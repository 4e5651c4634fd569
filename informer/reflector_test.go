package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// proxy stands in front of a podAPI, writes down what is asked, and goes wrong where onList and onWatch say so.
type proxy struct {
	*podAPI
	// Both may be nil, and may call the next handler's method. They are set before use, or in between by the test's
	// goroutine, with set.
	mu      sync.Mutex
	onList  func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
	onWatch func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	asked   []request
}

type request struct {
	at   time.Time
	verb string // LIST, STREAM or WATCH, or ASK for a list of one object, which asks for the version
	opts metav1.ListOptions
}

func (p *proxy) set(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
}

func (p *proxy) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	verb := "LIST"
	if opts.Limit == 1 { // no test has pages of one object and looks at the requests
		verb = "ASK"
	}
	p.mu.Lock()
	p.asked = append(p.asked, request{time.Now(), verb, opts})
	on := p.onList
	p.mu.Unlock()
	if on != nil {
		return on(ctx, opts)
	}
	return p.podAPI.List(ctx, opts)
}

func (p *proxy) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	verb := "WATCH"
	if opts.SendInitialEvents != nil {
		verb = "STREAM"
	}
	p.mu.Lock()
	p.asked = append(p.asked, request{time.Now(), verb, opts})
	on := p.onWatch
	p.mu.Unlock()
	if on != nil {
		return on(ctx, opts)
	}
	return p.podAPI.Watch(ctx, opts)
}

// verbs returns what has been asked since the last call.
func (p *proxy) verbs() []string {
	verbs := []string{}
	for _, r := range p.requests() {
		verbs = append(verbs, r.verb)
	}
	return verbs
}

func (p *proxy) requests() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

// streams gives watches that the test feeds by hand.
func silence(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewRaceFreeFake(), nil
}

func refuse(err error) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, err }
}

func problem(code int32, reason metav1.StatusReason, retryAfter int32) *apierrors.StatusError {
	s := &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code,
		Reason: reason, Message: string(reason),
	}}
	if retryAfter > 0 {
		s.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	}
	return s
}

var (
	errExpired   = problem(http.StatusGone, metav1.StatusReasonExpired, 0)
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	errNoSuch    = problem(http.StatusNotFound, metav1.StatusReasonNotFound, 0)
	errBusy      = problem(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 0)
)

// bubble runs fn in virtual time with a server that holds the pods a and b, and an informer in front of it that has not
// been started.
func bubble(t *testing.T, opts Options[*corev1.Pod],
	fn func(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod], told *history)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &proxy{podAPI: newPodAPI()}
		p.Create(pod("a"))
		p.Create(pod("b"))
		opts.DetectMutations = true
		inf, err := New[*corev1.Pod](p, opts)
		require.NoError(t, err)
		told := &history{inf: inf, rounds: rounds{}}
		_, err = inf.AddHandler(told.handle, HandlerOptions{})
		require.NoError(t, err)
		fn(t, p, inf, told)
		virtual.record(t)
		require.NoError(t, told.err())
		require.NoError(t, mutations(inf))
	})
}

// healed checks that, once the server is well again and a minute has passed, cache and handler know what it knows.
func healed(t *testing.T, p *proxy, inf *SharedIndexInformer[*corev1.Pod], told *history) {
	t.Helper()
	p.set(func() { p.onList, p.onWatch = nil, nil })
	p.Create(pod("after-" + strconv.Itoa(len(p.Objects()))))
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(t, Live, inf.Health().State)
	require.Equal(t, len(p.Objects()), inf.Len())
	for _, o := range p.Objects() {
		held, ok := inf.Get(KeyOf(o))
		require.True(t, ok)
		require.Equal(t, o.ResourceVersion, held.ResourceVersion)
	}
	require.NoError(t, told.folded(p.Objects()))
	require.NoError(t, told.err())
}

type informerOfPods = SharedIndexInformer[*corev1.Pod]

func TestStreamsTheFirstListAndStaysWithItsWatch(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synced(t, inf)
		p.Create(pod("c"))
		synctest.Wait()
		asked := p.requests()
		require.Len(t, asked, 1)
		require.Equal(t, "STREAM", asked[0].verb)
		require.Equal(t, metav1.ResourceVersionMatchNotOlderThan, asked[0].opts.ResourceVersionMatch)
		require.Empty(t, asked[0].opts.ResourceVersion, "the first list is consistent")
		require.True(t, asked[0].opts.AllowWatchBookmarks)
		require.Equal(t, []string{"Added a initial", "Added b initial", "Added c"}, told.lines())
	})
}

// A15 and its relatives: whatever keeps a server from streaming a list, plain lists take over within a bounded time,
// and for good.
func TestFallsBackToPlainLists(t *testing.T) {
	type watcher = func(context.Context, metav1.ListOptions) (watch.Interface, error)
	stream := func(events func(w *watch.RaceFreeFakeWatcher)) watcher {
		return func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewRaceFreeFake()
			events(w)
			return w, nil
		}
	}
	someone := pod("a")
	someone.ResourceVersion, someone.UID = "2", "uid-1"
	for name, c := range map[string]struct {
		server watcher
		within time.Duration
	}{
		"refused":        {refuse(problem(422, metav1.StatusReasonInvalid, 0)), 0},
		"bad request":    {refuse(problem(400, metav1.StatusReasonBadRequest, 0)), 0},
		"no such verb":   {refuse(problem(405, metav1.StatusReasonMethodNotAllowed, 0)), 0},
		"silent at once": {silence, 2*streamBegins + time.Second},
		"silent after a": {stream(func(w *watch.RaceFreeFakeWatcher) { w.Add(someone) }),
			2*streamGoesOn + time.Second},
		"ended early": {stream(func(w *watch.RaceFreeFakeWatcher) { w.Add(someone); w.Stop() }), time.Second},
		"bookmark of another": {stream(func(w *watch.RaceFreeFakeWatcher) { w.Action(watch.Bookmark, someone) }),
			2*streamGoesOn + time.Second},
		"never answers": {func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 2*answerTimeout + time.Second},
		"violation": {stream(func(w *watch.RaceFreeFakeWatcher) { w.Action("SURPRISE", someone) }), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents != nil {
						return c.server(ctx, opts)
					}
					return p.podAPI.Watch(ctx, opts)
				}
				began := time.Now()
				run(t, inf)
				synced(t, inf)
				require.LessOrEqual(t, time.Since(began), c.within)
				synctest.Wait() // for the watch that follows the list
				require.Contains(t, p.verbs(), "LIST")

				p.Compact()
				p.Cut()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []string{"WATCH", "LIST", "WATCH"}, p.verbs(),
					"what the server cannot do is remembered")
				healed(t, p, inf, told)
			})
		})
	}
}

func TestAStreamThatWorkedMakesUpForOneThatDidNot(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		for range 3 {
			// One stream goes wrong, the next one works: over months that may happen often.
			first := true
			p.set(func() {
				p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					if opts.SendInitialEvents != nil && first {
						first = false
						return silence(ctx, opts)
					}
					return p.podAPI.Watch(ctx, opts)
				}
			})
			p.Compact()
			p.Cut()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
		}
		require.NotContains(t, p.verbs(), "LIST")
		healed(t, p, inf, told)
	})
}

func TestPagedListAsksPageByPage(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true, PageSize: 2, LabelSelector: labels.Everything()},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			for _, name := range []string{"c", "d", "e"} {
				p.Create(pod(name))
			}
			run(t, inf)
			synctest.Wait()
			asked := p.requests()
			require.Len(t, asked, 4)
			for i, r := range asked[:3] {
				require.Equal(t, "LIST", r.verb)
				require.EqualValues(t, 2, r.opts.Limit)
				require.Equal(t, i > 0, r.opts.Continue != "")
				require.Empty(t, r.opts.ResourceVersion)
			}
			require.Equal(t, "WATCH", asked[3].verb)
			require.Equal(t, inf.ResourceVersion(metav1.NamespaceAll), asked[3].opts.ResourceVersion)
			require.Equal(t, []string{"Added a initial", "Added b initial", "Added c initial", "Added d initial",
				"Added e initial"}, told.lines())
		})
}

// The token expires between two pages; what is deleted in between must not survive in the cache.
func TestAnExpiredTokenRestartsTheListAndNothingOfTheFirstTryIsLeft(t *testing.T) {
	for _, expiries := range []int{1, 3} {
		t.Run(fmt.Sprintf("expiries=%d", expiries), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{DisableWatchList: true, PageSize: 2},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					p.Create(pod("d"))
					left := expiries
					p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
						if opts.Continue != "" && left > 0 {
							if left--; left == 0 {
								p.Delete("default", "a")
								p.Create(pod("c"))
							}
							p.Compact()
						}
						return p.podAPI.List(ctx, opts)
					}
					run(t, inf)
					synced(t, inf)
					require.Equal(t, []string{"b", "c", "d"}, names(inf))
					asked := p.requests()
					require.Equal(t, expiries == 3, asked[len(asked)-1].opts.Limit == 0 &&
						asked[len(asked)-1].verb == "LIST" || asked[len(asked)-2].opts.Limit == 0,
						"after three expired tokens, and only then, everything is asked for in one piece")
					healed(t, p, inf, told)
				})
		})
	}
}

func TestAListThatRunsInCirclesIsAnError(t *testing.T) {
	for name, tokens := range map[string]func(page int) string{
		"the same token":  func(int) string { return "x" },
		"three in turn":   func(page int) string { return strconv.Itoa(page % 3) },
		"a loop, later":   func(page int) string { return strconv.Itoa(min(page, 100) + page%7) },
		"always new ones": strconv.Itoa,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					pages := 0
					p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
						pages++
						return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9",
								Continue: tokens(pages)}},
							nil
					}
					run(t, inf)
					synctest.Wait()
					require.LessOrEqual(t, pages, maxPages)
					if name != "always new ones" {
						require.Less(t, pages, 300)
					}
					require.Equal(t, Failed, inf.Health().State)
					require.ErrorIs(t, inf.Health().LastError, wire.ErrViolation)
					require.False(t, inf.HasSynced())
					healed(t, p, inf, told)
				})
		})
	}
}

// A relist tells only what has really changed. A watch that is taken back at once must not let relists run free.
func TestGoneIsFollowedByAListWithBackoff(t *testing.T) {
	for name, gone := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"as an answer": refuse(errExpired),
		"as an event": func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewRaceFreeFake()
			w.Error(&errExpired.ErrStatus)
			return w, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					run(t, inf)
					time.Sleep(time.Minute)
					told.lines()
					p.requests()
					p.set(func() { p.onWatch = gone })
					p.Delete("default", "a")
					synctest.Wait()
					told.lines()
					p.Cut()
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					require.Less(t, len(p.verbs()), 30, "lists and watches in ten minutes")
					require.Empty(t, told.lines())
					require.Equal(t, Failed, inf.Health().State)
					require.Equal(t, 1, inf.Len(), "the old cache serves")
					p.set(func() { p.onWatch = nil })
					time.Sleep(lastRetry)
					healed(t, p, inf, told)
				})
		})
	}
}

// A watch that ends soon is resumed where it ended, after a wait that grows; for long there is no list. If one
// after the other ends before anything has come, nothing is being followed: client-go makes such watches of a server
// that hangs up.
func TestShortWatchesBackOff(t *testing.T) {
	for name, lives := range map[string]time.Duration{"empty": 0, "with an event": 0, "a second": time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				synctest.Wait()
				p.requests()
				p.set(func() {
					p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						if name == "with an event" {
							p.Update("default", "a", func(o *corev1.Pod) {})
						}
						w, err := p.podAPI.Watch(ctx, opts)
						time.AfterFunc(lives, p.Cut)
						return w, err
					}
				})
				p.Cut()
				time.Sleep(patience)
				verbs := p.verbs()
				require.NotContains(t, verbs, "STREAM")
				require.NotContains(t, verbs, "LIST")
				watches := len(slices.DeleteFunc(verbs, func(verb string) bool { return verb == "ASK" }))
				require.Less(t, watches, 100)
				require.Greater(t, watches, 10)
				require.LessOrEqual(t, len(verbs), 2*watches)
				if name == "with an event" {
					require.Equal(t, Live, inf.Health().State, "an early end is no failure")
				} else {
					require.Equal(t, Stale, inf.Health().State)
					require.ErrorIs(t, inf.Health().LastError, errShortLived)
					require.Greater(t, time.Since(inf.Health().Since), 4*time.Minute)
				}
				healed(t, p, inf, told)
			})
		})
	}
}

// One that speaks, or lives on, ends the doubt; so does a list.
func TestAFewShortWatchesAreNoFailure(t *testing.T) {
	for name, speaks := range map[string]bool{"speaks": true, "lives": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				time.Sleep(time.Minute)
				for range 10 {
					ended := 0
					p.set(func() {
						p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
							if ended++; ended < maxBarren {
								w := watch.NewRaceFreeFake()
								w.Stop()
								return w, nil
							}
							return p.podAPI.Watch(ctx, opts)
						}
					})
					p.Cut()
					synctest.Wait()
					for p.Watchers() == 0 {
						time.Sleep(10 * time.Millisecond)
						synctest.Wait()
					}
					require.Equal(t, Live, inf.Health().State)
					if speaks {
						p.Update("default", "a", func(*corev1.Pod) {})
					} else {
						time.Sleep(longLived)
					}
					synctest.Wait()
				}
				require.Nil(t, inf.Health().LastError)
				healed(t, p, inf, told)
			})
		})
	}
}

// After a night of trouble and an hour of peace, the next trouble is met with a short wait again.
func TestBackoffIsForgottenOnceAWatchHasLived(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		for _, trouble := range []error{errBusy, errExpired} {
			p.set(func() { p.onWatch = refuse(trouble) })
			p.Cut()
			time.Sleep(8 * time.Hour)
			for range 10 {
				p.set(func() { p.onWatch = nil })
				time.Sleep(time.Hour)
				once := true
				p.set(func() {
					p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						if once {
							once = false
							return nil, trouble
						}
						return p.podAPI.Watch(ctx, opts)
					}
				})
				p.requests()
				p.Cut()
				time.Sleep(time.Minute)
				asked := p.requests()
				more := map[error]int{errBusy: 2, errExpired: 1}[trouble]
				require.Len(t, asked, 1+more, "what was resumed is asked for its version")
				require.LessOrEqual(t, asked[1].at.Sub(asked[0].at), 800*time.Millisecond)
			}
		}
		healed(t, p, inf, told)
	})
}

func TestALongWatchIsFollowedByTheNextAtOnce(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		for range 20 {
			time.Sleep(longLived + time.Second)
			p.requests()
			p.Cut()
			synctest.Wait()
			require.Equal(t, []string{"WATCH", "ASK"}, p.verbs())
		}
		healed(t, p, inf, told)
	})
}

// A server that is down or busy is asked again, and resumed, not listed.
func TestErrorsAtTheStartOfAWatchResume(t *testing.T) {
	for name, err := range map[string]error{
		"503":            errBusy,
		"500, temporary": problem(500, metav1.StatusReasonServerTimeout, 2),
		"unreachable":    errors.New("dial tcp: connection refused"),
		"unexpected EOF": errors.New("unexpected EOF"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				synctest.Wait()
				p.requests()
				p.set(func() { p.onWatch = refuse(err) })
				p.Cut()
				time.Sleep(patience)
				synctest.Wait()
				verbs := p.verbs()
				require.NotContains(t, verbs, "LIST")
				require.NotContains(t, verbs, "STREAM")
				require.Less(t, len(verbs), 100)
				require.Equal(t, Stale, inf.Health().State)
				require.ErrorIs(t, inf.Health().LastError, err)
				healed(t, p, inf, told)
				require.NotContains(t, p.verbs(), "STREAM")
			})
		})
	}
}

func TestRetryAfterIsAMinimum(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		p.onWatch = refuse(problem(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 60))
		run(t, inf)
		time.Sleep(patience)
		synctest.Wait()
		asked := p.requests()
		require.Greater(t, len(asked), 3)
		for i := 1; i < len(asked); i++ {
			wait := asked[i].at.Sub(asked[i-1].at)
			require.Greater(t, wait, time.Minute)
			require.LessOrEqual(t, wait, time.Minute+30*time.Second)
		}
		require.NotContains(t, p.verbs(), "LIST", "a busy server can stream all the same")
		p.set(func() { p.onWatch = nil })
		time.Sleep(2 * time.Minute)
		healed(t, p, inf, told)
	})
}

func TestDeniedAndMissingRecoverByThemselves(t *testing.T) {
	for state, err := range map[State]error{Denied: errForbidden, Missing: errNoSuch} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s late=%t", state, late), func(t *testing.T) {
				bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					if late {
						run(t, inf)
						synctest.Wait()
					}
					p.set(func() {
						p.onWatch = refuse(err)
						p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
							return nil,
								err
						}
					})
					p.Cut()
					if !late {
						run(t, inf)
					}
					time.Sleep(time.Hour)
					synctest.Wait()
					h := inf.Health()
					require.Equal(t, state, h.State)
					require.Greater(t, time.Since(h.Since), 59*time.Minute)
					require.Less(t, len(p.verbs()), 400)
					require.Equal(t, late, inf.HasSynced())
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if waited := inf.WaitForSync(ctx); late {
						require.NoError(t, waited)
					} else {
						require.ErrorIs(t, waited, context.DeadlineExceeded)
						require.ErrorIs(t, waited, err, "the reason is in the error")
					}
					healed(t, p, inf, told)
				})
			})
		}
	}
}

// Nothing comes any more, not even the end.
func TestASilentWatchIsGivenUpAndResumed(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		p.set(func() { p.onWatch = silence })
		p.Cut()
		time.Sleep(longLived)
		p.requests()
		p.Create(pod("unheard"))
		time.Sleep(10*time.Minute + watchSlack + time.Minute)
		synctest.Wait()
		verbs := p.verbs()
		require.NotEmpty(t, verbs)
		require.NotContains(t, verbs, "STREAM")
		require.ErrorIs(t, inf.Health().LastError, errSilent)
		p.set(func() { p.onWatch = nil })
		time.Sleep(10 * time.Minute)
		healed(t, p, inf, told)
	})
}

// A server that ignores the time it was asked to end a watch after is not silent as long as it says something.
func TestAWatchThatSpeaksMayOutliveItsTime(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		p.NoTimeout = true
		run(t, inf)
		synctest.Wait()
		p.requests()
		for range 60 {
			time.Sleep(time.Minute)
			p.Bookmark()
		}
		synctest.Wait()
		require.Empty(t, p.verbs())
		require.Equal(t, Live, inf.Health().State)
		require.Zero(t, time.Since(inf.Health().LastProgress), "A13: a bookmark is progress")
		require.Equal(t, "63", inf.ResourceVersion(metav1.NamespaceAll), "and moves the version")
	})
}

func TestALateAnswerToAListIsSilence(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.onList = func(ctx context.Context, _ metav1.ListOptions) (*corev1.PodList, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			run(t, inf)
			time.Sleep(listTimeout)
			synctest.Wait()
			require.Equal(t, Failed, inf.Health().State)
			require.ErrorIs(t, inf.Health().LastError, errSilent)
			healed(t, p, inf, told)
		})
}

// The version never passes an event that was not understood; a list makes good what was missed.
func TestEventsThatBreakTheProtocolLeadToAList(t *testing.T) {
	withoutVersion := pod("a")
	withoutVersion.UID = "uid-1"
	secret := pod("a")
	secret.ResourceVersion, secret.Annotations = "99", map[string]string{"canary": "swordfish"}
	for name, event := range map[string]watch.Event{
		"an unknown type":           {Type: "SURPRISE", Object: pod("a")},
		"an unknown type, version":  {Type: "SURPRISE", Object: secret},
		"no version":                {Type: watch.Modified, Object: withoutVersion},
		"no version, deleted":       {Type: watch.Deleted, Object: withoutVersion},
		"no version, bookmark":      {Type: watch.Bookmark, Object: withoutVersion},
		"no object":                 {Type: watch.Added},
		"a nil pointer":             {Type: watch.Added, Object: (*corev1.Pod)(nil)},
		"no metadata":               {Type: watch.Added, Object: &metav1.Status{}},
		"an error that is no error": {Type: watch.Error, Object: secret},
		"an error that is nothing":  {Type: watch.Error},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				run(t, inf)
				time.Sleep(time.Minute)
				synctest.Wait()
				before := inf.ResourceVersion(metav1.NamespaceAll)
				p.requests()
				p.Inject(event)
				synctest.Wait()
				require.Equal(t, before, inf.ResourceVersion(metav1.NamespaceAll))
				require.Equal(t, Stale, inf.Health().State)
				require.ErrorIs(t, inf.Health().LastError, wire.ErrViolation)
				require.NotContains(t, inf.Health().LastError.Error(), "swordfish")
				time.Sleep(time.Second)
				require.Equal(t, []string{"STREAM"}, p.verbs())
				healed(t, p, inf, told)
			})
		})
	}
}

// Deleted and created again while nobody looked.
func TestAnotherUIDIsAnotherObject(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%t", streaming), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{DisableWatchList: !streaming},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					run(t, inf)
					synctest.Wait()
					told.lines()
					p.Cut()
					p.Delete("default", "a")
					p.Create(pod("a"))
					p.Compact()
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, []string{"Deleted a unknown", "Added a"}, told.lines())
					healed(t, p, inf, told)
				})
		})
	}
}

func TestRepeatedEventsAreNotTold(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		o := p.Update("default", "a", func(*corev1.Pod) {})
		p.Inject(watch.Event{Type: watch.Modified, Object: o})
		p.Inject(watch.Event{Type: watch.Added, Object: o})
		synctest.Wait()
		p.Inject(watch.Event{Type: watch.Added, Object: o})
		synctest.Wait()
		require.Equal(t, []string{"Added a initial", "Added b initial", "Updated a"}, told.lines())
		p.Delete("default", "a")
		synctest.Wait()
		require.Equal(t, []string{"Deleted a"}, told.lines(), "one that the server told of is not of unknown state")
		healed(t, p, inf, told)
	})
}

// A resource that has gone takes its versions with it.
func TestAMissingResourceIsListedWhenItComesBack(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		p.requests()
		p.set(func() { p.onWatch = refuse(errNoSuch) })
		p.Cut()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"WATCH", "STREAM"}, p.verbs()[:2])
		healed(t, p, inf, told)
	})
}

// A server that deletes an object and then shows it again, unchanged, makes no sense; it must do no harm.
func TestAGhostDoesNoHarm(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		ghost := p.Objects()[0]
		p.Inject(watch.Event{Type: watch.Deleted, Object: ghost})
		p.Inject(watch.Event{Type: watch.Added, Object: ghost})
		synctest.Wait()
		told.mu.Lock()
		told.rounds = rounds{KeyOf(p.Objects()[1]): told.rounds[KeyOf(p.Objects()[1])]}
		told.mu.Unlock()
		p.Update("default", "a", func(*corev1.Pod) {})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)
		require.Equal(t, 2, inf.Len())
		told.violations = nil
	})
}

func TestListsWithoutVersionOrItemsAreViolations(t *testing.T) {
	for name, list := range map[string]runtime.Object{
		"no version": &corev1.PodList{},
		"no list":    &corev1.Pod{},
		"nothing":    (*corev1.PodList)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inf, err := New[*corev1.Pod](anyList{list}, Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synctest.Wait()
				require.ErrorIs(t, inf.Health().LastError, wire.ErrViolation)
			})
		})
	}
}

// anyList is a client whose list type says nothing.
type anyList struct{ list runtime.Object }

func (c anyList) List(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return c.list, nil
}

func (c anyList) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewRaceFreeFake(), nil
}
