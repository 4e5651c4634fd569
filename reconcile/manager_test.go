package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// unrecorded are Metrics without a Recorder.
type unrecorded struct{}

func (unrecorded) Controller(string, func() status.Stats) reconcile.Recorder { return nil }

func TestEveryMistakeIsNamedBeforeAnythingRuns(t *testing.T) {
	nothing := func(context.Context, reconcile.Key) (reconcile.Result, error) { return reconcile.Result{}, nil }
	_, err := reconcile.NewController("", reconcile.Func(nothing), reconcile.Options{})
	require.ErrorContains(t, err, "name is empty")
	_, err = reconcile.NewController("c", nil, reconcile.Options{})
	require.ErrorContains(t, err, "Reconciler is nil")
	_, err = reconcile.NewController("c", reconcile.Func(nil), reconcile.Options{})
	require.ErrorContains(t, err, "Reconciler is nil")
	_, err = reconcile.NewController("c", reconcile.Func(nothing), reconcile.Options{Workers: -1})
	require.ErrorContains(t, err, "Options.Workers is -1")
	_, err = reconcile.NewController("c", reconcile.Func(nothing), reconcile.Options{Timeout: -time.Second})
	require.ErrorContains(t, err, "Options.Timeout is -1s")
	_, err = reconcile.NewController("c", reconcile.Func(nothing), reconcile.Options{Metrics: unrecorded{}})
	require.ErrorContains(t, err, "returned no Recorder")
	_, err = reconcile.NewController("", nil, reconcile.Options{Workers: -1, Timeout: -time.Second})
	for _, want := range []string{"name is empty", "Reconciler is nil", "Options.Workers is -1",
		"Options.Timeout is -1s"} {
		require.ErrorContains(t, err, want)
	}

	c := newController(t, nothing, reconcile.Options{})
	reconcile.For[*corev1.ConfigMap](c, nil)
	reconcile.Owns[*corev1.ConfigMap](c, nil, schema.GroupVersionKind{})
	reconcile.Watches(c, newMaps(t, newMapAPI()), nil)
	reconcile.WatchesChan(c, "nothing", nil, func(reconcile.Key) []reconcile.Key { return nil })
	reconcile.WatchesChan[reconcile.Key](c, "pointless", make(chan reconcile.Key), nil)
	reconcile.WatchesChan(c, "", make(chan reconcile.Key), func(reconcile.Key) []reconcile.Key { return nil })
	reconcile.DependsOn[*corev1.ConfigMap](c, nil)
	sourceless, err := reconcile.NewController("sourceless", reconcile.Func(nothing), reconcile.Options{})
	require.NoError(t, err)
	_, err = reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{c, c, nil, sourceless},
		Informers:   []reconcile.Informer{nil, (*informer.SharedIndexInformer[*corev1.ConfigMap])(nil)},
		Elector:     (*scripted)(nil),
		SyncTimeout: -1, DrainTimeout: -1, StopGrace: -1,
		Beside:       map[string]func(context.Context) error{"": nil},
		WhileLeading: map[string]func(context.Context) error{"b": nil},
	})
	for _, want := range []string{
		`controller "test": For: the informer is nil`, `controller "test": Owns: the owner has no kind`,
		`controller "test": Owns: the informer is nil`,
		`controller "test": Watches: the function is nil`, `controller "test": WatchesChan nothing: the channel is nil`,
		`controller "test": WatchesChan pointless: the function is nil`,
		`controller "test": WatchesChan: the name is empty`,
		`controller "test": DependsOn: the informer is nil`, `two controllers are called "test"`,
		`Controllers[2] is nil`,
		`controller "sourceless" has no source`,
		`Informers[0] is nil`, `Informers[1] is nil`, `Elector is a nil *reconcile_test.scripted; leave it out`,
		`SyncTimeout is -1ns`, `DrainTimeout is -1ns`, `StopGrace is -1ns`,
		`ManagerOptions.Beside has an empty name`, `ManagerOptions.Beside[""] is nil`,
		`ManagerOptions.WhileLeading["b"] is nil`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = reconcile.NewManager(reconcile.ManagerOptions{})
	require.ErrorContains(t, err, "Controllers is empty")
}

func TestAControllerBelongsToOneManager(t *testing.T) {
	c := newController(t, noting(&journal{}), reconcile.Options{})
	reconcile.For(c, newMaps(t, newMapAPI()))
	opts := reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}}
	_, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: opts.Controllers, StopGrace: -1})
	require.ErrorContains(t, err, "StopGrace is -1ns")
	reconcile.DependsOn(c, newMaps(t, newMapAPI())) // not too late: no Manager has it
	_, err = reconcile.NewManager(opts)
	require.NoError(t, err)
	_, err = reconcile.NewManager(opts)
	require.EqualError(t, err, `NewManager: controller "test" belongs to another Manager already`)
}

// TestReadsIsASourceOfAControllerWhoseKeysAreEnqueued: what names its keys is not for NewManager to know.
func TestReadsIsASourceOfAControllerWhoseKeysAreEnqueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		c := newController(t, noting(log), reconcile.Options{})
		_, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.ErrorContains(t, err, `controller "test" has no source: call For, Owns, Watches or WatchesChan, or `+
			`DependsOn if its keys are named by Enqueue alone`)
		reconcile.DependsOn(c, newMaps(t, newMapAPI()))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		c.Enqueue(parent)
		require.Equal(t, []string{"default/parent"}, taken(log))
	})
}

func TestNoReconcileBeforeTheCachesAreComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, slow, log := newMapAPI(), newMapAPI(), &journal{}
		api.Create(configMap("a"))
		slow.Create(configMap("b"))
		slow.BeforeWatch = func(metav1.ListOptions) error { time.Sleep(time.Second); return nil }
		began := time.Now()
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s after %s", key, time.Since(began))
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, api))
		cacheOnly := newMaps(t, slow)
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			Informers: []reconcile.Informer{cacheOnly}})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"default/a after 1s"}, taken(log))
		require.Equal(t, 1, cacheOnly.Len())
	})
}

func TestSyncTimeoutFailsWithTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		denied := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no Role"))
		api.BeforeWatch = func(metav1.ListOptions) error { return denied }
		c := newController(t, noting(&journal{}), reconcile.Options{})
		reconcile.For(c, newMaps(t, api))
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			SyncTimeout: 30 * time.Second})
		require.NoError(t, err)
		began := time.Now()
		err = m.Run(t.Context())
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "configmaps is forbidden")
		require.Equal(t, 30*time.Second, time.Since(began))
		require.ErrorIs(t, m.Run(t.Context()), reconcile.ErrStarted)
	})
}

func TestSyncTimeoutNamesEveryCacheThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, noting(&journal{}), reconcile.Options{})
		for _, name := range []string{"one", "good", "two", "three"} {
			api := newMapAPI()
			if name != "good" {
				denied := apierrors.NewForbidden(schema.GroupResource{Resource: name + "maps"}, "",
					errors.New("no Role"))
				api.BeforeWatch = func(metav1.ListOptions) error { return denied }
			}
			inf, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: name})
			require.NoError(t, err)
			reconcile.For(c, inf)
		}
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			SyncTimeout: 30 * time.Second})
		require.NoError(t, err)
		err = m.Run(t.Context())
		for _, name := range []string{"one", "two", "three"} {
			require.ErrorContains(t, err, "informer "+name)
			require.ErrorContains(t, err, name+"maps is forbidden")
		}
		require.NotContains(t, err.Error(), "good")
	})
}

// scripted is an elector that leads when it is told to.
type scripted struct {
	lead  chan context.Context // lead with this context
	ended chan error           // what lead returned
}

func (e *scripted) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case tenure := <-e.lead:
		err := lead(tenure)
		e.ended <- err
		if tenure.Err() != nil {
			return errors.New("lost")
		}
		return err
	}
}

func TestWorkersRunOnlyWhileLeadingAndTheCachesStayWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		api.Create(configMap("a"))
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key)
			if key.Name == "slow" {
				<-ctx.Done()
				return reconcile.Result{}, ctx.Err()
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{Workers: 2, Timeout: time.Hour})
		reconcile.For(c, newMaps(t, api))
		e := &scripted{lead: make(chan context.Context), ended: make(chan error, 10)}
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: e})
		time.Sleep(time.Minute)
		require.Empty(t, taken(log), "a standby")

		first, lose := context.WithCancel(t.Context())
		e.lead <- first
		require.Equal(t, []string{"default/a"}, taken(log))
		api.Create(configMap("slow"))
		require.Equal(t, []string{"default/slow"}, taken(log))
		lose()
		require.NoError(t, <-e.ended, "the workers were joined before the elector went on")
		api.Create(configMap("b"))
		require.Empty(t, taken(log), "a standby again")

		e.lead <- t.Context()
		require.Equal(t, []string{"default/b", "default/slow"}, taken(log),
			"what happened meanwhile, and what was stopped half-way")
		api.Create(configMap("c"))
		require.Equal(t, []string{"default/c"}, taken(log))
		require.NoError(t, stop())
		require.NoError(t, <-e.ended)
		require.Zero(t, api.Watchers())
	})
}

func TestShutdownLetsRunningReconcilesFinishWhileTheLeaseIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		takes, stopped time.Duration
		want           string
	}{
		"within DrainTimeout": {takes: 20 * time.Second, stopped: 20 * time.Second, want: "finished"},
		"too slow for it":     {takes: time.Hour, stopped: 30 * time.Second, want: "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, log := newMapAPI(), &journal{}
				api.Create(configMap("a"))
				tenure, lose := context.WithCancel(context.Background())
				defer lose()
				c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
					select {
					case <-time.After(test.takes):
						require.NoError(t, tenure.Err())
						log.note("finished")
						return reconcile.Result{}, nil
					case <-ctx.Done():
						log.note("%v", ctx.Err())
						return reconcile.Result{}, ctx.Err()
					}
				}, reconcile.Options{Timeout: 2 * time.Hour})
				reconcile.For(c, newMaps(t, api))
				e := &scripted{lead: make(chan context.Context, 1), ended: make(chan error, 1)}
				e.lead <- tenure
				stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: e})
				synctest.Wait()
				c.Enqueue(reconcile.Key{Name: "not begun any more"})
				began := time.Now()
				require.NoError(t, stop())
				require.Equal(t, test.stopped, time.Since(began))
				require.Equal(t, []string{test.want}, log.take())
			})
		})
	}
}

func TestLosingTheLeaseWhileDrainingEndsTheReconciles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("a"))
		tenure, lose := context.WithTimeout(context.Background(), 5*time.Second)
		defer lose()
		c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			<-ctx.Done()
			return reconcile.Result{}, ctx.Err()
		}, reconcile.Options{Timeout: time.Hour})
		reconcile.For(c, newMaps(t, api))
		e := &scripted{lead: make(chan context.Context, 1), ended: make(chan error, 1)}
		e.lead <- tenure
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: e})
		synctest.Wait()
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestAnElectorThatFailsEndsTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, noting(&journal{}), reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			Elector: failingElector{io.ErrUnexpectedEOF}})
		require.NoError(t, err)
		require.ErrorIs(t, m.Run(t.Context()), io.ErrUnexpectedEOF)
	})
}

type failingElector struct{ err error }

func (e failingElector) Run(context.Context, func(context.Context) error) error { return e.err }

func TestRunNamesWhatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("a"))
		release := make(chan struct{})
		defer close(release)
		c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
			<-release
			return reconcile.Result{}, nil
		}, reconcile.Options{Workers: 2})
		maps := newMaps(t, api)
		reconcile.For(c, maps)
		_, err := maps.AddHandler(func(informer.Event[*corev1.ConfigMap]) { <-release },
			informer.HandlerOptions{Name: "sluggard"})
		require.NoError(t, err)
		stop := start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		began := time.Now()
		err = stop()
		require.ErrorIs(t, err, reconcile.ErrStuck)
		require.ErrorContains(t, err, "worker of controller test had 10s to end")
		require.ErrorContains(t, err, "handler sluggard of informer configmaps had 10s to end")
		require.Equal(t, 50*time.Second, time.Since(began),
			"30 s to drain, 10 s of grace for the worker, 10 s for the handler")
	})
}

func TestAnInformerThatSomebodyElseRunsEndsTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maps := newMaps(t, newMapAPI())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go maps.Run(ctx)
		synctest.Wait()
		c := newController(t, noting(&journal{}), reconcile.Options{})
		reconcile.For(c, maps)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		err = m.Run(t.Context())
		require.ErrorIs(t, err, informer.ErrStarted)
		require.Equal(t, 1, strings.Count(err.Error(), "informer configmaps"), "%v", err)
	})
}

func TestNothingBeginsOnceTheContextHasEnded(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			log := &journal{}
			c := newController(t, noting(log), reconcile.Options{Workers: 4})
			reconcile.For(c, newMaps(t, newMapAPI()))
			for i := range 50 {
				c.Enqueue(reconcile.Key{Name: string(rune('a' + i))})
			}
			m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, m.Run(ctx))
			require.Empty(t, log.take())
		})
	}
}

func TestASourceThatComesTooLateIsNamed(t *testing.T) {
	c := newController(t, noting(&journal{}), reconcile.Options{})
	reconcile.For(c, newMaps(t, newMapAPI()))
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(t, err)
	reconcile.For(c, newMaps(t, newMapAPI()))
	reconcile.WatchesChan(c, "late", make(chan reconcile.Key), func(reconcile.Key) []reconcile.Key { return nil })
	err = m.Run(t.Context())
	require.ErrorContains(t, err, `controller "test": For was called after NewManager`)
	require.ErrorContains(t, err, `controller "test": WatchesChan late was called after NewManager`)
}

// TestASourceThatComesWhileTheManagerRunsEndsIt: else its informer would never run, and nobody would know.
func TestASourceThatComesWhileTheManagerRunsEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, noting(&journal{}), reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		time.Sleep(time.Second)
		for range 2 {
			go reconcile.For(c, newMaps(t, newMapAPI()))
		}
		err = <-done
		require.NoError(t, ctx.Err(), "Run has not waited to be told")
		require.ErrorContains(t, err, `controller "test": For was called after NewManager`)
	})
}

func TestAnElectorThatNeverLetsAnybodyLeadIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, noting(&journal{}), reconcile.Options{})
		reconcile.For(c, newMaps(t, newMapAPI()))
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c},
			Elector: failingElector{nil}})
		require.NoError(t, err)
		require.ErrorContains(t, m.Run(t.Context()), "without having led")
	})
}

func TestAnInformerThatTrackWritesNeverSawEndsTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, err := informer.New[*corev1.ConfigMap](learning{newMapAPI()}, informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		c := newController(t, noting(&journal{}), reconcile.Options{})
		reconcile.For(c, seen)
		reconcile.DependsOn(c, newMaps(t, newMapAPI()))
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, m.Run(ctx),
			"controller test depends on informer configmaps, whose requests do not pass TrackWrites as those of "+
				"other informers do: "+
				"make its client from what reconcile.ClientConfig returns")
	})
}

// TestNothingIsReconciledOnACacheThatIsTooOld cuts the informer off for longer than it may be.
func TestNothingIsReconciledOnACacheThatIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, log := newMapAPI(), &journal{}
		var down atomic.Bool
		api.BeforeWatch = func(metav1.ListOptions) error {
			if down.Load() {
				return errors.New("down")
			}
			return nil
		}
		maps, err := informer.New[*corev1.ConfigMap](api,
			informer.Options[*corev1.ConfigMap]{MaxStaleness: 2 * time.Minute})
		require.NoError(t, err)
		c := newController(t, noting(log), reconcile.Options{})
		reconcile.For(c, maps)
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		synctest.Wait()
		down.Store(true)
		api.Cut()
		time.Sleep(3 * time.Minute)
		c.Enqueue(parent)
		paused := reconcile.Key{Namespace: parent.Namespace, Name: "paused"} // waits for Resume, and for no cache
		c.Pause(paused)
		c.Enqueue(paused)
		time.Sleep(time.Minute)
		require.Empty(t, taken(log))
		require.Equal(t, 1, c.Inspect().Parked)
		require.Empty(t, c.InspectKey(paused).Debts)
		down.Store(false)
		time.Sleep(time.Minute)
		api.Bookmark()
		synctest.Wait()
		require.Equal(t, []string{"default/parent"}, taken(log))
		c.Resume(paused)
		synctest.Wait()
		require.Equal(t, []string{"default/paused"}, taken(log))
	})
}

// TestShutdownOfALargeManager stops ten informers and five controllers, of which one is stuck in a Reconcile, and one
// informer in a handler: all the rest ends, and who is to blame is named. Without the two it takes no time at all.
func TestShutdownOfALargeManager(t *testing.T) {
	for name, stuck := range map[string]bool{"two are stuck": true, "nobody is": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var ended atomic.Int32
				var controllers []*reconcile.Controller
				for i := range 5 {
					c, err := reconcile.NewController(fmt.Sprint("controller-", i),
						reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
							if stuck && i == 3 && key.Name == "a" {
								<-release
							}
							<-ctx.Done() // as a call that takes for as long as it may
							ended.Add(1)
							return reconcile.Result{}, ctx.Err()
						}), reconcile.Options{Workers: 2, Timeout: 20 * time.Second})
					require.NoError(t, err)
					for j := range 2 {
						api := newMapAPI()
						api.Create(configMap("a"))
						api.Create(configMap("b"))
						maps, err := informer.New[*corev1.ConfigMap](api,
							informer.Options[*corev1.ConfigMap]{Name: fmt.Sprintf("informer-%d-%d", i, j)})
						require.NoError(t, err)
						if stuck && i == 1 && j == 1 {
							_, err := maps.AddHandler(func(informer.Event[*corev1.ConfigMap]) { <-release },
								informer.HandlerOptions{Name: "sluggard"})
							require.NoError(t, err)
						}
						reconcile.For(c, maps)
					}
					controllers = append(controllers, c)
				}
				stop := start(t, reconcile.ManagerOptions{Controllers: controllers})
				synctest.Wait()
				began := time.Now()
				err := stop()
				took := time.Since(began)
				if !stuck {
					require.NoError(t, err)
					require.Equal(t, 20*time.Second, took,
						"what the calls that were under way had left of their Timeout")
					require.EqualValues(t, 10, ended.Load())
					return
				}
				t.Logf("Run returned after %s: %v", took, err)
				require.Equal(t, 50*time.Second, took,
					"30 s to drain, 10 s of grace for the worker, 10 s for the handler")
				require.ErrorIs(t, err, reconcile.ErrStuck)
				require.EqualError(t, err, "did not stop in time: worker of controller controller-3 had 10s to end\n"+
					"informer informer-1-1: did not stop in time: handler sluggard of informer informer-1-1 had 10s "+
					"to end")
				require.EqualValues(t, 9, ended.Load(), "everybody else has ended")
				close(release)
				synctest.Wait()
				require.EqualValues(t, 10, ended.Load())
			})
		})
	}
}
