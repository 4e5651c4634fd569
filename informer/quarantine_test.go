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

	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

var errPicky = errors.New("not to my taste")

// picky is a transform that takes no object with the annotation "bad", until it is cured.
type picky struct {
	mu    sync.Mutex
	cured bool
	tries []time.Time
}

func (p *picky) cure() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cured = true
}

// since returns when it refused an object, and forgets that.
func (p *picky) since() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	tries := p.tries
	p.tries = nil
	return tries
}

func (p *picky) transform(o *corev1.Pod) (*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, bad := o.Annotations["bad"]; bad && !p.cured {
		p.tries = append(p.tries, time.Now())
		return nil, errPicky
	}
	return o, nil
}

func spoil(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, "bad", "") }

func spoiled(p *corev1.Pod) *corev1.Pod { spoil(p); return p }

func named(name string) Key { return Key{Namespace: "default", Name: name} }

// A state that cannot be taken is neither a deletion nor silently ignored.
func TestABadStateIsQuarantinedAndTriedAgain(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			good, _ := inf.Get(named("a"))
			told.lines()

			began := time.Now()
			bad := p.Update("default", "a", spoil)
			p.Update("default", "b", func(*corev1.Pod) {})
			synctest.Wait()
			require.Equal(t, []string{"Updated b"}, told.lines())
			held, ok := inf.Get(named("a"))
			require.True(t, ok)
			require.Same(t, good, held, "the last good state stays")
			require.ErrorIs(t, inf.Invalid(named("a")), errPicky)
			require.NoError(t, inf.Invalid(named("b")))
			h := inf.Health()
			require.Equal(t, 1, h.Rejected)
			require.ErrorIs(t, h.LastBadObject, errPicky)
			require.Equal(t, Live, h.State)

			time.Sleep(time.Hour)
			var waits []float64
			for _, at := range transform.since() {
				waits = append(waits, at.Sub(began).Seconds())
				began = at
			}
			require.Equal(t, []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}, waits[:12])

			transform.cure()
			time.Sleep(lastRetry)
			synctest.Wait()
			require.Equal(t, []string{"Updated a"}, told.lines())
			held, _ = inf.Get(named("a"))
			require.Equal(t, bad.ResourceVersion, held.ResourceVersion)
			require.NoError(t, inf.Invalid(named("a")))
			require.Zero(t, inf.Health().Rejected)
			healed(t, p, inf, told)
		})
}

// As far as a decoded object goes: one that is bad does not keep the others out.
func TestOneBadObjectDoesNotSpoilTheList(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%t", streaming), func(t *testing.T) {
			transform := &picky{}
			bubble(t, Options[*corev1.Pod]{Transform: transform.transform, DisableWatchList: !streaming},
				func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
					p.Create(spoiled(pod("c")))
					run(t, inf)
					synced(t, inf)
					synctest.Wait()
					require.Equal(t, []string{"a", "b"}, names(inf))
					require.ErrorIs(t, inf.Invalid(named("c")), errPicky)
					told.lines()

					// Two that were good are bad in the next list, which is no reason to delete the one; the other is
					// no longer the same.
					p.Cut()
					p.Update("default", "a", spoil)
					p.Delete("default", "b")
					p.Create(spoiled(pod("b")))
					p.Compact()
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, []string{"Deleted b unknown"}, told.lines())
					require.Equal(t, []string{"a"}, names(inf))
					for _, name := range []string{"a", "b", "c"} {
						require.ErrorIs(t, inf.Invalid(named(name)), errPicky)
					}

					// Deleted, each in its way.
					p.Delete("default", "c")
					synctest.Wait()
					require.NoError(t, inf.Invalid(named("c")))
					require.NotContains(t, theListWatch(inf).reflector.quarantine.patients, named("c"))
					p.Cut()
					p.Delete("default", "a")
					p.Compact()
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, []string{"Deleted a unknown"}, told.lines())
					require.NoError(t, inf.Invalid(named("a")))

					// Another state is another chance, at once.
					p.Update("default", "b", func(o *corev1.Pod) { o.Annotations = nil })
					synctest.Wait()
					require.Equal(t, []string{"Added b"}, told.lines())
					require.Zero(t, inf.Health().Rejected)
					require.Empty(t, theListWatch(inf).reflector.quarantine.patients)
					healed(t, p, inf, told)
				})
		})
	}
}

func TestALaterPatientDoesNotWaitForAnEarlierOne(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			p.Update("default", "a", spoil)
			time.Sleep(time.Hour)
			transform.since()
			p.Update("default", "b", spoil)
			time.Sleep(firstRetry)
			synctest.Wait()
			require.GreaterOrEqual(t, len(transform.since()), 2)
			transform.cure()
			time.Sleep(lastRetry)
			healed(t, p, inf, told)
		})
}

func TestAPanicOfTransformIsItsFailure(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Transform: func(o *corev1.Pod) (*corev1.Pod, error) {
		if o.Name == "a" {
			panic(errPicky)
		}
		return o, nil
	}}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synced(t, inf)
		require.Equal(t, []string{"b"}, names(inf))
		require.ErrorIs(t, inf.Invalid(named("a")), errPicky)
		require.ErrorContains(t, inf.Invalid(named("a")), "default/a")
	})
}

// What has no name cannot be kept under a key. It is reported, and the version moves on.
func TestAnObjectWithoutANameIsReported(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		synctest.Wait()
		nameless := p.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}})
		synctest.Wait()
		require.Equal(t, nameless.ResourceVersion, inf.ResourceVersion(metav1.NamespaceAll))
		odd := p.Create(pod("a/b"))
		synctest.Wait()
		require.ErrorContains(t, inf.Health().LastBadObject, "without a name")
		require.Equal(t, odd.ResourceVersion, inf.ResourceVersion(metav1.NamespaceAll))
		require.Equal(t, []string{"a", "a/b", "b"}, names(inf))
		p.Delete("default", "")
		synctest.Wait()
		healed(t, p, inf, told)
	})
}

// As far as a decoding client lets us see: an event that cannot be decoded is gone past by a list, a broken
// connection is not.
func TestAnEventThatCannotBeDecoded(t *testing.T) {
	garbage := watch.Event{Type: watch.Error, Object: &metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
		Message: "unable to decode swordfish",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: decoding, Message: "swordfish"}}},
	}}
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		run(t, inf)
		for range 3 {
			p.Update("default", "a", func(*corev1.Pod) {})
			time.Sleep(time.Minute)
			p.requests()
			p.Inject(garbage)
			time.Sleep(time.Minute)
			require.Equal(t, []string{"WATCH", "ASK"}, p.verbs(), "once may be the connection")
		}
		p.Inject(garbage)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"STREAM"}, p.verbs(), "twice at one place is the event")
		require.ErrorIs(t, inf.Health().LastError, wire.ErrUndecodable)
		require.NotContains(t, inf.Health().LastError.Error(), "swordfish")
		healed(t, p, inf, told)
	})
}

// While a list is under way the transform recovers, and takes an object that was deleted before the list began: it is
// no newer for that.
func TestWhatIsTriedAgainDuringAListIsOfTheListBefore(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			p.Create(spoiled(pod("bad")))
			run(t, inf)
			synctest.Wait()
			require.Error(t, inf.Invalid(named("bad")))
			p.Hold()
			p.Delete("default", "bad")
			inf.Relist(metav1.NamespaceAll, nil)
			synctest.Wait()
			transform.cure()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.Equal(t, 1, inf.Health().Listed)
			require.Equal(t, []string{"a", "b", "bad"}, names(inf), "nothing says yet that it is gone")
			p.Release()
			synctest.Wait()
			require.Equal(t, 2, inf.Health().Listed)
			require.Equal(t, []string{"a", "b"}, names(inf))
			healed(t, p, inf, told)
		})
}

// Whoever was told of an object that cannot be taken is told, as loudly, when it can.
func TestTheRecoveryOfAnObjectIsLogged(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			log := &lines{}
			p.Create(spoiled(pod("bad")))
			runOn(t, inf, klog.New(log))
			synctest.Wait()
			transform.cure()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			recovered := 0
			for _, l := range log.all() {
				require.Equal(t, strings.HasPrefix(l.message, "An object "), l.isError, l.message)
				if l.message == "An object can be handled again" {
					recovered++
					require.Contains(t, l.text, "default/bad")
				}
			}
			require.Equal(t, 1, recovered)
		})
}

func TestNothingIsInQuarantineOnceRunHasReturned(t *testing.T) {
	bad := func(*corev1.Pod) (*corev1.Pod, error) { return nil, errors.New("not to my taste") }
	bubble(t, Options[*corev1.Pod]{Transform: bad}, func(t *testing.T, _ *proxy, inf *informerOfPods, _ *history) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- inf.Run(ctx) }()
		synced(t, inf)
		synctest.Wait()
		require.Equal(t, 2, inf.Health().Rejected)
		cancel()
		require.NoError(t, <-ended)
		require.Empty(t, theListWatch(inf).reflector.quarantine.patients, "nothing keeps the objects alive")
	})
}
