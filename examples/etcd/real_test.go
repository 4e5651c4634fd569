package main

import (
	"context"
	"fmt"
	"io/fs"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/deploy"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

// real is a control plane with nodes that run etcd as processes, and the operator with the rights of its role.
type real struct {
	*testing.T
	namespace string
	pool      *processnode.Pool
	clusters  *informer.Resource[*v1.EtcdCluster]
	pods      *informer.Resource[*corev1.Pod]
}

func newReal(t *testing.T, versions ...string) *real {
	images := map[string]processnode.Image{}
	for _, v := range versions {
		image, err := processnode.BuildModules(t.Context(), nil, "etcd",
			map[string]string{"etcd": "go.etcd.io/etcd/server/v3@v" + v, "etcdctl": "go.etcd.io/etcd/etcdctl/v3@v" + v,
				"etcdutl": "go.etcd.io/etcd/etcdutl/v3@v" + v})
		require.NoError(t, err)
		images["etcd:v"+v] = image
	}
	c := cluster.New(t, cluster.Options{DisableNode: true})
	for _, manifest := range []string{"namespace.yaml", "etcd.example.com_etcdclusters.yaml", "rbac.yaml"} {
		documents, err := fs.ReadFile(deploy.Manifests, manifest)
		require.NoError(t, err)
		list, err := cluster.Decode(documents)
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), list...))
	}
	pool := processnode.New(t, c, processnode.Options{Nodes: 3, AllPods: true, Images: images,
		RestartBackOff: 200 * time.Millisecond})
	clusters, err := informer.NewResource[*v1.EtcdCluster](c.Config(), v1.GroupVersion.WithResource("etcdclusters"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	pods, err := informer.NewResource[*corev1.Pod](c.Config(), corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	w := &real{t, c.Namespace(t), pool, clusters, pods}
	cfg := c.Config()
	cfg.Impersonate.UserName = account
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, cfg, options{addresses: true, address: "0", etcd: members.Client{}}) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return w
}

func (w *real) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

func (w *real) create(size int32, version v1.Version) {
	_, err := w.clusters.In(w.namespace).Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.EtcdClusterSpec{Size: size, Version: version, Image: "etcd"}}, metav1.CreateOptions{})
	require.NoError(w, err)
}

func (w *real) patch(patch string) {
	_, err := w.clusters.In(w.namespace).Patch(w.Context(), "a", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	require.NoError(w, err)
}

// settles waits until the operator has nothing more to do, and returns how long that took.
func (w *real) settles(what string) (now *v1.EtcdCluster) {
	begin := time.Now()
	settled := func() bool {
		var err error
		now, err = w.clusters.In(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
		require.NoError(w, err)
		p, _ := objects.FindCondition(now.Status.Conditions, v1.Progressing)
		d, _ := objects.FindCondition(now.Status.Conditions, v1.Degraded)
		return p.Reason == "Done" && p.ObservedGeneration == now.Generation && d.Reason == v1.ReasonHealthy
	}
	for !settled() {
		if time.Since(begin) > 3*time.Minute {
			for _, c := range now.Status.Conditions {
				w.Logf("%s %s: %s", c.Type, c.Status, c.Message)
			}
			w.Fatalf("%s: not settled: %+v", what, now.Status)
		}
		<-time.After(50 * time.Millisecond)
	}
	w.Logf("%s: %.1f s", what, time.Since(begin).Seconds())
	return now
}

// members returns the names of the members, the leader first.
func (w *real) members() (names []string) {
	now := w.settles("a look at the members")
	for _, m := range now.Status.Members {
		names = append(names, m.Name)
		if m.Name == now.Status.Leader {
			names[0], names[len(names)-1] = names[len(names)-1], names[0]
		}
	}
	return names
}

// endpoints are the addresses of all pods, as the Service of a real cluster has them.
func (w *real) endpoints() (urls []string) {
	list, err := w.pods.In(w.namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, pod := range list.Items {
		if pod.Status.PodIP != "" {
			urls = append(urls, clientURL(peerURL(pod.Status.PodIP)))
		}
	}
	return urls
}

// load writes until it is stopped: each key once, one write after the other.
type load struct {
	w            *real
	stop         context.CancelFunc
	ended        chan struct{}
	acknowledged []string
	count        atomic.Int64 // of acknowledged writes
	failed       int
	gap          time.Duration // the longest time between two acknowledged writes
}

func (w *real) load() *load {
	ctx, stop := context.WithCancel(w.Context())
	l := &load{w: w, stop: stop, ended: make(chan struct{})}
	go l.run(ctx)
	return l
}

func (l *load) run(ctx context.Context) {
	defer close(l.ended)
	var c *clientv3.Client
	last := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		if c == nil {
			var err error
			if c, err = clientv3.New(clientv3.Config{Endpoints: l.w.endpoints(), Logger: zap.NewNop()}); err != nil {
				l.failed++
				continue
			}
		}
		key := fmt.Sprintf("key-%06d", i)
		try, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := c.Put(try, key, key)
		cancel()
		if err != nil { // the members may be others by now
			l.failed++
			c.Close()
			c = nil
			continue
		}
		l.acknowledged = append(l.acknowledged, key)
		l.count.Add(1)
		l.gap, last = max(l.gap, time.Since(last)), time.Now()
	}
	if c != nil {
		c.Close()
	}
}

// goesOn waits for n more writes.
func (l *load) goesOn(n int64) {
	for begin := l.count.Load(); l.count.Load() < begin+n; {
		<-time.After(50 * time.Millisecond)
	}
}

// check ends the load, and compares what was acknowledged with what is there.
func (l *load) check() {
	l.stop()
	<-l.ended
	c, err := clientv3.New(clientv3.Config{Endpoints: l.w.endpoints(), Logger: zap.NewNop()})
	require.NoError(l.w, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(l.w.Context(), time.Minute)
	defer cancel()
	all, err := c.Get(ctx, "key-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(l.w, err)
	there := map[string]bool{}
	for _, kv := range all.Kvs {
		there[string(kv.Key)] = true
	}
	lost := 0
	for _, key := range l.acknowledged {
		if !there[key] {
			lost++
		}
	}
	require.Zero(l.w, lost, "acknowledged writes are lost")
	require.NotEmpty(l.w, l.acknowledged)
	l.w.Logf("%d writes acknowledged and none of them lost, %d failed, longest gap %.2f s", len(l.acknowledged),
		l.failed,
		l.gap.Seconds())
}

// differs waits until the cluster has begun to change.
func (w *real) differs(what string) {
	require.Eventually(w, func() bool {
		now, err := w.clusters.In(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
		d, _ := objects.FindCondition(now.Status.Conditions, v1.Degraded)
		return err == nil && d.Status == metav1.ConditionTrue
	}, time.Minute, 20*time.Millisecond, what)
}

// TestMembers kills a process, loses a disk, grows and shrinks, while a client writes.
func TestMembers(t *testing.T) {
	w := newReal(t, "3.6.16")
	w.create(3, "3.6.16")
	w.settles("three members")
	l := w.load()
	names := w.members()
	require.NoError(t, w.pool.Kill(t.Context(), w.key(names[0]), container))
	w.settles("the process of the leader was killed")
	require.NoError(t, w.pool.LoseDisk(t.Context(), w.key(names[1])))
	w.differs("a disk is lost")
	w.settles("another member has replaced the one whose disk was lost")
	w.patch(`{"spec":{"size":5}}`)
	w.settles("five members")
	w.patch(`{"spec":{"size":3}}`)
	w.settles("three members again")
	l.check()
}

// TestVersions goes up two minor versions and down one, while a client writes.
func TestVersions(t *testing.T) {
	w := newReal(t, "3.5.35", "3.6.16", "3.7.3")
	w.create(3, "3.5.35")
	w.settles("three members of 3.5.35")
	for _, version := range []string{"3.6.16", "3.7.3", "3.6.16"} {
		l := w.load()
		w.patch(`{"spec":{"version":"` + version + `"}}`)
		now := w.settles("version " + version)
		require.Equal(t, version, now.Status.Version)
		l.goesOn(4000) // until each member has a snapshot of this version
		l.check()
	}
}
