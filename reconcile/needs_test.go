package reconcile

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// circle is a family that runs, and its user, whose keys name the informer "a" as long as a test says so.
type circle struct {
	*Dynamic[string, *corev1.ConfigMap]
	user    *user[string, *corev1.ConfigMap]
	api     *mapAPI
	made    *cachedMaps // the last informer of the family
	isNamed bool
	stop    func()
}

func newCircle(t *testing.T) *circle {
	f := &circle{api: newMapAPI(), isNamed: true}
	c := newController(t, noting(&journal{}), Options{})
	var err error
	f.Dynamic, err = NewDynamic("family", func(string) (_ *cachedMaps, err error) {
		f.made, err = informer.New[*corev1.ConfigMap](f.api,
			informer.Options[*corev1.ConfigMap]{DisableWatchList: true})
		return f.made, err
	})
	require.NoError(t, err)
	f.user = &user[string, *corev1.ConfigMap]{Controller: c, to: f.Dynamic,
		named:   func(string) bool { return f.isNamed },
		naming:  func(string) []Key { return nil },
		namedBy: func(Key) []string { return []string{"a"} }}
	f.users = append(f.users, f.user)
	m := &Manager{opts: ManagerOptions{Controllers: []*Controller{c}}}
	c.manager, f.manager = m, m
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	require.NoError(t, f.WaitForSync(ctx))
	f.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	return f
}

// requireNone requires that the last informer has no cache in the ledger.
func (f *circle) requireNone(t *testing.T) {
	t.Helper()
	require.NotNil(t, f.made)
	require.Nil(t, f.user.ledger.Find(f.made))
}

// opened opens the informer, and waits for its list.
func (f *circle) opened(t *testing.T) *member[*corev1.ConfigMap] {
	m, err := f.member("a")
	require.NoError(t, err)
	synctest.Wait()
	require.True(t, m.complete())
	return m
}

// dropped gives the informer up, as when no object names it for a moment.
func (f *circle) dropped() {
	f.isNamed = false
	f.follow("a")
	f.isNamed = true
}

// A key is about to wait for an informer, which is given up and comes again: it waits for the other one.
func TestAKeyWaitsForAnInformerThatHasComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCircle(t)
		answer := make(chan struct{})
		f.api.BeforeList = func(metav1.ListOptions) error {
			<-answer
			return nil
		}
		looks := 0
		f.user.namedBy = func(Key) []string {
			if looks++; looks == 2 { // between the debt and the look whether it was needed
				f.dropped()
			}
			return []string{"a"}
		}
		f.user.await(parent)
		require.Len(t, f.user.ledger.Owed(parent, false), 1)
		require.NotNil(t, f.running("a"), "what is waited for in one that was given up is no debt")
		close(answer)
		synctest.Wait()
		require.Empty(t, f.user.ledger.Owed(parent, false))
		f.stop()
	})
}

// What could not be opened leaves no cache in the ledger, which every write would look at.
func TestAnInformerThatIsNotOpenedLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCircle(t)
		f.user.sources = func(*cachedMaps) { runtime.Goexit() } // as t.FailNow does
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = f.member("a")
		}()
		<-done
		f.requireNone(t)
		_, err := f.member("a")
		require.ErrorIs(t, err, lifecycle.ErrExited)

		f.user.sources = func(*cachedMaps) { panic("no") }
		_, err = f.member("a")
		require.ErrorContains(t, err, "the function given to Needs of controller test")
		f.requireNone(t)

		f.user.sources = nil
		f.stop()
		_, err = f.member("a")
		require.ErrorIs(t, err, informer.ErrStopped)
		f.requireNone(t)
	})
}

// An informer whose handlers cannot be added is an error of the keys, and no mistake that ends the Manager.
func TestAnInformerThatTakesNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCircle(t)
		inf, err := informer.New[*corev1.ConfigMap](f.api, informer.Options[*corev1.ConfigMap]{Name: "ended"})
		require.NoError(t, err)
		ca := f.user.join(inf, &writes.Learner{}, nil)
		ended, end := context.WithCancel(t.Context())
		end()
		require.NoError(t, inf.Run(ended))
		require.ErrorIs(t, f.user.addSources(inf, ca), informer.ErrStopped)
		require.NoError(t, f.manager.failures.all())
		f.stop()
	})
}

// An informer that somebody else has begun to run, too late for check to see it, does not end the family.
func TestAnInformerThatSomebodyElseRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCircle(t)
		m := f.opened(t)
		f.ended("a", m, fmt.Errorf("informer other: %w", informer.ErrStarted))
		require.Nil(t, f.running("a"))
		f.requireNone(t)
		require.NotSame(t, m, f.opened(t), "it is made anew")
		f.stop()
		m.stop()
		synctest.Wait()
	})
}

// What informers have counted stays in the sums, also while one of them is given up.
func TestTheHealthOfAFamilyCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCircle(t)
		m := f.opened(t)
		before := f.Health()
		require.Equal(t, 1, before.Lists)
		var during informer.Health
		stop := m.stop
		m.stop = func() {
			during = f.Health()
			stop()
		}
		f.dropped()
		synctest.Wait()
		require.Equal(t, 1, during.Lists)
		require.Zero(t, during.Unknown)
		require.Equal(t, 1, f.Health().Lists)
		f.stop()
	})
}

// That many objects name an informer costs each of them no more than if few did.
func TestManyObjectsThatNameAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		for i := range 1000 {
			api.Create(configMap(fmt.Sprint("m-", i)))
		}
		from := newMaps(t, api)
		f := newCircle(t)
		f.manager, f.user.Controller.manager, f.users = nil, nil, nil // as before NewManager
		Needs(f.user.Controller, from, f.Dynamic, func(*corev1.ConfigMap) []string { return []string{"a"} }, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- from.Run(ctx) }()
		synctest.Wait()
		require.NotNil(t, f.running("a"))
		require.Zero(t, testing.AllocsPerRun(100, func() {
			require.True(t, f.named("a"))
		}), "nobody copies a thousand keys")

		f.users[0].changed(parent, nil, []string{"a"})
		require.Empty(t, f.changed, "it runs already")
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		f.stop()
	})
}

// A key that comes while its informer is given up gets another one.
func TestAnInformerThatIsGivenUpWhileItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		d, err := NewDynamic("family", func(string) (*cachedMaps, error) {
			return informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{})
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		require.NoError(t, d.WaitForSync(ctx))
		ended, end := context.WithCancel(ctx)
		end()
		for range 50 {
			require.NoError(t, d.WaitForSync(ended), "it has begun")
		}
		old := &member[*corev1.ConfigMap]{over: make(chan struct{})}
		d.members["a"] = old
		d.giveUp(old)
		m, err := d.member("a")
		require.NoError(t, err)
		require.NotSame(t, old, m)
		require.ErrorIs(t, d.Run(ctx), informer.ErrStarted)
		cancel()
		require.NoError(t, <-done)
		delete(d.members, "a")
		_, err = d.member("a")
		require.ErrorIs(t, err, informer.ErrStopped)
	})
}
