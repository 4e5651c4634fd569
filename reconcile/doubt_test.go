package reconcile

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
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
			owing(parent, l).lostAnswer(klog.Background(), target{host: "server", resource: "pods",
				namespace: "default"})
			synctest.Wait()
			pods.listed = 2
			l.reached(l.caches[0], namespace)
			owing(parent, l).wrote(klog.Background(), podWrite("pod", "7", false))
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
