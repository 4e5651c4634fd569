package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// parish is a controller of the ConfigMaps of one namespace. While a ConfigMap says that it makes, each run for it
// creates a Secret, which the controller reads by a cache, too.
type parish struct {
	*testing.T
	admin   kubernetes.Interface // of somebody whose requests have no faults
	link    *reconciletest.Link  // the controller's way
	secrets *informer.SharedIndexInformer[*corev1.Secret]
	stats   func() status.Stats
	stop    func() error
	puts    int

	mu sync.Mutex
	// Guarded by mu. ran is when the last run of a key began, asked counts the requests about Secrets that write
	// nothing, and lines what was logged.
	ran   map[string]time.Time
	runs  int
	asked int
	lines []string
	fault func(reconciletest.Request) reconciletest.Fault // of requests about Secrets
}

// inParish runs fn in virtual time.
func inParish(t *testing.T, workers int, fn func(p *parish)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		p := &parish{T: t, link: server.Link(), ran: map[string]time.Time{}}
		p.admin = kubernetes.NewForConfigOrDie(server.Link().Config())
		p.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource != "secrets" {
				return nil
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if !r.Writes() {
				p.asked++
			}
			if p.fault == nil {
				return nil
			}
			return p.fault(r)
		})
		config := p.link.Config()
		config.Wrap(reconcile.TrackWrites)
		clients := kubernetes.NewForConfigOrDie(config)
		core := clients.CoreV1()
		maps, err := informer.New[*corev1.ConfigMap](core.ConfigMaps("default"), informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		p.secrets, err = informer.New[*corev1.Secret](core.Secrets("default"), informer.Options[*corev1.Secret]{})
		require.NoError(t, err)
		run := func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			p.mu.Lock()
			p.ran[key.Name] = time.Now()
			p.runs++
			p.mu.Unlock()
			if m, ok := maps.Get(key); !ok || m.Data["makes"] == "" {
				return reconcile.Result{}, nil
			}
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: key.Name + "-"}}
			_, err := core.Secrets("default").Create(ctx, s, metav1.CreateOptions{})
			return reconcile.Result{}, err
		}
		c, err := reconcile.NewController("parish", reconcile.Func(run), reconcile.Options{Workers: workers})
		require.NoError(t, err)
		p.stats = c.Stats
		reconcile.For(c, maps)
		reconcile.DependsOn(c, p.secrets)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, args string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.lines = append(p.lines, args)
		}, funcr.Options{})))
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		p.stop = sync.OnceValue(func() error { cancel(); return <-done })
		t.Cleanup(func() { require.NoError(t, p.stop()) })
		synctest.Wait()
		fn(p)
	})
}

// put makes or changes a ConfigMap.
func (p *parish) put(name string, makes bool) {
	p.Helper()
	p.puts++
	m := &corev1.ConfigMap{Data: map[string]string{"put": fmt.Sprint(p.puts)}}
	m.Name = name
	if makes {
		m.Data["makes"] = "a secret"
	}
	_, err := p.admin.CoreV1().ConfigMaps("default").Update(p.Context(), m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = p.admin.CoreV1().ConfigMaps("default").Create(p.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(p, err)
}

// fail sets what happens to requests about Secrets.
func (p *parish) fail(fault func(reconciletest.Request) reconciletest.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// since starts to count, and returns a function that tells how many requests about Secrets and lines there have been,
// but those of failed runs.
func (p *parish) since() (counts func() (asked int, lines []string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, lines := p.asked, len(p.lines)
	return func() (int, []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.asked - asked, p.lines[lines:]
	}
}

// parked brings up n keys that have each made a Secret which the cache does not see, until they are parked.
func (p *parish) park(n int) {
	p.Helper()
	p.link.DelayWatches("secrets", reconciletest.Never)
	for range 2 {
		for i := range n {
			p.put(fmt.Sprint("m-", i), true)
		}
		synctest.Wait()
	}
	require.Equal(p, n, p.stats().Parked)
}

// lists returns a fault of all lists, streamed ones too, and so of new watches.
func lists(fault reconciletest.Fault) func(reconciletest.Request) reconciletest.Fault {
	return func(r reconciletest.Request) reconciletest.Fault {
		if r.Verb == "list" || r.Verb == "watch" {
			return fault
		}
		return nil
	}
}

// TestParkedKeysHoldNoWorker has one worker, twenty keys whose Secrets the cache does not see, and a server that does
// not answer when the informer lists anew.
func TestParkedKeysHoldNoWorker(t *testing.T) {
	inParish(t, 1, func(p *parish) {
		p.put("free", false)
		p.fail(lists(reconciletest.Delay(time.Hour, 0)))
		p.park(20)
		var longest time.Duration
		for range 300 {
			time.Sleep(time.Second)
			began := time.Now()
			p.put("free", false)
			for waiting := true; waiting; {
				time.Sleep(time.Millisecond)
				p.mu.Lock()
				waiting = p.ran["free"].Before(began) && time.Since(began) < 5*time.Minute
				p.mu.Unlock()
			}
			longest = max(longest, time.Since(began))
		}
		require.Less(t, longest, 100*time.Millisecond, "a key that waits for nothing waited for the others' requests")
		require.Equal(t, 20, p.stats().Parked)
		began := time.Now()
		require.NoError(t, p.stop())
		require.Less(t, time.Since(began), time.Second, "the list is interrupted")
	})
}

// TestManyKeysBehindACacheThatCannotListAreFewRequests has two hundred keys whose Secrets the cache does not see, and a
// server that refuses all lists.
func TestManyKeysBehindACacheThatCannotListAreFewRequests(t *testing.T) {
	for name, workers := range map[string]int{"one worker": 1, "many workers": 50} {
		t.Run(name, func(t *testing.T) {
			inParish(t, workers, func(p *parish) {
				p.fail(lists(reconciletest.Refuse(apierrors.NewInternalError(fmt.Errorf("no lists today")))))
				p.park(200)
				counts := p.since()
				time.Sleep(10 * time.Minute)
				asked, lines := counts()
				t.Logf("%d requests, %d lines", asked, len(lines))
				require.LessOrEqual(t, asked, 80) // two for each try: a streamed list, and a plain one
				require.LessOrEqual(t, len(lines), 20)
				require.NotZero(t, asked, "nobody asks")
				require.NotEmpty(t, lines, "nobody says so")
				require.Equal(t, 200, p.stats().Parked)

				p.fail(nil)
				p.link.DelayWatches("secrets", 0)
				time.Sleep(2 * time.Minute)
				require.Zero(t, p.stats().Parked)
				_, lines = counts()
				require.LessOrEqual(t, len(lines), 20, "and none for each key at the end, either")
			})
		})
	}
}

// TestUnknownOutcomesShareFewLists lets each write of a hundred keys fail in a way that leaves open whether it has
// happened.
func TestUnknownOutcomesShareFewLists(t *testing.T) {
	inParish(t, 5, func(p *parish) {
		down := reconciletest.Refuse(apierrors.NewInternalError(fmt.Errorf("etcdserver: request timed out")))
		p.fail(func(r reconciletest.Request) reconciletest.Fault {
			if r.Writes() {
				return down
			}
			return nil
		})
		before := p.secrets.Health().Lists
		counts := p.since()
		began := time.Now()
		for i := range 100 {
			p.put(fmt.Sprint("m-", i), true)
			time.Sleep(37 * time.Millisecond)
			if i == 0 {
				for p.secrets.Health().Listed == before {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				require.LessOrEqual(t, time.Since(began), time.Second, "the first list comes soon")
			}
		}
		time.Sleep(10 * time.Minute)
		more := p.secrets.Health().Lists - before
		_, lines := counts()
		of := 0
		for _, line := range lines {
			if !strings.Contains(line, "Reconcile failed") {
				of++
			}
		}
		t.Logf("%d lists more, %d runs, %d lines", more, p.runs, of)
		require.LessOrEqual(t, more, 60)
		require.LessOrEqual(t, of, 20)
		p.mu.Lock()
		require.Greater(t, p.runs, 200, "each key has been tried again")
		p.mu.Unlock()

		p.fail(nil)
		p.put("m-0", true)
		time.Sleep(20 * time.Minute)
		require.Zero(t, p.stats().Parked)
	})
}
