package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
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
			l := newController(t, noting(&journal{}), Options{}).ledger
			pods := listing(l, &still{listed: 1})
			l.reached(l.caches[0], namespace)
			var lines []string
			sink := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			stop := relisting(t, l, klog.NewContext(t.Context(), sink))
			owing(parent, l).LostAnswer(klog.Background(), writes.Target{Host: "server", Resource: "pods",
				Namespace: "default"})
			synctest.Wait()
			pods.listed = 2
			l.reached(l.caches[0], namespace)
			owing(parent, l).Wrote(klog.Background(), podWrite("pod", "7", false))
			time.Sleep(3 * doubtAfter)
			synctest.Wait()
			stop()
			const about = ` "controller"="test" "informer"="still" "health"="Live since 0001-01-01T00:00:00Z"`
			const key = ` "key"={"name"="parent" "namespace"="default"}`
			const pod = key + ` "object"={"name"="pod" "namespace"="default"}`
			require.Equal(t, []string{
				`"level"=0 "msg"="` + string(outcomeUnclear) + `"` + about + where + key,
				`"msg"="` + string(cacheBehind) + `" "error"="for 10s the cache has not shown the latest write to ` +
					`default/pod"` + about + where + pod,
				`"msg"="` + string(listOverdue) + `" "error"=null` + about + where + pod,
			}, lines)
		})
	}
}

// said collects what a relister says in a while.
func said(l *ledger, d time.Duration) (lines []string) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		now, _ := l.relister.scan()
		for _, line := range now {
			about := fmt.Sprint(line.trouble, " ", line.key.Name, " ", line.object.Name)
			lines = append(lines, strings.TrimSpace(about))
		}
	}
	return lines
}

// A server never answers, or answers late: the log says which key waits, and when that ends.
func TestTheLogNamesEachKeyWhoseWriteIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(keys.New(false, -1, writes.ResourceOf), func(Key) {}, func(Key, status.Wait) {})
		listing(l, &still{listed: 1})
		one, two, running := Key{Name: "one"}, Key{Name: "two"}, Key{Name: "running"}
		owing(one, l).Sends(writes.Target{})
		owing(running, l).Sends(writes.Target{})
		require.Empty(t, said(l, time.Hour), "no key is parked")
		require.True(t, l.park(one))
		owing(two, l).Sends(writes.Target{})
		require.True(t, l.park(two))
		require.Equal(t, []string{string(notAnswered) + " one"}, said(l, doubtAfter))
		owing(one, l).Sends(writes.Target{}) // by a goroutine of the last call
		owing(one, l).Answered(writes.Target{})
		require.Equal(t, []string{string(notAnswered) + " two"}, said(l, time.Hour))
		owing(one, l).Answered(writes.Target{})
		require.Equal(t, []string{string(answered) + " one"}, said(l, time.Minute))
		owing(two, l).Answered(writes.Target{})
		owing(two, l).Sends(writes.Target{})
		require.Equal(t, []string{string(answered) + " two"}, said(l, time.Hour))
		owing(two, l).Answered(writes.Target{})
		owing(running, l).Answered(writes.Target{})
		require.Empty(t, said(l, time.Hour))
		require.Empty(t, l.unanswered)
		require.Empty(t, l.accounts)
	})
}

// A write of a parked key is not answered quickly: that is not worth a line.
func TestAWriteThatIsAnsweredSoonIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(keys.New(false, -1, writes.ResourceOf), func(Key) {}, func(Key, status.Wait) {})
		listing(l, &still{listed: 1})
		for range 3 {
			owing(parent, l).Sends(writes.Target{})
			require.True(t, l.park(parent))
			require.Empty(t, said(l, doubtAfter-time.Second))
			owing(parent, l).Answered(writes.Target{})
			require.Empty(t, said(l, time.Minute))
		}
	})
}

// unreadable is an informer that can take none of the objects.
type unreadable struct{ *still }

func (unreadable) Invalid(Key) error { return errors.New("cannot be taken") }

// An object that the cache cannot take is the trouble of the key that wrote it: each is named, once.
func TestTheLogNamesEachKeyWhoseObjectCannotBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(keys.New(false, -1, writes.ResourceOf), func(Key) {}, func(Key, status.Wait) {})
		c := l.cacheOf(unreadable{&still{listed: 1}})
		c.learner = &writes.Learner{}
		c.learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods"}})
		for _, name := range []string{"one", "two"} {
			owing(Key{Name: "of " + name}, l).Wrote(klog.Background(), podWrite(name, "1", false))
			require.Equal(t, []string{string(objectInvalid) + " of " + name + " " + name}, said(l, time.Hour))
		}
	})
}

// What the log has said of a partition is not forgotten when the debts go to others, nor that it is to say the end.
func TestATroubleIsLoggedOnceAlthoughTheScopeChanges(t *testing.T) {
	for _, end := range []string{"before", "after"} { // the trouble ends before the change, or after it
		synctest.Test(t, func(t *testing.T) {
			l := newLedger(keys.New(false, -1, writes.ResourceOf), func(Key) {}, func(Key, status.Wait) {})
			pods := listing(l, &still{listed: 1})
			owing(parent, l).Wrote(klog.Background(), podWrite("a", "7", false))
			require.Equal(t, []string{string(cacheBehind) + " parent a"}, said(l, doubtAfter+time.Second))
			if end == "before" {
				pods.listed = 2
				l.reached(l.caches[0], "")
			}
			l.reached(l.caches[0], "default")
			if end == "after" {
				require.NotContains(t, strings.Join(said(l, time.Minute), ", "), string(cacheBehind))
				pods.listed = 9
				l.reached(l.caches[0], "default")
			}
			require.Zero(t, l.open.Load())
			require.Equal(t, []string{string(allQuiet)}, said(l, time.Hour))
			require.Empty(t, l.caches[0].partitions)
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
		var notSent interface{ NotSent() bool }
		require.ErrorAs(t, err, &notSent)
		require.True(t, notSent.NotSent())
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
