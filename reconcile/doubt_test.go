package reconcile

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// What cannot be judged is the dangerous case: these tests are about places where it was once taken for the harmless
// one.

// relisting runs a relister over a ledger until the test calls the function that it returns.
func relisting(t *testing.T, l *ledger, ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group lifecycle.Group
	group.Go("relister", func() { l.relister.run(ctx, "test") })
	return func() {
		cancel()
		require.NoError(t, group.Wait(time.Minute))
	}
}

// TestTheRelisterSaysWhereKeysAreParked looks at whole lines: of a cache that follows namespaces by themselves, and of
// one that does not.
func TestTheRelisterSaysWhereKeysAreParked(t *testing.T) {
	for namespace, where := range map[string]string{"": "", "default": ` "namespace"="default"`} {
		synctest.Test(t, func(t *testing.T) {
			l := newController(t, keys(&journal{}), Options{}).ledger
			pods := listing(l, &still{listed: 1})
			l.reached(l.caches[0], namespace)
			var lines []string
			sink := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			stop := relisting(t, l, klog.NewContext(t.Context(), sink))
			l.lostAnswer(klog.Background(), parent, target{host: "server", resource: "pods", namespace: "default"})
			synctest.Wait()
			pods.listed = 2
			l.reached(l.caches[0], namespace)
			l.wrote(klog.Background(), parent, podWrite("pod", "7", false))
			time.Sleep(3 * doubtAfter)
			synctest.Wait()
			stop()
			const about = ` "controller"="test" "informer"="still" "health"="Live since 0001-01-01T00:00:00Z"`
			const pod = ` "object"={"name"="pod" "namespace"="default"}`
			require.Equal(t, []string{
				`"level"=0 "msg"="` + string(outcomeUnclear) + `"` + about + where,
				`"msg"="` + string(cacheBehind) + `" "error"="for 10s the cache has not shown the latest write to ` +
					`default/pod"` + about + where + pod,
				`"msg"="` + string(listOverdue) + `" "error"=null` + about + where + pod,
			}, lines)
		})
	}
}

// A request that a Gate has kept until its ctx ended was not sent, so it leaves no debt.
func TestARequestThatAGateHasKeptLeavesNoDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate informer.Gate
		sent := 0
		transport := gate.Wrap(tripper(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"120"}}, Body: http.NoBody}, nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://server/api/v1/namespaces/a/pods", nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.NoError(t, err)
		_, err = transport.RoundTrip(req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, sent)
		require.True(t, unsent(err))
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// judging is an elector that notes what lead has returned, and whether work went on then.
type judging struct {
	working    func() bool
	err        error
	wasWorking bool
}

func (e *judging) Run(ctx context.Context, lead func(context.Context) error) error {
	if panicked := lifecycle.Try(func() { e.err = lead(ctx) }); panicked != nil {
		e.err = panicked
	}
	e.wasWorking = e.working()
	return e.err
}

// Where what starts the workers fails, nobody can tell what it has started: an elector has to keep the Lease.
func TestAStartThatFailsHalfWayIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := learning{newMapAPI()}
		api.Create(configMap("a"))
		inf, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		var working atomic.Bool
		a := newController(t, func(context.Context, Key) (Result, error) {
			working.Store(true)
			time.Sleep(20 * time.Second)
			working.Store(false)
			return Result{}, nil
		}, Options{})
		b, err := NewController("second", Func(func(context.Context, Key) (Result, error) { return Result{}, nil }),
			Options{})
		require.NoError(t, err)
		For(a, inf)
		For(b, inf)
		e := &judging{working: working.Load}
		m, err := NewManager(ManagerOptions{Controllers: []*Controller{a, b}, Elector: e})
		require.NoError(t, err)
		sink := funcr.New(func(_, args string) {
			if strings.Contains(args, "Workers start") && strings.Contains(args, "second") {
				time.Sleep(time.Second)
				panic("the disk is full")
			}
		}, funcr.Options{Verbosity: 5})
		err = m.Run(klog.NewContext(t.Context(), sink))
		require.True(t, e.wasWorking)
		require.ErrorIs(t, e.err, ErrStuck)
		require.ErrorIs(t, err, ErrStuck)
		time.Sleep(time.Minute)
	})
}
