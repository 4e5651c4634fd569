package informer

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/netproxy"
)

// A follower is an informer of the pods of one namespace of a real control plane, and all that can be seen of it.
type follower struct {
	name  string
	inf   *SharedIndexInformer[*corev1.Pod]
	proxy *netproxy.Proxy
	told  *history
	log   *logLines

	mu      sync.Mutex
	reached string // guarded by mu, as is
	fell    error  // set if the store's version went back (I5)
}

// lists is how many lists the informer has begun, without the streamed one, which a server before 1.34 refuses.
func (f *follower) lists() int {
	if f.inf.health.plain.Load() {
		return f.inf.Health().Lists - 1
	}
	return f.inf.Health().Lists
}

// follow runs two informers for the rest of the test, each on connections of its own: one on a typed client, one that
// reads the bytes itself.
func follow(t *testing.T, config *rest.Config, namespace string, opts Options[*corev1.Pod]) []*follower {
	t.Helper()
	return []*follower{
		followOn(t, "typed", config, opts, func(through *rest.Config) Client[*corev1.PodList] {
			return kubernetes.NewForConfigOrDie(through).CoreV1().Pods(namespace)
		}),
		followOn(t, "Resource", config, opts, func(through *rest.Config) Client[*List[*corev1.Pod]] {
			pods, err := NewResource[*corev1.Pod](through, podsResource, ResourceOptions{})
			require.NoError(t, err)
			return pods.In(namespace)
		}),
	}
}

func followOn[L runtime.Object](t *testing.T, name string, config *rest.Config, opts Options[*corev1.Pod],
	on func(*rest.Config) Client[L]) *follower {
	t.Helper()
	p, through := netproxy.ForConfig(t, config)
	var err error
	opts.Name = name
	opts.DetectMutations = true
	f := &follower{name: name, proxy: p, log: &logLines{}}
	stale := opts.MaxStaleness
	opts.MaxStaleness = 0 // New refuses what is short enough to be waited for here
	f.inf, err = New[*corev1.Pod](on(through), opts)
	require.NoError(t, err)
	f.inf.health.maxStaleness = stale
	f.told = &history{inf: f.inf, rounds: rounds{}}
	_, err = f.inf.AddHandler(f.told.handle, HandlerOptions{Reached: func(_, resourceVersion string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if kube.Older(resourceVersion, f.reached) {
			f.fell = fmt.Errorf("the store's version went back from %s to %s", f.reached, resourceVersion)
		}
		f.reached = resourceVersion
	}})
	require.NoError(t, err)
	runLogged(t, f.inf, f.log)
	t.Cleanup(func() {
		require.NoError(t, f.told.err(), name)
		require.NoError(t, mutations(f.inf), name)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.NoError(t, f.fell, name)
	})
	return f
}

// runLogged runs an informer for the rest of the test, and collects what it logs.
func runLogged[T any](t *testing.T, inf *SharedIndexInformer[T], lines *logLines) {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(lines.add, funcr.Options{})))
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// logLines are what an informer logs without being asked to say more.
type logLines struct {
	about string // only lines that contain this are kept

	mu     sync.Mutex
	states []State  // guarded by mu; of each line about a state
	others []string // guarded by mu; the other lines
}

var stateInLine = regexp.MustCompile(`"state"="(\w+)"`)

func (l *logLines) add(_, line string) {
	if !strings.Contains(line, l.about) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if state := stateInLine.FindStringSubmatch(line); state != nil {
		l.states = append(l.states, State(state[1]))
	} else {
		l.others = append(l.others, line)
	}
}

// until waits for the line about a state: the state is known before its line is written. A busy machine may bring other
// states before it. Each change of the state has one line, however often the server was asked: no line repeats the one
// before.
func (l *logLines) until(t *testing.T, state State) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.states) > 0 && l.states[len(l.states)-1] == state
	}, inTime, 5*time.Millisecond, "a line that says %s", state)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, slices.Compact(slices.Clone(l.states)), l.states)
}

// alsoSays waits for n lines that are not about states, of which there are no more.
func (l *logLines) alsoSays(t *testing.T, n int) {
	t.Helper()
	others := func() []string {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.Clone(l.others)
	}
	require.Eventually(t, func() bool { return len(others()) >= n }, inTime, 5*time.Millisecond, "%d lines", n)
	require.Len(t, others(), n)
}

// for what takes moments on a machine that does nothing else; a wait between two tries is half of it at most
const inTime = time.Minute

// becomes waits until an informer is in a state.
func becomes[T any](t *testing.T, inf *SharedIndexInformer[T], state State) {
	t.Helper()
	require.Eventually(t, func() bool { return inf.Health().State == state }, inTime, 5*time.Millisecond,
		"%s should be %s", inf.Name(), state)
}

// agree waits until each follower's store holds what the server has, and its handler has been told of just that.
func agree(t *testing.T, followers []*follower, pods typedcorev1.PodInterface) {
	t.Helper()
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var want []string
	var exist []*corev1.Pod
	for i := range list.Items {
		want = append(want, list.Items[i].Name+"@"+list.Items[i].ResourceVersion)
		exist = append(exist, &list.Items[i])
	}
	slices.Sort(want)
	for _, f := range followers {
		var got []string
		require.Eventually(t, func() bool {
			got = nil
			for p := range f.inf.All() {
				got = append(got, p.Name+"@"+p.ResourceVersion)
			}
			slices.Sort(got)
			return slices.Equal(want, got) && f.told.folded(exist) == nil
		}, inTime, 5*time.Millisecond, "%s: %s", f.name, f.inf.Name())
		require.NoError(t, f.told.err(), f.name)
	}
}

// toldOnly checks what each follower's handler has been told since the last time, in any order. Pods are marked before
// they go: whether a handler has seen that, too, is a matter of chance.
func toldOnly(t *testing.T, followers []*follower, want ...string) {
	t.Helper()
	slices.Sort(want)
	for _, f := range followers {
		all := f.told.lines()
		got := slices.DeleteFunc(slices.Clone(all), func(line string) bool {
			name, update := strings.CutPrefix(line, "Updated ")
			return update && slices.ContainsFunc(all,
				func(other string) bool { return strings.HasPrefix(other, "Deleted "+name) })
		})
		slices.Sort(got)
		require.Equal(t, append([]string{}, want...), got, "%s: %s", f.name, f.inf.Health())
	}
}

// A tenant makes and changes the pods of a namespace, to which nobody else does anything.
type tenant struct {
	*testing.T
	pods typedcorev1.PodInterface
}

func (tn tenant) create(names ...string) {
	tn.Helper()
	for _, name := range names {
		_, err := tn.pods.Create(tn.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "main", Image: "none"}},
				// no node is to touch it
				SchedulingGates: []corev1.PodSchedulingGate{{Name: "thermostat.example/never"}},
			},
		}, metav1.CreateOptions{})
		require.NoError(tn, err)
	}
}

func (tn tenant) change(name string) { tn.Helper(); tn.annotate(name, random(10)) }

func (tn tenant) annotate(name, value string) {
	tn.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"note":%q}}}`, value)
	_, err := tn.pods.Patch(tn.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(tn, err)
}

func (tn tenant) delete(names ...string) {
	tn.Helper()
	for _, name := range names {
		require.NoError(tn, tn.pods.Delete(tn.Context(), name, *metav1.NewDeleteOptions(0)))
	}
}
