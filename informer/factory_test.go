package informer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// shared makes an informer of its own for each user, as parts of a program do that do not know each other.
func shared(t *testing.T, f *Factory, p *proxy, opts Options[*corev1.Pod]) *Shared[*corev1.Pod] {
	t.Helper()
	inf, err := New[*corev1.Pod](p, opts)
	require.NoError(t, err)
	s, err := Share(f, "pods", inf)
	require.NoError(t, err)
	return s
}

func runFactory(t *testing.T, f *Factory) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

// C4: one watch for all, from the first user to the last, and nothing of a user is left behind.
func TestUsersOfAResourceShareOneWatch(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
		var f Factory
		first := shared(t, &f, p, Options[*corev1.Pod]{})
		stop := runFactory(t, &f)
		second := shared(t, &f, p, Options[*corev1.Pod]{})
		require.Same(t, first.SharedIndexInformer, second.SharedIndexInformer)
		require.NoError(t, f.WaitForSync(t.Context()))
		told, other := &history{inf: first.SharedIndexInformer, rounds: rounds{}},
			&history{inf: first.SharedIndexInformer, rounds: rounds{}}
		_, err := first.AddHandler(told.handle, HandlerOptions{})
		require.NoError(t, err)
		_, err = second.AddHandler(other.handle, HandlerOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"STREAM"}, p.verbs())
		told.lines()
		other.lines()

		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, first.Release(t.Context()), "once more does no harm")
		p.Create(pod("c"))
		synctest.Wait()
		require.Empty(t, told.lines(), "its handlers have gone with it")
		require.Equal(t, []string{"Added c"}, other.lines(), "nobody else's")
		_, err = first.AddHandler(told.handle, HandlerOptions{})
		require.ErrorIs(t, err, ErrStopped)
		require.Equal(t, 1, p.Watchers())

		require.NoError(t, second.Release(t.Context()))
		require.Zero(t, p.Watchers(), "the last user stops the watch")
		require.Equal(t, Stopped, second.Health().State)

		third := shared(t, &f, p, Options[*corev1.Pod]{})
		require.NoError(t, third.WaitForSync(t.Context()))
		require.Equal(t, 3, third.Len(), "and the next one starts another")
		require.NoError(t, stop())
		require.NoError(t, third.Release(t.Context()))
		inf, err := New[*corev1.Pod](p, Options[*corev1.Pod]{})
		require.NoError(t, err)
		_, err = Share(&f, "pods", inf)
		require.ErrorIs(t, err, ErrStopped)
		require.ErrorIs(t, f.Run(t.Context()), ErrStarted)
		require.Zero(t, p.Watchers())
	})
}

func TestWhoAsksForSomethingElseGetsSomethingElse(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, _ *history) {
		var f Factory
		all := shared(t, &f, p, Options[*corev1.Pod]{MaxStaleness: time.Hour, VerifyEvery: time.Hour})
		few := shared(t, &f, p, Options[*corev1.Pod]{LabelSelector: labels.SelectorFromSet(labels.Set{"a": "b"})})
		require.NotSame(t, all.SharedIndexInformer, few.SharedIndexInformer)
		names, err := Project[*corev1.Pod](p, func(p *corev1.Pod) (string, error) { return p.Name, nil },
			Options[*corev1.Pod]{})
		require.NoError(t, err)
		_, err = Share(&f, "pods", names)
		require.NoError(t, err)
		require.Len(t, f.shared, 3)
		_, err = Share(&f, "pods of another cluster", inf)
		require.NoError(t, err)
		require.Len(t, f.shared, 4)
		require.NoError(t, few.Release(t.Context()), "before it ran")
		require.Len(t, f.shared, 3)

		other, err := New[*corev1.Pod](p, Options[*corev1.Pod]{Name: "mine", VerifyEvery: time.Hour})
		require.NoError(t, err)
		_, err = Share(&f, "pods", other)
		require.EqualError(t, err, `informer mine: Share of "pods": its Options.MaxStaleness is 0s, that of the `+
			`shared informer 1h0m0s`)
		other, err = New[*corev1.Pod](p, Options[*corev1.Pod]{Name: "mine", MaxStaleness: time.Hour})
		require.NoError(t, err)
		_, err = Share(&f, "pods", other)
		require.EqualError(t, err, `informer mine: Share of "pods": its Options.VerifyEvery is 0s, that of the `+
			`shared informer 1h0m0s`)
		bounded := func(most int64) *informerOfPods {
			inf, err := New[*corev1.Pod](REST[*corev1.PodList](noClient{}, "pods", ""),
				Options[*corev1.Pod]{Name: "mine", MaxBytes: most})
			require.NoError(t, err)
			return inf
		}
		_, err = Share(&f, "pods over REST", bounded(1000))
		require.NoError(t, err)
		_, err = Share(&f, "pods over REST", bounded(0))
		require.EqualError(t, err, `informer mine: Share of "pods over REST": its Options.MaxBytes is 0, that of `+
			`the shared informer 1000`)
		_, err = Share(&f, "", other)
		require.ErrorContains(t, err, "the name of a resource")
		require.ErrorIs(t, all.Run(t.Context()), ErrStarted)
		other.started.Store(true)
		_, err = Share(&f, "more pods", other)
		require.ErrorContains(t, err, "let the factory run it")
	})
}

func TestAFactoryTellsWhatIsWrong(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
		var f Factory
		p.onWatch = refuse(errForbidden)
		pods := shared(t, &f, p, Options[*corev1.Pod]{Name: "pods", StopGrace: time.Second})
		stop := runFactory(t, &f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := f.WaitForSync(ctx)
		require.ErrorIs(t, err, errForbidden)
		require.ErrorContains(t, err, "informer pods")

		p.set(func() { p.onWatch = nil })
		require.NoError(t, f.WaitForSync(t.Context()))
		release := make(chan struct{})
		_, err = pods.AddHandler(func(Event[*corev1.Pod]) { <-release }, HandlerOptions{Name: "printer"})
		require.NoError(t, err)
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		other := shared(t, &f, p, Options[*corev1.Pod]{Name: "pods"})
		require.ErrorIs(t, other.Release(t.Context()), nil)
		began := time.Now()
		err = stop()
		require.ErrorIs(t, err, ErrStuck)
		require.ErrorContains(t, err, "printer")
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, pods.Release(ended), context.Canceled, "its handler has not returned")
		close(release)
	})
}

func TestTheLastUserHearsOfAStuckHandler(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
		var f Factory
		pods := shared(t, &f, p, Options[*corev1.Pod]{StopGrace: time.Second})
		stop := runFactory(t, &f)
		release := make(chan struct{})
		_, err := pods.AddHandler(func(Event[*corev1.Pod]) { <-release }, HandlerOptions{Name: "printer"})
		require.NoError(t, err)
		synctest.Wait()
		again := shared(t, &f, p, Options[*corev1.Pod]{})
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, pods.Release(short), context.DeadlineExceeded)
		require.NoError(t, f.WaitForSync(t.Context()))
		err = again.Release(t.Context())
		require.ErrorIs(t, err, ErrStuck)
		require.ErrorContains(t, err, "printer")
		close(release)
		require.NoError(t, stop())
	})
}

// Nobody is told twice, and an informer does not get stuck without anybody being told.
func TestTheFactoryHearsOfAStuckHandlerWhoseUserDidNotWait(t *testing.T) {
	for name, waits := range map[string]time.Duration{"not at all": 0, "not long enough": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
				var f Factory
				pods := shared(t, &f, p, Options[*corev1.Pod]{StopGrace: time.Second})
				stop := runFactory(t, &f)
				release := make(chan struct{})
				_, err := pods.AddHandler(func(Event[*corev1.Pod]) { <-release }, HandlerOptions{Name: "printer"})
				require.NoError(t, err)
				synctest.Wait()
				short, cancel := context.WithTimeout(t.Context(), waits)
				defer cancel()
				require.ErrorIs(t, pods.Release(short), context.DeadlineExceeded)
				time.Sleep(time.Hour)
				again := shared(t, &f, p, Options[*corev1.Pod]{})
				require.NoError(t, again.Release(t.Context()), "this is another informer")
				err = stop()
				require.ErrorIs(t, err, ErrStuck)
				require.ErrorContains(t, err, "printer")
				close(release)
			})
		})
	}
}

// Release takes every handler away, also one that is being added at the time.
func TestAHandlerThatIsAddedDuringReleaseIsNotLeftBehind(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", inline), func(t *testing.T) {
			bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, _ *informerOfPods, _ *history) {
				var f Factory
				first := shared(t, &f, p, Options[*corev1.Pod]{})
				shared(t, &f, p, Options[*corev1.Pod]{}) // somebody for whom it goes on
				stop := runFactory(t, &f)
				require.NoError(t, f.WaitForSync(t.Context()))
				calls, failed := 0, make(chan error, 1)
				first.lockWriter()
				go func() {
					_, err := first.AddHandler(func(Event[*corev1.Pod]) { calls++ }, HandlerOptions{Inline: inline})
					failed <- err
				}()
				synctest.Wait()
				require.NoError(t, first.Release(t.Context()))
				first.unlockWriter()
				require.ErrorIs(t, <-failed, ErrStopped)
				synctest.Wait()
				calls = 0
				p.Create(pod("c"))
				synctest.Wait()
				require.Zero(t, calls)
				require.NoError(t, stop())
			})
		})
	}
}

// Whichever comes first: an informer that others may get for its scope has that scope.
func TestShareAndRescopeDoNotMeet(t *testing.T) {
	for name, sharesFirst := range map[string]bool{"share, then rescope": true, "rescope, then share": false} {
		t.Run(name, func(t *testing.T) {
			inLand(t, func(t *testing.T, w *land) {
				in := func(namespace string) *informerOfPods {
					inf, err := NewNamespaced[*corev1.Pod](w.theirs.CoreV1().Pods, []string{namespace},
						Options[*corev1.Pod]{})
					require.NoError(t, err)
					return inf
				}
				var f Factory
				inf := in("one")
				rescoped, done := make(chan error, 1), make(chan error, 1)
				rescope := func() { rescoped <- inf.Rescope(Scope{Namespaces: []string{"two"}}) }
				share := func() { _, err := Share(&f, "pods", inf); done <- err }
				inf.lockWriter()
				if sharesFirst {
					go share()
					synctest.Wait()
					go rescope()
				} else {
					go rescope()
					synctest.Wait()
					go share()
				}
				synctest.Wait()
				inf.unlockWriter()
				require.NoError(t, <-done)
				require.Equal(t, sharesFirst, errors.Is(<-rescoped, ErrScope))
				for _, namespace := range []string{"one", "two"} {
					shared, err := Share(&f, "pods", in(namespace))
					require.NoError(t, err)
					require.Equal(t, []string{namespace}, shared.Scope().Namespaces)
				}
			}, "one", "two")
		})
	}
}
