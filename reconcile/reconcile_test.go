package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/fakeapi"
	"github.com/thermostat-go/thermostat/reconcile"
)

type mapAPI = fakeapi.Resource[*corev1.ConfigMap, *corev1.ConfigMapList]

func newMapAPI() *mapAPI {
	return fakeapi.New[*corev1.ConfigMap](func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func newMaps(t *testing.T, api *mapAPI) *informer.SharedIndexInformer[*corev1.ConfigMap] {
	t.Helper()
	inf, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: "configmaps"})
	require.NoError(t, err)
	return inf
}

// journal is what a test's Reconciler notes, for the test to read.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// start runs a Manager until the test ends, or until the function returned is called, which returns what Run did.
func start(t *testing.T, opts reconcile.ManagerOptions) (stop func() error) {
	t.Helper()
	return startIn(t.Context(), t, opts)
}

// startIn is start with a context, which may have a logger.
func startIn(ctx context.Context, t *testing.T, opts reconcile.ManagerOptions) (stop func() error) {
	t.Helper()
	m, err := reconcile.NewManager(opts)
	require.NoError(t, err)
	return runIn(ctx, t, m)
}

// runIn runs a Manager as startIn does.
func runIn(ctx context.Context, t *testing.T, m *reconcile.Manager) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	return stop
}

func newController(t *testing.T, r reconcile.Func, opts reconcile.Options) *reconcile.Controller {
	t.Helper()
	c, err := reconcile.NewController("test", r, opts)
	require.NoError(t, err)
	return c
}

// endless is an error whose tree contains itself.
type endless struct{}

func (e endless) Error() string   { return "endless" }
func (e endless) Unwrap() []error { return []error{e} }

// joinsNothing is a join without errors.
type joinsNothing struct{}

func (joinsNothing) Error() string   { return "nothing" }
func (joinsNothing) Unwrap() []error { return []error{nil} }

func TestOutcomesDecideWhenAKeyComesBack(t *testing.T) {
	failure := errors.New("it went wrong")
	type then struct {
		result reconcile.Result
		err    error
	}
	soon := reconcile.RetryAfter(time.Minute, failure)
	fails := func(err error) then { return then{err: err} }
	for name, test := range map[string]struct {
		first  then
		second time.Duration // when the second run begins; zero: never
	}{
		"done":        {first: then{}},
		"again later": {first: then{result: reconcile.Result{RequeueAfter: time.Minute}}, second: time.Minute},
		"failed":      {first: fails(failure), second: 5 * time.Millisecond},
		"failed, and says when": {first: fails(fmt.Errorf("w: %w", reconcile.RetryAfter(time.Hour, failure))),
			second: time.Hour},
		"failed, and says at once": {first: fails(fmt.Errorf("wrapped: %w", reconcile.RetryAfter(0, failure))),
			second: 5 * time.Millisecond},
		"failed, and says long ago": {first: fails(reconcile.RetryAfter(-time.Minute, failure)),
			second: 5 * time.Millisecond},
		"failed, with RequeueAfter": {first: then{result: reconcile.Result{RequeueAfter: time.Hour}, err: failure},
			second: time.Hour},
		"failed for good": {first: fails(fmt.Errorf("wrapped: %w", reconcile.Terminal(failure)))},
		"one of two for good": {first: fails(errors.Join(reconcile.Terminal(failure), failure)),
			second: 5 * time.Millisecond},
		"the other of two for good": {first: fails(fmt.Errorf("%w: %w", failure, reconcile.Terminal(failure))),
			second: 5 * time.Millisecond},
		"both for good": {first: fails(errors.Join(reconcile.Terminal(failure),
			reconcile.Terminal(reconcile.RetryAfter(1, failure))))},
		"a join for good":         {first: fails(reconcile.Terminal(errors.Join(failure, failure)))},
		"for good, and says when": {first: fails(reconcile.RetryAfter(time.Hour, reconcile.Terminal(failure)))},
		"one for good, one says when": {first: fails(errors.Join(reconcile.Terminal(failure),
			reconcile.RetryAfter(time.Hour, failure))),
			second: time.Hour},
		"both say when": {first: fails(errors.Join(reconcile.RetryAfter(time.Hour, failure), soon)),
			second: time.Minute},
		"one says when": {first: fails(errors.Join(reconcile.RetryAfter(time.Hour, failure), failure)),
			second: 5 * time.Millisecond},
		"twice when": {first: fails(reconcile.RetryAfter(time.Hour, soon)), second: time.Hour},
		"one says when, and RequeueAfter": {first: then{result: reconcile.Result{RequeueAfter: time.Minute},
			err: errors.Join(reconcile.RetryAfter(time.Hour, failure), failure)}, second: time.Minute},
		"for good, with RequeueAfter": {first: then{result: reconcile.Result{RequeueAfter: time.Minute},
			err: reconcile.Terminal(failure)}},
		"the server asks for a pause": {first: fails(fmt.Errorf("wrapped: %w", apierrors.NewTooManyRequests("", 7))),
			second: 7 * time.Second},
		"the server asks for a shorter pause": {first: fails(errors.Join(reconcile.RetryAfter(time.Hour, failure),
			reconcile.RetryAfter(time.Hour, apierrors.NewTooManyRequests("", 7)))), second: time.Hour},
		"the server asks for a day": {first: fails(apierrors.NewTooManyRequests("", 86400)), second: 5 * time.Minute},
		"an error in itself":        {first: fails(endless{}), second: 5 * time.Millisecond},
		"joins nothing":             {first: fails(joinsNothing{}), second: 5 * time.Millisecond},
		"a negative delay": {first: then{result: reconcile.Result{RequeueAfter: -1}},
			second: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newMapAPI()
				api.Create(configMap("a"))
				began, log := time.Now(), journal{}
				runs := 0
				c := newController(t, func(context.Context, reconcile.Key) (reconcile.Result, error) {
					log.note("%s", time.Since(began))
					if runs++; runs == 1 {
						return test.first.result, test.first.err
					}
					return reconcile.Result{}, nil
				}, reconcile.Options{})
				reconcile.For(c, newMaps(t, api))
				start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				want := []string{"0s"}
				if test.second > 0 {
					want = append(want, test.second.String())
				}
				require.Equal(t, want, log.take())
			})
		})
	}
}

func TestAPanicIsAnErrorAndTheWorkerLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("a"))
		var log journal
		runs := 0
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s", key)
			if runs++; runs < 3 {
				panic("ouch")
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"default/a", "default/a", "default/a"}, log.take())
	})
}

func TestAReconcileEndsWithItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("a"))
		began, log := time.Now(), journal{}
		c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			<-ctx.Done()
			log.note("%s", time.Since(began))
			return reconcile.Result{}, reconcile.Terminal(ctx.Err())
		}, reconcile.Options{Timeout: time.Minute})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"1m0s"}, log.take())
	})
}

// TestAChangeDoesNotEndThePauseThatTheServerAsksFor: the run that it starts would send the same request again.
func TestAChangeDoesNotEndThePauseThatTheServerAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMapAPI()
		api.Create(configMap("a"))
		began, log := time.Now(), journal{}
		var answer error = apierrors.NewTooManyRequests("the server is busy", 10)
		c := newController(t, func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			log.note("%s at %s", key.Name, time.Since(began))
			if key.Name == "a" {
				defer func() { answer = nil }()
				return reconcile.Result{}, answer
			}
			return reconcile.Result{}, nil
		}, reconcile.Options{})
		reconcile.For(c, newMaps(t, api))
		start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		touch := func(m *corev1.ConfigMap) { m.Data = map[string]string{"at": time.Now().String()} }
		for _, name := range []string{"b", "c"} {
			time.Sleep(3 * time.Second)
			api.Update("default", "a", touch)
			api.Create(configMap(name))
		}
		time.Sleep(10 * time.Second)
		api.Update("default", "a", touch)
		synctest.Wait()
		require.Equal(t, []string{"a at 0s", "b at 3s", "c at 6s", "a at 10s", "a at 16s"}, log.take())
	})
}

// logger notes what is logged.
func (j *journal) logger() klog.Logger {
	return funcr.New(func(_, args string) { j.note("%s", args) }, funcr.Options{})
}
