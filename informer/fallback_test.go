package informer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
)

// onlyStreams lets streamed lists be answered by server, and all else by the resource.
func (p *proxy) onlyStreams(server func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
	p.set(func() {
		p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil {
				return server(ctx, opts)
			}
			return p.podAPI.Watch(ctx, opts)
		}
	})
}

// noProgress is what kube-apiserver 1.37 says of a streamed list when its etcd is older than 3.4.25 or 3.5.8: the
// request goes well, and the only event is this one.
func noProgress(context.Context, metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewRaceFreeFake()
	w.Error(&metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: "a watch stream was requested by the client but the required storage feature RequestWatchProgress " +
			"is disabled",
	})
	w.Stop()
	return w, nil
}

func TestAPlainListFollowsWhateverIsNotLater(t *testing.T) {
	for name, server := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"an etcd without progress": noProgress,
		"an internal error": refuse(problem(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			0)),
		"not implemented":    refuse(problem(http.StatusNotImplemented, metav1.StatusReasonUnknown, 0)),
		"not acceptable":     refuse(problem(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, 0)),
		"expired":            refuse(errExpired),
		"a fake's own words": refuse(errors.New("fakes do not stream")),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				p.onlyStreams(server)
				run(t, inf)
				synctest.Wait()
				require.Equal(t, []string{"STREAM", "LIST", "WATCH"}, p.verbs(), "without a wait")
				require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
				for range 2 {
					inf.Relist(metav1.NamespaceAll, nil)
					synctest.Wait()
				}
				require.Equal(t, []string{"STREAM", "LIST", "WATCH", "LIST", "WATCH"}, p.verbs(), "twice is enough")
				healed(t, p, inf, told)
			})
		})
	}
}

// What a plain list would be told as well is for long no reason to ask for one.
func TestNoPlainListFollowsWhatItWouldMeetAsWell(t *testing.T) {
	for name, answer := range map[string]error{
		"too many requests":       problem(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 0),
		"later":                   problem(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 7),
		"unavailable":             errBusy,
		"an internal error later": problem(http.StatusInternalServerError, metav1.StatusReasonInternalError, 7),
		"timeout":                 problem(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0),
		"forbidden":               errForbidden,
		"unauthorized":            problem(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, 0),
		"not found":               errNoSuch,
		"connection refused":      &url.Error{Op: "Get", URL: "http://server", Err: syscall.ECONNREFUSED},
		"connection reset":        syscall.ECONNRESET,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				p.onlyStreams(refuse(answer))
				run(t, inf)
				time.Sleep(patience - time.Minute)
				synctest.Wait()
				require.NotContains(t, p.verbs(), "LIST")
				require.ErrorIs(t, inf.Health().LastError, answer)
				healed(t, p, inf, told)
				require.NotContains(t, p.verbs(), "LIST")
			})
		})
	}
}

// TestWithoutTheRightToWatch has a server that lets the client list and refuses each watch, until the right arrives.
func TestWithoutTheRightToWatch(t *testing.T) {
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%t", plain), func(t *testing.T) {
			opts := Options[*corev1.Pod]{DisableWatchList: plain}
			bubble(t, opts, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
				p.set(func() { p.onWatch = refuse(errForbidden) })
				run(t, inf)
				time.Sleep(10 * time.Minute)
				p.Create(pod("later"))
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				require.Equal(t, Denied, inf.Health().State)
				require.True(t, inf.HasSynced())
				require.Equal(t, 3, inf.Len(), "it is as old as the latest list")
				healed(t, p, inf, told)
			})
		})
	}
}

// A server that fails whatever it is asked for can stream as well as ever when it is well again.
func TestASickServerIsNotTakenForOneThatCannotStream(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		sick := problem(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)
		p.set(func() {
			p.onWatch = refuse(sick)
			p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) { return nil, sick }
		})
		run(t, inf)
		time.Sleep(time.Hour)
		synctest.Wait()
		p.verbs()
		healed(t, p, inf, told)
		require.Equal(t, []string{"LIST", "WATCH"}, p.verbs(), "it has not answered for long")
		inf.Relist(metav1.NamespaceAll, nil)
		synctest.Wait()
		require.Equal(t, []string{"STREAM"}, p.verbs())
	})
}

// A client that says of itself that it cannot stream is believed, and so are the fakes of client-go, which cannot say
// it.
func TestAClientThatCannotStreamIsNotAskedTo(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
		for says, first := range map[bool]string{true: "LIST", false: "STREAM"} {
			inf, err := New[*corev1.Pod](frank{p, says}, Options[*corev1.Pod]{})
			require.NoError(t, err)
			run(t, inf)
			synctest.Wait()
			require.True(t, inf.HasSynced())
			require.Equal(t, first, p.verbs()[0])
		}
	})
}

func TestAFakeClientsetIsNotAskedToStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, err := New[*corev1.Pod](fake.NewClientset(pod("a")).CoreV1().Pods(""), Options[*corev1.Pod]{})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		require.True(t, inf.HasSynced())
	})
}

type frank struct {
	*proxy
	cannot bool
}

func (f frank) IsWatchListSemanticsUnSupported() bool { return f.cannot }

// A server that pages whatever it is asked for, and forgets each page at once, is not asked as fast as it can answer.
func TestExpiringTokensArePaced(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{DisableWatchList: true, PageSize: 1},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			asked := 0
			p.set(func() {
				p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
					if asked++; asked > 5000 {
						return nil, errForbidden // or it would never end
					}
					if opts.Continue != "" {
						return nil, errExpired
					}
					opts.Limit = 1
					return p.podAPI.List(ctx, opts)
				}
			})
			run(t, inf)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			require.Less(t, asked, 200)
			require.Equal(t, Failed, inf.Health().State)
			healed(t, p, inf, told)
		})
}

func TestRetryAfterIsObeyedForFiveMinutesAtMost(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		p.set(func() { p.onWatch = refuse(problem(429, metav1.StatusReasonTooManyRequests, math.MaxInt32)) })
		p.Cut()
		time.Sleep(time.Second)
		p.set(func() { p.onWatch = nil })
		p.verbs()
		inf.Relist(metav1.NamespaceAll, nil) // it waits for the server, too
		time.Sleep(5*time.Minute - time.Second)
		require.Empty(t, p.verbs())
		time.Sleep(2*time.Second + longLived)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		healed(t, p, inf, told)
	})
}

// After hours of trouble the waits are long. Who knows that it is over need not sit them out.
func TestRelistEndsAWait(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		for range 20 {
			p.set(func() {
				p.onWatch = refuse(errBusy)
				p.onList = func(context.Context, metav1.ListOptions) (*corev1.PodList, error) { return nil, errBusy }
			})
			p.Cut()
			time.Sleep(time.Hour)
			p.set(func() { p.onWatch, p.onList = nil, nil })
			list := inf.Relist(metav1.NamespaceAll, nil)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, list, inf.Health().Listed)
			time.Sleep(longLived)
			synctest.Wait()
			require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		}
		healed(t, p, inf, told)
	})
}
