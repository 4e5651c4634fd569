package debts

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

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// lookIn lets a while pass, and the relister look at what is overdue then.
func lookIn(t *testing.T, l *Ledger, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	l.relister.scan()
}

// TestACacheThatIsBehindListsOnce has written much that the cache does not show.
func TestACacheThatIsBehindListsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		pods := listing(l, &still{listed: 4})
		for i := range 500 {
			l.Debtor(parent).Wrote(klog.Background(), podWrite(fmt.Sprint("pod-", i), "100", false))
		}
		require.True(t, l.Park(parent))
		lookIn(t, l, DoubtAfter-1)
		require.Zero(t, pods.relists)
		lookIn(t, l, 1)
		for range 3 {
			require.True(t, l.Park(parent))
			require.Equal(t, 1, pods.relists, "one list is under way all the time")
			lookIn(t, l, DoubtAfter)
		}
		require.ErrorContains(t, pods.doubt, "for 10s the cache has not shown the latest write to default/pod-")
		n := l.table.Counts()
		require.Equal(t, 1, n.Parked)
		require.Equal(t, 4*DoubtAfter, n.LongestParked)

		pods.listed, pods.resourceVersion = 5, "100"
		l.Reached(l.caches[0], "")
		require.Zero(t, l.open.Load())
		require.False(t, l.Park(parent))
	})
}

// TestAWriteThatNoEventTellsOfIsListedForSoon takes an object out of a selector that it may have matched. The cache is
// not behind: nothing is to come.
func TestAWriteThatNoEventTellsOfIsListedForSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		pods := &still{listed: 4, resourceVersion: "50"}
		c := l.CacheOf(pods)
		c.Learner = &writes.Learner{}
		c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods",
			RawQuery: "labelSelector=app%3Dx"}})
		l.Debtor(parent).Wrote(klog.Background(), podWrite("new", "99", false))
		require.Zero(t, l.open.Load(), "a new object that is not selected has never been in the cache")
		changed := podWrite("old", "100", false)
		changed.Created = false
		l.Debtor(parent).Wrote(klog.Background(), changed)
		require.True(t, l.Park(parent))
		lookIn(t, l, unexpectedAfter-1)
		require.Zero(t, pods.relists)
		lookIn(t, l, 1)
		require.Equal(t, 1, pods.relists)
		require.NoError(t, pods.doubt)
		pods.listed, pods.resourceVersion = 5, "101"
		l.Reached(c, "")
		require.False(t, l.Park(parent))
	})
}

// TestTheRelisterGoesOnInTheNextTenure ends it with the first, before the write is overdue.
func TestTheRelisterGoesOnInTheNextTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		pods := listing(l, &still{})
		l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
		for tenure := range 2 {
			stop := relisting(t, l, t.Context())
			time.Sleep(DoubtAfter - time.Second)
			stop()
			require.Equal(t, tenure, pods.relists)
		}
	})
}

// TestAListThatDoesNotComeKeepsTheKeyParked has a server that cannot be reached after it has taken the write.
func TestAListThatDoesNotComeKeepsTheKeyParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		pods := listing(l, &still{listed: 1})
		l.Debtor(parent).LostAnswer(klog.Background(),
			writes.Target{Host: "server", Resource: "pods", Namespace: "default"})
		require.Zero(t, pods.relists, "the relister asks for it, and nobody else")
		for range 5 {
			require.True(t, l.Park(parent))
			lookIn(t, l, DoubtAfter)
		}
		require.Equal(t, 1, pods.relists)
		pods.listed = 2
		l.Reached(l.caches[0], "")
		require.False(t, l.Park(parent))
	})
}

// TestAfterAQuietTimeTroubleIsTheFirstAgain loses answers one after the other, each of which takes a list.
func TestAfterAQuietTimeTroubleIsTheFirstAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		pods := listing(l, &still{listed: 1})
		c := l.caches[0]
		lose := func() (pause time.Duration) {
			l.Debtor(parent).LostAnswer(klog.Background(), writes.Target{Host: "server", Resource: "pods",
				Namespace: "default"})
			before := pods.relists
			l.relister.scan()
			require.Equal(t, before+1, pods.relists)
			pods.listed++
			pause = time.Until(c.partitions[""].notBefore)
			l.Reached(c, "")
			require.Zero(t, l.open.Load())
			return pause
		}
		for range 10 {
			time.Sleep(maxPause)
			lose()
		}
		time.Sleep(maxPause)
		require.Greater(t, lose(), maxPause/2-1)
		time.Sleep(quietTime)
		lines, _ := l.relister.scan()
		require.Equal(t, outcomesKnown, lines[0].trouble)
		require.Empty(t, c.partitions)
		require.LessOrEqual(t, lose(), minPause)
	})
}

// What cannot be judged is the dangerous case: these tests are about places where it was once taken for the harmless
// one.

// relisting runs a relister over a ledger until the test calls the function that it returns.
func relisting(t *testing.T, l *Ledger, ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group lifecycle.Group
	group.Go("relister", func() { l.RunRelister(ctx, "test") })
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
			l := newLedger()
			pods := listing(l, &still{listed: 1})
			l.Reached(l.caches[0], namespace)
			var lines []string
			sink := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			stop := relisting(t, l, klog.NewContext(t.Context(), sink))
			l.Debtor(parent).LostAnswer(klog.Background(), writes.Target{Host: "server", Resource: "pods",
				Namespace: "default"})
			synctest.Wait()
			pods.listed = 2
			l.Reached(l.caches[0], namespace)
			l.Debtor(parent).Wrote(klog.Background(), podWrite("pod", "7", false))
			time.Sleep(3 * DoubtAfter)
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
func said(l *Ledger, d time.Duration) (lines []string) {
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
		l := newLedger()
		listing(l, &still{listed: 1})
		one, two, running := Key{Name: "one"}, Key{Name: "two"}, Key{Name: "running"}
		l.Debtor(one).Sends(writes.Target{})
		l.Debtor(running).Sends(writes.Target{})
		require.Empty(t, said(l, time.Hour), "no key is parked")
		require.True(t, l.Park(one))
		l.Debtor(two).Sends(writes.Target{})
		require.True(t, l.Park(two))
		require.Equal(t, []string{string(notAnswered) + " one"}, said(l, DoubtAfter))
		l.Debtor(one).Sends(writes.Target{}) // by a goroutine of the last call
		l.Debtor(one).Answered(writes.Target{})
		require.Equal(t, []string{string(notAnswered) + " two"}, said(l, time.Hour))
		l.Debtor(one).Answered(writes.Target{})
		require.Equal(t, []string{string(answered) + " one"}, said(l, time.Minute))
		l.Debtor(two).Answered(writes.Target{})
		l.Debtor(two).Sends(writes.Target{})
		require.Equal(t, []string{string(answered) + " two"}, said(l, time.Hour))
		l.Debtor(two).Answered(writes.Target{})
		l.Debtor(running).Answered(writes.Target{})
		require.Empty(t, said(l, time.Hour))
		require.Empty(t, l.unanswered)
		require.Empty(t, l.accounts)
	})
}

// A write of a parked key is not answered quickly: that is not worth a line.
func TestAWriteThatIsAnsweredSoonIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		listing(l, &still{listed: 1})
		for range 3 {
			l.Debtor(parent).Sends(writes.Target{})
			require.True(t, l.Park(parent))
			require.Empty(t, said(l, DoubtAfter-time.Second))
			l.Debtor(parent).Answered(writes.Target{})
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
		l := newLedger()
		c := l.CacheOf(unreadable{&still{listed: 1}})
		c.Learner = &writes.Learner{}
		c.Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: "/api/v1/pods"}})
		for _, name := range []string{"one", "two"} {
			l.Debtor(Key{Name: "of " + name}).Wrote(klog.Background(), podWrite(name, "1", false))
			require.Equal(t, []string{string(objectInvalid) + " of " + name + " " + name}, said(l, time.Hour))
		}
	})
}

// What the log has said of a partition is not forgotten when the debts go to others, nor that it is to say the end.
func TestATroubleIsLoggedOnceAlthoughTheScopeChanges(t *testing.T) {
	for _, end := range []string{"before", "after"} { // the trouble ends before the change, or after it
		synctest.Test(t, func(t *testing.T) {
			l := newLedger()
			pods := listing(l, &still{listed: 1})
			l.Debtor(parent).Wrote(klog.Background(), podWrite("a", "7", false))
			require.Equal(t, []string{string(cacheBehind) + " parent a"}, said(l, DoubtAfter+time.Second))
			if end == "before" {
				pods.listed = 2
				l.Reached(l.caches[0], "")
			}
			l.Reached(l.caches[0], "default")
			if end == "after" {
				require.NotContains(t, strings.Join(said(l, time.Minute), ", "), string(cacheBehind))
				pods.listed = 9
				l.Reached(l.caches[0], "default")
			}
			require.Zero(t, l.open.Load())
			require.Equal(t, []string{string(allQuiet)}, said(l, time.Hour))
			require.Empty(t, l.caches[0].partitions)
		})
	}
}
