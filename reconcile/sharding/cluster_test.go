package sharding

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile"
)

func TestMain(m *testing.M) {
	if os.Getenv("REPLICA") == "" {
		os.Exit(m.Run())
	}
	if err := runReplica(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, ErrStuck) {
			os.Exit(1)
		}
		os.Exit(2)
	}
	os.Exit(0)
}

// realSlices is how many slices the real processes share, and realLease the LeaseDuration of these.
const (
	realSlices = 12
	realLease  = 3 * time.Second
)

// runReplica is a controller until SIGTERM, whose replicas are all at work. There is a ConfigMap in each slice, and a
// run of its key stamps it into a file, a line every few milliseconds. The time in a line is from before the check: in
// a process that was paused after it the line itself may come at any time.
func runReplica() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	base, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	stamps, err := os.OpenFile(os.Getenv("STAMPS"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	namespace, name := os.Getenv("NAMESPACE"), os.Getenv("REPLICA")
	shards, err := New(Options{REST: base, Namespace: namespace, Name: "shards", Identity: name,
		By:     func(key types.NamespacedName) string { return key.Name },
		Slices: realSlices, LeaseDuration: realLease, RenewDeadline: 1500 * time.Millisecond,
		RetryPeriod: 400 * time.Millisecond, StopGrace: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	cfg, err := reconcile.ClientConfig(base, shards)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	maps, err := informer.New[*corev1.ConfigMap](clients.CoreV1().ConfigMaps(namespace),
		informer.Options[*corev1.ConfigMap]{LabelSelector: stamped.AsSelector()})
	if err != nil {
		return err
	}
	work := func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		now := time.Now()
		epoch, _ := shards.Epoch(ctx)
		if ctx.Err() != nil || !shards.Owns(key) {
			return reconcile.Result{}, ctx.Err()
		}
		_, err := fmt.Fprintf(stamps, "%d %s-%d %d\n", shards.Slice(key), name, epoch, now.UnixNano())
		lifecycle.Sleep(ctx, 10*time.Millisecond)
		return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, err
	}
	c, err := reconcile.NewController("stamps", reconcile.Func(work), reconcile.Options{Workers: realSlices,
		AllowHotLoops: true})
	if err != nil {
		return err
	}
	reconcile.For(c, maps)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: shards})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// stamped are the labels of what the controller of the processes reconciles.
var stamped = labels.Set{"stamped": "yes"}

// createStamped creates a ConfigMap in each slice.
func createStamped(t *testing.T, cfg *rest.Config, namespace string) {
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(namespace)
	for slice := range realSlices {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: keyOf(slice, realSlices).Name, Labels: stamped}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// A stamp is one line: who worked on a slice, under which epoch.
type stamp struct {
	slice int
	by    string
	at    time.Time
}

func parseStamp(line string) (s stamp, err error) {
	var at int64
	_, err = fmt.Sscanf(line, "%d %s %d\n", &s.slice, &s.by, &at)
	s.at = time.Unix(0, at)
	return s, err
}

// turns are who works on each slice, by stamps in the order in which they were written.
type turns map[int]*turn

type turn struct {
	by    string
	began time.Time
	ended map[string]bool
	owner int // how many there were
}

// add says what is wrong with a stamp: one of somebody who went on with a slice after another one had begun. A line
// that comes late, and was begun before the later one's first, is what a Lease cannot prevent: the one write in flight
// of a process that was paused.
func (all turns) add(s stamp) string {
	t := all[s.slice]
	if t == nil {
		t = &turn{ended: map[string]bool{}}
		all[s.slice] = t
	}
	switch {
	case s.by == t.by || t.ended[s.by] && s.at.Before(t.began):
		return ""
	case t.ended[s.by]:
		return fmt.Sprintf("%s worked on slice %d after %s had begun", s.by, s.slice, t.by)
	}
	t.owner++
	t.ended[t.by] = true
	t.by, t.began = s.by, s.at
	return ""
}

func overlaps(stamps []stamp) (owners int, broken []string) {
	all := turns{}
	for _, s := range stamps {
		if wrong := all.add(s); wrong != "" {
			broken = append(broken, wrong)
		}
	}
	for _, t := range all {
		owners += t.owner
	}
	return owners, broken
}

func TestStampsOverlapIsSeen(t *testing.T) {
	line := func(by string, at int64) stamp { return stamp{1, by, time.Unix(at, 0)} }
	n, broken := overlaps([]stamp{line("a", 1), line("a", 2), line("b", 3), {2, "a", time.Unix(4, 0)}})
	require.Equal(t, 3, n)
	require.Empty(t, broken)
	_, broken = overlaps([]stamp{line("a", 1), line("b", 2), line("a", 3)})
	require.Len(t, broken, 1)
	_, broken = overlaps([]stamp{line("a", 1), line("b", 3), line("a", 2), line("b", 4)})
	require.Empty(t, broken, "in flight while its process was paused")
}
