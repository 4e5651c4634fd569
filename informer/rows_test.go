package informer

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestRows is the table of what can go wrong with a cache, and what becomes of it. Every row names tests and runs them,
// and says how long the longest of their bubbles took in virtual time. Where that can be done, a script of the fault is
// played before client-go's informer and before this one, and a figure of both is measured; ours must be as good as is
// promised, and client-go's worse, or else the script shows nothing. The other rows say what is to be read in
// client-go's source.
//
//	go test -run TestRows -v ./informer
func TestRows(t *testing.T) {
	quietly(t)
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-4s %-52s %-58s %-20s %s\n", "", "fault", "client-go v0.37.2", "thermostat",
		"shown by (longest bubble)")
	for _, row := range rows {
		t.Run(row.id+"/"+row.fault, func(t *testing.T) {
			theirs, ours := row.read+" (read)", "as promised"
			if row.script != nil {
				their, _ := play(t, clientGo, row.script)
				our, took := play(t, thermostat, row.script)
				require.LessOrEqual(t, our, row.most, row.unit)
				require.Greater(t, their, row.most, "client-go %s: the script shows nothing", row.unit)
				theirs, ours = fmt.Sprintf("%d %s", their, row.unit), fmt.Sprintf("%d", our)
				if row.read != "" {
					theirs += "; " + row.read + " (read)"
				}
				ours += fmt.Sprintf(" (%s)", took.Round(time.Second))
			}
			if row.shown == nil {
				ours = "-"
			}
			var shown []string
			for _, test := range row.shown {
				name := strings.TrimPrefix(path.Ext(runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()), ".")
				require.True(t, strings.HasPrefix(name, "Test"), name)
				require.True(t, t.Run(name, test))
				shown = append(shown, name+" ("+virtual.longest(t.Name()+"/"+name)+")")
			}
			fmt.Fprintf(&table, "%-4s %-52s %-58s %-20s %s\n", row.id, row.fault, theirs, ours,
				strings.Join(shown, ", "))
		})
	}
	t.Log(table.String())
}

// virtual is how long the bubbles of tests took.
var virtual bubbles

type bubbles struct {
	mu   sync.Mutex
	took map[string]time.Duration
}

// record is called at the end of a bubble; all of them begin at one time. Outside of one it does nothing.
func (b *bubbles) record(t *testing.T) {
	took := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	if took > 20*365*24*time.Hour {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.took == nil {
		b.took = map[string]time.Duration{}
	}
	b.took[t.Name()] = took
}

func (b *bubbles) longest(test string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	longest, found := time.Duration(0), false
	for name, took := range b.took {
		if name == test || strings.HasPrefix(name, test+"/") {
			longest, found = max(longest, took), true
		}
	}
	if !found {
		return "no bubble"
	}
	return longest.Round(time.Millisecond).String()
}

type row struct {
	id, fault string
	// script returns a figure, in this unit: the less, the better. Ours may be most. Nil: the row has none.
	script func(*contest) int
	unit   string
	most   int
	read   string // what client-go does, by its source
	shown  tests  // nil: the fault cannot occur
}

type tests []func(*testing.T)

var rows = []row{
	{"A1", "every watch ends 1 ms after its first event, 10 s", shortWatches, "watches", 20, "",
		tests{TestShortWatchesBackOff, TestBackoffIsForgottenOnceAWatchHasLived,
			TestALongWatchIsFollowedByTheNextAtOnce}},
	{"A2", "every watch ends at once, empty, 10 min", emptyWatches, "lists", 2, "",
		tests{TestShortWatchesBackOff}},
	{"A3", "503 to every watch, 10 min", refusedWatches, "lists", 2, "", tests{TestErrorsAtTheStartOfAWatchResume}},
	{"A4", "410 to a resumed watch", nil, "", 0, "lists after 0.8 s to 30 s; so do we, and call the cache stale",
		tests{TestGoneIsFollowedByAListWithBackoff, TestExpiredWatchIsFollowedByARelistThatFindsWhatWasMissed}},
	{"A5", "410 to a later page of a list", nil, "", 0, "asks for all in one page at once",
		tests{TestAnExpiredTokenRestartsTheListAndNothingOfTheFirstTryIsLeft}},
	{"A6", "a list whose token repeats", endlessPages, "pages without a pause", 2, "",
		tests{TestAListThatRunsInCirclesIsAnError}},
	{"A7", "the version of a list is too large for the server", nil, "", 0, "asks again at once, at version \"\"",
		tests{TestATooLargeVersionIsWaitedFor}},
	{"A8", "after a 410, a list by a server that lags", laggingServer, "times the store went back", 0, "",
		tests{TestAServerThatLagsIsNotBelieved, TestAPlainListOfThePastIsAskedForAgain,
			TestAnEventFromThePastIsNotBelieved}},
	{"A9", "the cluster is restored from a backup", nil, "", 0, "follows without a word",
		tests{TestARestoredClusterIsFollowed}},
	{"A10", "the server loses an event, comparison every 10 min", lostEvent, "minutes unnoticed, of 1440", 60, "",
		tests{TestALostEventIsFoundAndRepaired, TestVerifyingRaisesNoFalseAlarm}},
	{"A11", "an event is repeated", nil, "", 0, "an update of equal versions, for handlers with resync",
		tests{TestRepeatedEventsAreNotTold}},
	{"A12", "an object's version goes back inside a stream", pastEvent, "times the store went back", 0, "",
		tests{TestAnEventFromThePastIsNotBelieved}},
	{"A13", "nothing but bookmarks", nil, "", 0, "the version advances", tests{TestAWatchThatSpeaksMayOutliveItsTime}},
	{"A14", "a watch falls silent (half-open, no HTTP/2 pings)", silentWatch, "minutes until heard, of 1440", 11, "",
		tests{TestASilentWatchIsGivenUpAndResumed, TestALateAnswerToAListIsSilence}},
	{"A15", "a streamed list without its end", endlessStream, "minutes until synced, of 1440", 3, "",
		tests{TestFallsBackToPlainLists, TestAStreamThatWorkedMakesUpForOneThatDidNot}},
	{"A16", "frames that are cut off, garbled or giant", nil, "", 0,
		"garbage is a list, frames to 16 MiB, lists without bound",
		tests{TestTruncatedAndGarbledWatches, TestAnObjectThatIsTooLargeIsQuarantinedAlone,
			TestAListThatFallsSilentIsGivenUp}},
	{"A17", "429 or 503 with Retry-After", nil, "", 0, "10 tries for each request, each informer for itself",
		tests{TestRetryAfterIsAMinimum, TestTheGateHoldsEverybodyBack, TestInformersWaitAtTheGate}},
	{"A18", "401, 403 or 404 for long", nil, "", 0, "tries for ever, and HasSynced stays true",
		tests{TestDeniedAndMissingRecoverByThemselves, TestAMissingResourceIsListedWhenItComesBack, TestMaxStaleness}},
	{"A19", "a server ignores shardSelector", nil, "", 0, "cannot occur, and neither can it here: nothing sends one",
		nil},
	{"B1", "one object that cannot be decoded", nil, "", 0, "the list fails, and nothing ever syncs",
		tests{TestAnObjectThatDoesNotDecodeIsQuarantinedAlone, TestAnEventThatCannotBeDecoded}},
	{"B2", "an event of an unknown type", unknownEvent, "updates lost", 0, "",
		tests{TestEventsThatBreakTheProtocolLeadToAList}},
	{"B3", "an event without a version, then a deletion in a gap", noVersion, "deletions lost", 0, "",
		tests{TestEventsThatBreakTheProtocolLeadToAList}},
	{"B4", "an object without a name", nil, "", 0, "the error of its key is swallowed",
		tests{TestAnObjectWithoutANameIsReported}},
	{"B5", "a transform fails for 30 s", failedTransform, "keys out of date after 1 h", 0, "",
		tests{TestABadStateIsQuarantinedAndTriedAgain, TestOneBadObjectDoesNotSpoilTheList,
			TestAPanicOfTransformIsItsFailure}},
	{"B6", "an index function panics", nil, "", 0, "the process ends",
		tests{TestIndexFunctionsThatMisbehaveHurtNobody}},
	{"B7", "deleted and created again in a gap", newUID, "updates across UIDs", 0, "",
		tests{TestAnotherUIDIsAnotherObject, TestExpiredWatchIsFollowedByARelistThatFindsWhatWasMissed}},
	{"B8", "a deletion that only a list shows", nil, "", 0, "another type in OnDelete, its object old or nil",
		tests{TestExpiredWatchIsFollowedByARelistThatFindsWhatWasMissed}},
	{"B9", "a list comes while events wait for the store", nil, "", 0, "mended in v0.17 and v0.27",
		tests{TestAListForgetsWhatCameAndWentBeforeTheStoreLooked, TestAListBringsBackWhatTheStoreHasYetToDelete}},
	{"B10", "somebody changes a cached object", nil, "", 0, "a panic, if an environment variable asks for it",
		tests{TestAMutatedObjectIsNamed, TestAMutationIsFoundWhenTheObjectLeaves}},
	{"C1", "a handler panics once, on its first event", panickingHandler, "keys that it never took", 0,
		"the process ends, unless told not to",
		tests{TestAPanicOfAHandlerHurtsNobodyElse, TestAPanicIsFollowedByRedelivery, TestCrashOnPanicEndsTheProcess}},
	{"C2", "10,000 updates of an object, 1 s for each", slowHandler, "s until the last is known", 2000, "",
		tests{TestASlowHandlerIsBoundedAndHoldsUpNobody}},
	{"C3", "a handler never returns", stuckHandler, "s from cancel to Run's return, of 3600", 10, "",
		tests{TestWhoeverIsStuckIsNamed}},
	{"C4", "users come and go", nil, "", 0, "the informer runs on for nobody",
		tests{TestComingAndGoingLeavesNothingBehind}},
	{"C5", "handlers come and go in the middle", nil, "", 0, "removal is not waited for",
		tests{TestLateHandlersSeeNeitherGapNorRepeat, TestAHandlerMayRemoveItself, TestARemovedHandlerIsDeafAtOnce}},
	{"C6", "resync of 1,000 objects every hour", resyncStorm, "notices in the worst second", 20, "",
		tests{TestNothingIsMadeUpForAfterALongSleep}},
}

func (c *contest) answerWatches(with func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
	c.set(func() { c.onWatch = with })
}

func shortWatches(c *contest) int {
	c.NoStreaming = true
	c.begin()
	c.answerWatches(func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		c.Update("default", "a", func(*corev1.Pod) {})
		w, err := c.podAPI.Watch(ctx, opts)
		time.AfterFunc(time.Millisecond, c.Cut)
		return w, err
	})
	c.requests()
	c.Cut()
	time.Sleep(10 * time.Second)
	return c.asks("WATCH", "STREAM")
}

func emptyWatches(c *contest) int {
	c.NoStreaming = true
	c.begin()
	c.answerWatches(func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		w, err := c.podAPI.Watch(ctx, opts)
		c.Cut()
		return w, err
	})
	c.requests()
	c.Cut()
	time.Sleep(10 * time.Minute)
	return c.asks("LIST")
}

func refusedWatches(c *contest) int {
	c.NoStreaming = true
	c.begin()
	c.answerWatches(refuse(errBusy))
	c.requests()
	c.Cut()
	time.Sleep(10 * time.Minute)
	return c.asks("LIST")
}

func endlessPages(c *contest) int {
	c.NoStreaming = true
	pages := 0
	c.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "3"}}
		if pages++; pages <= 5000 {
			list.Continue = "again"
		}
		return list, nil
	}
	c.start()
	return c.asks("LIST")
}

// fallsOfA looks every second for a minute at what the store holds of a, and returns how often it went back.
func (c *contest) fallsOfA() int {
	falls, last := 0, int64(0)
	for range 60 {
		synctest.Wait()
		now := version(c.version("a"))
		if now < last {
			falls++
		}
		last = now
		time.Sleep(time.Second)
	}
	return falls
}

func laggingServer(c *contest) int {
	c.NoStreaming = true
	past, err := c.podAPI.List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	c.begin()
	for range 9 {
		c.Update("default", "a", func(*corev1.Pod) {})
	}
	synctest.Wait()
	lists := 0
	c.set(func() {
		c.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
			if lists++; lists == 1 {
				return past.DeepCopy(), nil
			}
			return c.podAPI.List(ctx, opts)
		}
	})
	time.AfterFunc(time.Second+time.Millisecond, func() {
		c.Compact()
		c.Cut()
	})
	return c.fallsOfA()
}

func pastEvent(c *contest) int {
	past := c.Objects()[0]
	c.begin()
	c.Update("default", "a", func(*corev1.Pod) {})
	time.AfterFunc(time.Second+time.Millisecond, func() { c.Inject(watch.Event{Type: watch.Modified, Object: past}) })
	return c.fallsOfA()
}

// current tells whether the store holds of a what the server does.
func (c *contest) current(name string) func() bool {
	return func() bool {
		for _, o := range c.Objects() {
			if o.Name == name {
				return c.version(name) == o.ResourceVersion
			}
		}
		return c.version(name) == ""
	}
}

func lostEvent(c *contest) int {
	c.ours.VerifyEvery = 10 * time.Minute
	c.NoTimeout = true
	lost := false
	c.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		w, err := c.podAPI.Watch(ctx, opts)
		if err != nil {
			return nil, err
		}
		return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			lose := e.Type == watch.Deleted && !lost
			lost = lost || lose
			return e, !lose
		}), nil
	}
	c.begin()
	c.Delete("default", "b")
	return c.within(1440, time.Minute, c.current("b"))
}

func silentWatch(c *contest) int {
	c.begin()
	c.NoTimeout = true
	c.Cut()
	time.Sleep(time.Minute)
	c.Hold() // whatever is open now says nothing more; what is asked for later is answered
	c.Update("default", "a", func(*corev1.Pod) {})
	open := true
	c.answerWatches(func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		if open {
			open = false
			c.Release()
		}
		return c.podAPI.Watch(ctx, opts)
	})
	return c.within(1440, time.Minute, c.current("a"))
}

func endlessStream(c *contest) int {
	c.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		w, err := c.podAPI.Watch(ctx, opts)
		if err != nil || opts.SendInitialEvents == nil {
			return w, err
		}
		return watch.Filter(w, func(e watch.Event) (watch.Event, bool) { return e, e.Type != watch.Bookmark }), nil
	}
	c.start()
	return c.within(1440, time.Minute, c.synced)
}

func unknownEvent(c *contest) int {
	garbled := true
	c.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		w, err := c.podAPI.Watch(ctx, opts)
		if err != nil {
			return nil, err
		}
		return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			if e.Type == watch.Modified && garbled {
				e.Type, garbled = "SURPRISE", false
			}
			return e, true
		}), nil
	}
	c.begin()
	c.Update("default", "a", func(*corev1.Pod) {})
	time.Sleep(time.Hour)
	return count(!c.current("a")())
}

func count(bad bool) int {
	if bad {
		return 1
	}
	return 0
}

func noVersion(c *contest) int {
	c.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		if opts.SendInitialEvents != nil || opts.ResourceVersion != "" {
			return c.podAPI.Watch(ctx, opts)
		}
		yes := true // a watch without a version begins with what exists, and does not say where that ends
		opts.SendInitialEvents = &yes
		w, err := c.podAPI.Watch(ctx, opts)
		if err != nil {
			return nil, err
		}
		return watch.Filter(w, func(e watch.Event) (watch.Event, bool) { return e, e.Type != watch.Bookmark }), nil
	}
	c.begin()
	time.Sleep(time.Minute)
	nameless := c.Objects()[0].DeepCopy()
	nameless.ResourceVersion = ""
	c.Inject(watch.Event{Type: watch.Modified, Object: nameless})
	c.Hold() // in the gap, that is
	c.Delete("default", "b")
	c.Cut()
	c.Release()
	time.Sleep(time.Hour)
	return count(!c.current("b")())
}

func failedTransform(c *contest) int {
	picky := &picky{}
	c.transform = picky.transform
	c.begin()
	c.Update("default", "a", spoil)
	time.AfterFunc(30*time.Second, picky.cure)
	time.Sleep(time.Hour)
	synctest.Wait()
	return count(!c.current("a")())
}

func newUID(c *contest) int {
	c.begin()
	c.answerWatches(refuse(errBusy))
	c.Cut()
	synctest.Wait()
	c.Delete("default", "a")
	c.Create(pod("a"))
	c.Compact()
	c.answerWatches(nil)
	time.Sleep(time.Hour)
	synctest.Wait()
	return c.count(func(n notice) bool { return n.typ == Updated && n.old.UID != n.now.UID })
}

func panickingHandler(c *contest) int {
	panicked, taken := false, map[string]bool{}
	c.hear = func(n notice) {
		if !panicked {
			panicked = true
			panic(errors.New("now"))
		}
		taken[n.now.Name] = true
	}
	c.start()
	time.Sleep(time.Hour)
	synctest.Wait()
	return len(c.Objects()) - len(taken)
}

func slowHandler(c *contest) int {
	var last atomic.Value
	c.hear = func(n notice) {
		time.Sleep(time.Second)
		if n.now.Name == "a" {
			last.Store(n.now.ResourceVersion)
		}
	}
	c.start()
	time.Sleep(time.Minute)
	for range 10000 {
		c.Update("default", "a", func(*corev1.Pod) {})
		synctest.Wait()
	}
	want := c.Objects()[0].ResourceVersion
	return c.within(20000, time.Second, func() bool { return last.Load() == want })
}

func stuckHandler(c *contest) int {
	free := make(chan struct{})
	c.hear = func(notice) { <-free }
	c.start()
	c.stop()
	took := c.within(3600, time.Second, func() bool {
		select {
		case <-c.done:
			return true
		default:
			return false
		}
	})
	close(free)
	synctest.Wait()
	return took
}

func resyncStorm(c *contest) int {
	for i := range 998 {
		c.Create(pod("p" + strconv.Itoa(i)))
	}
	c.resync = time.Hour
	c.begin()
	time.Sleep(150 * time.Minute)
	synctest.Wait()
	worst, seconds := 0, map[int64]int{}
	c.count(func(n notice) bool {
		if n.typ == Updated {
			seconds[n.at.Unix()]++
			worst = max(worst, seconds[n.at.Unix()])
		}
		return false
	})
	require.NotZero(c, worst, "nobody was resynced")
	return worst
}
