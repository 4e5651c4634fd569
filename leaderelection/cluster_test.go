package leaderelection

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	peer "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	events "k8s.io/client-go/tools/record"

	"github.com/thermostat-go/thermostat/internal/netproxy"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestHandOver measures how long nobody leads after the leader was asked to end. At the default periods, fifty each:
//
//	THERMOSTAT_SOAK=1 go test -run TestHandOver -v ./leaderelection/
func TestHandOver(t *testing.T) {
	t.Parallel()
	n := 4
	if soak() {
		n = 50
	}
	cluster := testcluster.Shared(t)
	began := make(chan time.Time, 2)
	lead := func(ctx context.Context) error {
		began <- time.Now()
		<-ctx.Done()
		return nil
	}
	for name, run := range map[string]func(ctx context.Context, namespace, identity string) error{
		"thermostat": func(ctx context.Context, namespace, identity string) error {
			c := Config{REST: cluster.Config(), Namespace: namespace, Name: "lock", Identity: identity,
				SkipFirstWait: true}
			if !soak() { // whoever waits for the next period waits for long
				c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 3*time.Minute, 2*time.Minute, 30*time.Second
			}
			e, err := New(c)
			if err != nil {
				return err
			}
			return e.Run(ctx, lead)
		},
		"client-go": func(ctx context.Context, namespace, identity string) error {
			client, err := coordinationclient.NewForConfig(cluster.Config())
			if err != nil {
				return err
			}
			e, err := peer.NewLeaderElector(peer.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lock"}, Client: client,
					LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
				},
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				ReleaseOnCancel: true,
				Callbacks: peer.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { _ = lead(ctx) },
					OnStoppedLeading: func() {}},
			})
			if err != nil {
				return err
			}
			e.Run(ctx)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			start := func(i int) (stop func()) {
				ctx, cancel := quiet(t)
				var running sync.WaitGroup
				running.Go(func() {
					if err := run(ctx, namespace, fmt.Sprintf("candidate-%d", i)); err != nil {
						t.Error(err)
					}
				})
				return func() { cancel(); running.Wait() }
			}
			stop := start(0)
			<-began
			var took []time.Duration
			for i := range n {
				next := start(i + 1)
				// until it watches, and anywhere between two polls
				time.Sleep(500*time.Millisecond + rand.N(time.Second))
				asked := time.Now()
				stop()
				took = append(took, (<-began).Sub(asked))
				stop = next
			}
			stop()
			slices.Sort(took)
			median, worst := took[len(took)/2], took[len(took)-1]
			t.Logf("%s: hand-over after a clean release: median %v, worst %v of %d", name,
				median.Round(time.Millisecond), worst.Round(time.Millisecond), n)
			if name == "thermostat" && !soak() {
				require.Less(t, median, 20*time.Second, "a watched release does not wait for a period")
			}
		})
	}
}

// documentedRules is the Role that the package doc tells people to make, for a Lease "my-controller", less the verbs
// that are missing.
func documentedRules(t *testing.T, missing ...string) []rbacv1.PolicyRule {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), "//\trules:\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "//\n")
	var role rbacv1.Role
	require.NoError(t, yaml.UnmarshalStrict([]byte("rules:\n"+strings.ReplaceAll(text, "//\t", "")), &role))
	for i := range role.Rules {
		role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs,
			func(verb string) bool { return slices.Contains(missing, verb) })
	}
	return slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 })
}

// requests counts requests by verb, and those that were denied.
type requests struct {
	mu           sync.Mutex
	made, denied map[string]int
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.made == nil {
			r.made, r.denied = map[string]int{}, map[string]int{}
		}
		r.made[verbOf(req)]++
		if err == nil && resp.StatusCode == http.StatusForbidden {
			r.denied[verbOf(req)]++
		}
		return resp, err
	})
}

// await waits until the counts are so. So is called with mu held.
func (r *requests) await(t *testing.T, so func() bool, message string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return so()
	}, time.Minute, 10*time.Millisecond, append([]any{message}, args...)...)
}

// TestPermissions runs with exactly the documented Role: nothing is denied and nothing of it is unused. Then with each
// verb missing.
func TestPermissions(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	elect := func(t *testing.T, namespace string, cfg *rest.Config, seen *requests) (e *Elector, led chan struct{},
		stop func() error) {
		cfg = rest.CopyConfig(cfg)
		cfg.Wrap(seen.wrap)
		e, err := New(Config{REST: cfg, Namespace: namespace, Name: "my-controller", SkipFirstWait: true,
			LeaseDuration: 3 * time.Minute, RenewDeadline: 2 * time.Minute})
		require.NoError(t, err)
		ctx, cancel := quiet(t)
		led, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- e.Run(ctx, func(ctx context.Context) error { close(led); <-ctx.Done(); return nil }) }()
		return e, led, func() error { cancel(); return <-done }
	}
	t.Run("all", func(t *testing.T) {
		namespace := cluster.Namespace(t)
		rules := documentedRules(t)
		cfg, err := cluster.ServiceAccount(t.Context(), namespace, rules...)
		require.NoError(t, err)
		seen := &requests{}
		_, led, stop := elect(t, namespace, cfg, seen)
		<-led
		_, led2, stop2 := elect(t, namespace, cfg, seen)
		for _, rule := range rules {
			for _, verb := range rule.Verbs {
				seen.await(t, func() bool { return seen.made[verb] > 0 }, "%s is in the Role and was not used", verb)
			}
		}
		asked := time.Now()
		require.NoError(t, stop())
		<-led2
		require.Less(t, time.Since(asked), 2*time.Minute, "it was released, and has not expired")
		require.NoError(t, stop2())
		require.Empty(t, seen.denied)
		granted := map[string]int{}
		for _, rule := range rules {
			for _, verb := range rule.Verbs {
				granted[verb]++
			}
		}
		require.Len(t, seen.made, len(granted))
	})
	for _, missing := range []string{"create", "get", "update"} {
		t.Run("without "+missing, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			cfg, err := cluster.ServiceAccount(t.Context(), namespace, documentedRules(t, missing)...)
			require.NoError(t, err)
			makeOne := func() {
				_, err := cluster.Client().CoordinationV1().Leases(namespace).Create(t.Context(),
					&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "my-controller"}}, metav1.CreateOptions{})
				require.NoError(t, err, "a Lease with an empty spec may be made in advance")
			}
			if missing == "update" {
				makeOne()
			}
			seen := &requests{}
			_, _, stop := elect(t, namespace, cfg, seen)
			// When it is refused again it has noted that it was refused.
			seen.await(t, func() bool { return seen.denied[missing] > 1 }, "%s is tried again", missing)
			err = stop()
			var denied *DeniedError
			require.ErrorAs(t, err, &denied)
			require.Equal(t, missing, denied.Verb)
			t.Log(err)
			if missing == "create" {
				makeOne()
				_, led, stop := elect(t, namespace, cfg, &requests{})
				<-led
				require.NoError(t, stop())
			}
		})
	}
	t.Run("without watch", func(t *testing.T) {
		namespace := cluster.Namespace(t)
		cfg, err := cluster.ServiceAccount(t.Context(), namespace, documentedRules(t, "watch")...)
		require.NoError(t, err)
		seen := &requests{}
		_, led, stop := elect(t, namespace, cfg, seen)
		<-led
		_, led2, stop2 := elect(t, namespace, cfg, seen)
		time.Sleep(time.Second)
		asked := time.Now()
		require.NoError(t, stop())
		<-led2
		require.Less(t, time.Since(asked), time.Minute, "polling takes over")
		require.NoError(t, stop2())
	})
}

// TestEventsAreRecorded uses the recorder of client-go, which may do no more than the package doc says.
func TestEventsAreRecorded(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	cfg, err := cluster.ServiceAccount(t.Context(), namespace,
		append(documentedRules(t), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"},
			Verbs: []string{"create", "patch"}})...)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	broadcaster := events.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&coreclient.EventSinkImpl{Interface: client.CoreV1().Events("")})
	e, err := New(Config{
		REST: cfg, Namespace: namespace, Name: "my-controller", SkipFirstWait: true,
		Events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "my-controller"}),
	})
	require.NoError(t, err)
	ctx, cancel := quiet(t)
	defer cancel()
	for range 2 {
		require.NoError(t, e.Run(ctx, func(context.Context) error { return nil }))
	}
	// the second time is a patch of the first
	want := map[string]int32{e.Identity() + " became leader": 2, e.Identity() + " stopped leading": 2}
	require.Eventually(t, func() bool {
		recorded, err := cluster.Client().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		got := map[string]int32{}
		for _, event := range recorded.Items {
			require.Equal(t, "Lease", event.InvolvedObject.Kind)
			got[event.Message] += event.Count
		}
		return maps.Equal(got, want)
	}, time.Minute, 100*time.Millisecond)
}

// TestRecordIsClientGos reads our record with client-go's lock, and a Lease of client-go's with ours.
func TestRecordIsClientGos(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	leases := cluster.Client().CoordinationV1().Leases(namespace)
	e, err := New(Config{REST: cluster.Config(), Namespace: namespace, Name: "lock", Identity: "us",
		SkipFirstWait: true})
	require.NoError(t, err)
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lock"},
		Client: cluster.Client().CoordinationV1()}
	ctx, cancel := quiet(t)
	defer cancel()
	require.NoError(t, e.Run(ctx, func(ctx context.Context) error {
		record, _, err := lock.Get(ctx)
		require.NoError(t, err)
		require.Equal(t, e.Identity(), record.HolderIdentity)
		require.Equal(t, 15, record.LeaseDurationSeconds)
		require.Equal(t, 0, record.LeaderTransitions)
		require.WithinDuration(t, time.Now(), record.AcquireTime.Time, time.Minute)
		require.False(t, record.RenewTime.Before(&record.AcquireTime))
		return nil
	}))
	ours, err := leases.Get(ctx, "lock", metav1.GetOptions{})
	require.NoError(t, err)

	// What client-go writes when it releases is what we write, the times apart.
	theirs := resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, AcquireTime: metav1.Now(), RenewTime: metav1.Now(),
	})
	theirs.AcquireTime, theirs.RenewTime = ours.Spec.AcquireTime, ours.Spec.RenewTime
	require.Equal(t, theirs, ours.Spec)
	require.True(t, isReleased(ours))
}

// A group is some candidates, each a process of its own behind a proxy of its own, that stamp their work into one file.
type group struct {
	*testing.T
	cluster   *testcluster.Cluster
	namespace string
	stamps    string
	members   []*member
}

type member struct {
	name    string
	proxy   *netproxy.Proxy
	process *testcluster.Process
	command testcluster.Command
}

func newGroup(t *testing.T, cluster *testcluster.Cluster, short bool, kinds ...string) *group {
	g := &group{T: t, cluster: cluster, namespace: cluster.Namespace(t), stamps: filepath.Join(t.TempDir(), "stamps")}
	require.NoError(t, os.WriteFile(g.stamps, nil, 0o600))
	g.join(short, kinds...)
	return g
}

func (g *group) join(short bool, kinds ...string) {
	binary, err := os.Executable()
	require.NoError(g, err)
	for _, kind := range kinds {
		p, cfg := netproxy.ForConfig(g.T, g.cluster.Config())
		name := fmt.Sprintf("%s-%d", strings.ReplaceAll(kind, "-", ""), len(g.members))
		kubeconfig := filepath.Join(g.TempDir(), name)
		require.NoError(g, testcluster.WriteKubeconfig(kubeconfig, cfg))
		m := &member{name: name, proxy: p, command: testcluster.Command{Name: g.namespace + "-" + name, Path: binary,
			Env: []string{
				"CANDIDATE=" + kind, "NAME=" + name, "KUBECONFIG=" + kubeconfig, "NAMESPACE=" + g.namespace,
				"STAMPS=" + g.stamps,
			}}}
		if short {
			m.command.Env = append(m.command.Env, "SHORT=1")
		}
		g.start(m)
		g.members = append(g.members, m)
	}
}

func (g *group) start(m *member) {
	var err error
	m.process, err = g.cluster.Run(g.Context(), m.command)
	require.NoError(g, err)
}

// order tells a member's process something. One that has ended by itself is started again instead, as a kubelet would:
// its work had to end and did not, because it was paused just then, or got no processor. order reports whether the
// process was told.
func (g *group) order(m *member, tell func(context.Context) error) bool {
	err := tell(g.Context())
	if err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
	defer cancel()
	status, running := m.process.Wait(ctx)
	require.NoError(g, running, "%v", err)
	require.Equal(g, "exit status 1", status, "only ExitIfStuck may end a candidate: see %s", m.process.Log)
	g.start(m)
	return false
}

// A stamp line is what one of them did.
type stampLine struct {
	checked bool
	tenure  string
	at      time.Time
}

func (g *group) read() []stampLine {
	raw, err := os.ReadFile(g.stamps)
	require.NoError(g, err)
	return stampLines(raw)
}

func stampLines(raw []byte) (lines []stampLine) {
	for line := range bytes.Lines(raw) {
		var kind, tenure string
		var at int64
		// the last line may not be finished
		if n, _ := fmt.Sscanf(string(line), "%s %s %d\n", &kind, &tenure, &at); n == 3 {
			lines = append(lines, stampLine{kind == "w", tenure, time.Unix(0, at)})
		}
	}
	return lines
}

// leader returns who stamped last; nil if nobody did. It reads no more than the end of the file: on a busy machine it
// would take longer to read all of it than what is there then is true.
func (g *group) leader() *member {
	file, err := os.Open(g.stamps)
	require.NoError(g, err)
	defer file.Close()
	info, err := file.Stat()
	require.NoError(g, err)
	end := make([]byte, min(info.Size(), 4096))
	_, err = file.ReadAt(end, info.Size()-int64(len(end)))
	require.NoError(g, err)
	if len(end) < int(info.Size()) { // the first line is cut off
		_, end, _ = bytes.Cut(end, []byte("\n"))
	}
	lines := stampLines(end)
	if len(lines) == 0 {
		return nil
	}
	for _, m := range g.members {
		if strings.HasPrefix(lines[len(lines)-1].tenure, m.name) {
			return m
		}
	}
	return nil
}

func (g *group) await(who func(*member) bool, within time.Duration) *member {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if m := g.leader(); m != nil && who(m) {
			return m
		}
	}
	require.FailNow(g, "nobody leads")
	return nil
}

// overlapsIn returns the tenures that went on after a later one had begun, in the order of the file. A line that comes
// late, and was begun before the later tenure was, is what a Lease cannot prevent: the one write in flight of a process
// that was paused.
func overlapsIn(lines []stampLine, counts func(stampLine) bool) (tenures int, broken []string) {
	ended := map[string]bool{}
	current, began := "", time.Time{}
	for _, l := range lines {
		if !counts(l) || l.tenure == current || ended[l.tenure] && l.at.Before(began) {
			continue
		}
		if ended[l.tenure] {
			broken = append(broken, fmt.Sprintf("%s worked after %s had begun", l.tenure, current))
		} else {
			tenures++
		}
		ended[current] = true
		current, began = l.tenure, l.at
	}
	return tenures, broken
}

func TestStampsOverlapIsSeen(t *testing.T) {
	line := func(tenure string, at int64) stampLine { return stampLine{true, tenure, time.Unix(at, 0)} }
	all := func(stampLine) bool { return true }
	n, broken := overlapsIn([]stampLine{line("a", 1), line("a", 2), line("b", 3), line("c", 4)}, all)
	require.Equal(t, 3, n)
	require.Empty(t, broken)
	_, broken = overlapsIn([]stampLine{line("a", 1), line("b", 2), line("a", 3), line("b", 4)}, all)
	require.Len(t, broken, 2)
	_, broken = overlapsIn([]stampLine{line("a", 1), line("b", 3), line("a", 2), line("b", 4)}, all)
	require.Empty(t, broken, "in flight while its process was paused")
}

// TestKilledLeader measures how long nobody works after kill -9, at the default durations.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	kinds := []string{"thermostat"}
	n := 1
	if soak() {
		kinds, n = append(kinds, "client-go"), 5
	}
	cluster := testcluster.Shared(t)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, cluster, false, kind, kind)
			var took []string
			for range n {
				dead := g.await(func(*member) bool { return true }, time.Minute)
				time.Sleep(2500 * time.Millisecond)
				require.NoError(t, dead.process.Kill(t.Context()))
				killed := time.Now()
				g.await(func(m *member) bool { return m != dead }, time.Minute)
				took = append(took, time.Since(killed).Round(100*time.Millisecond).String())
				if kind == "thermostat" {
					// LeaseDuration, two RetryPeriods and the time of a try, 22 s: exact in virtual time, and with room
					// here, as a busy machine may take that long for a try that counts.
					require.Less(t, time.Since(killed), time.Minute)
				}
				var err error
				dead.process, err = dead.process.Restart(t.Context())
				require.NoError(t, err)
			}
			t.Logf("%s: next leader after kill -9, LeaseDuration 15s: %s", kind, strings.Join(took, ", "))
		})
	}
}

// TestChaos has three processes behind proxies contend for a minute (ten with THERMOSTAT_SOAK=1) while links stall and
// break, processes are paused, killed and asked to end, and the API server is restarted. All work is stamped into one
// file.
func TestChaos(t *testing.T) {
	t.Parallel()
	length := time.Minute
	if soak() {
		length = 10 * time.Minute
	}
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true})
	g := newGroup(t, cluster, true, "thermostat", "thermostat", "thermostat")
	g.await(func(*member) bool { return true }, time.Minute)
	did := g.disturb(length, func(m *member, r *rand.Rand) string {
		if r.IntN(20) == 0 {
			require.NoError(t, cluster.Kill(t.Context(), testcluster.APIServer))
			require.NoError(t, cluster.Restart(t.Context(), testcluster.APIServer))
			return "API server restarted"
		}
		return ""
	})
	lines := g.read()
	tenures, broken := overlapsIn(lines, func(l stampLine) bool { return l.checked })
	for more := 0; tenures <= 4 && more < 5; more++ { // little happens in a minute of a busy machine
		g.disturb(time.Minute, func(*member, *rand.Rand) string { return "" })
		lines = g.read()
		tenures, broken = overlapsIn(lines, func(l stampLine) bool { return l.checked })
	}
	_, unchecked := overlapsIn(lines, func(stampLine) bool { return true })
	t.Logf("%v, %d stamps, %d tenures, 0 overlaps wanted, %d found (of work that nobody checked, after pauses, %d); %v",
		length, len(lines), tenures, len(broken), len(unchecked), did)
	require.Empty(t, broken)
	require.Greater(t, tenures, 4)
}

// disturb lets something happen every few seconds, most of it to whoever leads, and undoes it again.
func (g *group) disturb(length time.Duration, extra func(*member, *rand.Rand) string) map[string]int {
	r, did := rand.New(rand.NewPCG(6, 2)), map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(rand.N(2 * time.Second))
		for _, m := range g.members {
			select {
			case <-m.process.Ended():
				g.order(m, m.process.Continue)
				did["was stuck"]++
			default:
			}
		}
		m := g.leader()
		if m == nil || r.IntN(4) == 0 {
			m = g.members[r.IntN(len(g.members))]
		}
		what := extra(m, r)
		if what == "" {
			pause := time.Duration(r.Int64N(int64(2 * shortLease)))
			switch r.IntN(5) {
			case 0:
				what = "stall"
				m.proxy.Stall(true)
				time.Sleep(pause)
				m.proxy.Stall(false)
			case 1:
				what = "break"
				m.proxy.Break()
			case 2:
				what = "SIGSTOP"
				if g.order(m, m.process.Stop) {
					time.Sleep(pause)
					require.NoError(g, m.process.Continue(g.Context()))
				}
			case 3:
				what = "SIGKILL"
				if g.order(m, m.process.Kill) {
					g.start(m)
				}
			case 4:
				what = "SIGTERM"
				if g.order(m, m.process.Terminate) {
					g.start(m)
				}
			}
		}
		did[what]++
	}
	return did
}

// TestMixedGroup has our electors and client-go's contend for one Lease. Ours must never take a record that a client-go
// elector holds, and two of ours must never work at once; the overlaps that client-go's own rules allow are counted
// apart.
func TestMixedGroup(t *testing.T) {
	t.Parallel()
	length := 20 * time.Second
	if soak() {
		length = 5 * time.Minute
	}
	cluster := testcluster.Shared(t)
	g := newGroup(t, cluster, true, "client-go")
	stomped, handovers := g.watchTakes()
	first := g.await(func(*member) bool { return true }, time.Minute)
	g.join(true, "thermostat", "thermostat")
	time.Sleep(2 * shortLease)
	require.Empty(t, stomped(), "of a client-go elector that is alive")
	require.NoError(t, first.process.Kill(t.Context()))
	g.await(func(m *member) bool { return m != first }, time.Minute)
	// A client-go elector that renews too late, as it may on a busy machine, loses its lead earlier, but by right.
	require.Eventually(t, func() bool {
		all := handovers()
		return all["client-go -> thermostat"]+all["client-go -> nobody"] > 0
	}, time.Minute, 10*time.Millisecond, "there was one to be stomped on")
	g.start(first)
	g.join(true, "client-go")
	did := g.disturb(length, func(*member, *rand.Rand) string { return "" })
	lines := g.read()
	_, broken := overlapsIn(lines, func(l stampLine) bool {
		return l.checked &&
			strings.HasPrefix(l.tenure, "thermostat")
	})
	tenures, all := overlapsIn(lines, func(l stampLine) bool { return l.checked })
	t.Logf("%v: %d tenures, records taken %v, overlaps of ours %d, with client-go in them %d; %v", length, tenures,
		handovers(), len(broken), len(all), did)
	require.Empty(t, broken)
	require.Empty(t, stomped())
}

// watchTakes follows the Lease and notes who took it from whom. A take of ours from a client-go elector counts as
// stomping unless its record had stood for LeaseDuration, less the drift: by this watch, which may be late, or by the
// times in the records, which are of one clock and from before the requests.
func (g *group) watchTakes() (stomped func() []string, takes func() map[string]int) {
	var mu sync.Mutex
	var bad []string
	counts := map[string]int{}
	kindOf := func(holder string) string {
		switch kind, _, _ := strings.Cut(holder, "-"); kind { // the first part of a member's name
		case "clientgo":
			return "client-go"
		case "":
			return "nobody"
		default:
			return kind
		}
	}
	leases := g.cluster.Client().CoordinationV1().Leases(g.namespace)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	w, err := leases.Watch(ctx, metav1.ListOptions{})
	require.NoError(g, err)
	g.Cleanup(func() { cancel(); w.Stop(); watching.Wait() })
	watching.Go(func() {
		before, since, renewed := "", time.Now(), metav1.MicroTime{}
		for event := range w.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok || event.Type == watch.Error {
				break
			}
			holder := value(lease.Spec.HolderIdentity)
			stood := max(time.Since(since)+200*time.Millisecond, value(lease.Spec.AcquireTime).Sub(renewed.Time))
			mu.Lock()
			if holder != before {
				from, to := kindOf(before), kindOf(holder)
				counts[from+" -> "+to]++
				if from == "client-go" && to == "thermostat" && stood < scale(shortLease, 0.95) {
					bad = append(bad, fmt.Sprintf("%s took the record of %s after %v", holder, before, stood))
				}
			}
			mu.Unlock()
			before, since, renewed = holder, time.Now(), value(lease.Spec.RenewTime)
		}
		if ctx.Err() == nil {
			mu.Lock()
			defer mu.Unlock()
			bad = append(bad, "nobody saw what was done after the watch had ended")
		}
	})
	return func() []string { mu.Lock(); defer mu.Unlock(); return bad },
		func() map[string]int { mu.Lock(); defer mu.Unlock(); return maps.Clone(counts) }
}
