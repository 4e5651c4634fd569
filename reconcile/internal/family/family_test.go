package family

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
	"github.com/thermostat-go/thermostat/internal/fakeapi"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/keys"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

type (
	mapAPI     = fakeapi.Resource[*corev1.ConfigMap, *corev1.ConfigMapList]
	cachedMaps = informer.SharedIndexInformer[*corev1.ConfigMap]
)

func newMapAPI() *mapAPI {
	return fakeapi.New[*corev1.ConfigMap](func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
}

// parent is a key whose object names the informer "a".
var parent = Key{Namespace: "default", Name: "parent"}

// circle is a family that runs, and its user, whose keys name the informer "a" as long as a test says so.
type circle struct {
	*Family[string, *corev1.ConfigMap]
	user    *User[string, *corev1.ConfigMap]
	api     *mapAPI
	made    *cachedMaps // the last informer of the family
	isNamed bool
	stop    func()
}

func newCircle(t *testing.T) *circle {
	f := &circle{api: newMapAPI(), isNamed: true}
	f.Family = New("family", func(string) (_ *cachedMaps, err error) {
		f.made, err = informer.New[*corev1.ConfigMap](f.api,
			informer.Options[*corev1.ConfigMap]{DisableWatchList: true})
		return f.made, err
	})
	f.user = &User[string, *corev1.ConfigMap]{
		Ledger: debts.New(keys.New(false, -1, writes.ResourceOf), func(Key) {}, func(Key, status.Wait) {}),
		Named:  func(string) bool { return f.isNamed }, NamedBy: func(Key) []string { return []string{"a"} },
		Open: func(inf *cachedMaps, ca *debts.Cache) error {
			_, err := inf.AddHandler(func(e informer.Event[*corev1.ConfigMap]) {}, informer.HandlerOptions{Inline: true,
				Reached: func(namespace, _ string) { f.user.Ledger.Reached(ca, namespace) }})
			return err
		},
		Close: func(*cachedMaps, *debts.Cache) {}, Arrived: func(string) {}, Ready: func(*debts.Cache) {}}
	f.Use(f.user)
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
	require.Nil(t, f.user.Ledger.Find(f.made))
}

// opened opens the informer, and waits for its list.
func (f *circle) opened(t *testing.T) *member[string, *corev1.ConfigMap] {
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
		f.user.NamedBy = func(Key) []string {
			if looks++; looks == 2 { // between the debt and the look whether it was needed
				f.dropped()
			}
			return []string{"a"}
		}
		f.user.Await(parent)
		require.Len(t, f.user.Ledger.Owed(parent, false), 1)
		require.NotNil(t, f.running("a"), "what is waited for in one that was given up is no debt")
		close(answer)
		synctest.Wait()
		require.Empty(t, f.user.Ledger.Owed(parent, false))
		f.stop()
	})
}

// What could not be opened leaves no cache in the ledger, which every write would look at.
func TestAnInformerThatIsNotOpenedLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCircle(t)
		open, closed := f.user.Open, 0
		f.user.Close = func(*cachedMaps, *debts.Cache) { closed++ }
		f.user.Open = func(*cachedMaps, *debts.Cache) error { // as t.FailNow does, in the function given to Needs
			runtime.Goexit()
			return nil
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = f.member("a")
		}()
		<-done
		f.requireNone(t)
		_, err := f.member("a")
		require.ErrorIs(t, err, lifecycle.ErrExited)

		f.user.Open = func(*cachedMaps, *debts.Cache) error { return context.DeadlineExceeded }
		_, err = f.member("a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		f.requireNone(t)

		f.user.Open = open
		f.stop()
		_, err = f.member("a")
		require.ErrorIs(t, err, informer.ErrStopped)
		f.requireNone(t)
		require.Equal(t, 3, closed)
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

// An informer that runs already is not looked at because one more object names it.
func TestOneMoreObjectThatNamesAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCircle(t)
		f.opened(t)
		f.user.Changed(parent, nil, []string{"a"})
		require.Empty(t, f.changed)
		f.stop()
	})
}

// A key that comes while its informer is given up gets another one.
func TestAnInformerThatIsGivenUpWhileItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		d := New("family", func(string) (*cachedMaps, error) {
			return informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{})
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		require.NoError(t, d.WaitForSync(ctx))
		ended, end := context.WithCancel(ctx)
		end()
		for range 50 {
			require.NoError(t, d.WaitForSync(ended), "it has begun")
		}
		old := &member[string, *corev1.ConfigMap]{over: make(chan struct{})}
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
