package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/deploy"
	"github.com/thermostat-go/thermostat/examples/etcd/load"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

// real is a control plane with nodes that run etcd as processes, and the operator with the rights of its role.
type real struct {
	*testing.T
	cluster   *cluster.Cluster
	namespace string
	pool      *processnode.Pool
	clusters  *informer.Resource[*v1.EtcdCluster]
	pods      *informer.Resource[*corev1.Pod]
	scheme    string // of the URLs of members
}

// newReal starts all of it, the operator in this process.
func newReal(t *testing.T, versions ...string) *real {
	w := newStage(t, nil, 3, versions...)
	w.operate()
	return w
}

// operate runs the operator in this process.
func (w *real) operate() { w.Cleanup(w.operateWith("")) }

// operateWith runs the operator with a version for clusters that name none. The function that it returns ends it.
func (w *real) operateWith(version v1.Version) (end func()) {
	cfg := w.cluster.Config()
	cfg.Impersonate.UserName = account
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, cfg, optionsWith(version)) }()
	return sync.OnceFunc(func() {
		stop()
		require.NoError(w, <-ended)
	})
}

func optionsWith(version v1.Version) options {
	return options{addresses: true, address: "0", snapshotImage: "snapshot", version: version,
		connect: func(c *tls.Config) members.Etcd { return members.Client{TLS: c} }}
}

// newStage starts all but the operator. The network, if there is one, connects the pods.
func newStage(t *testing.T, net *network.Network, nodes int, versions ...string) *real {
	images := map[string]processnode.Image{}
	for _, v := range versions {
		image, err := processnode.BuildModules(t.Context(), nil, "etcd",
			map[string]string{"etcd": "go.etcd.io/etcd/server/v3@v" + v, "etcdctl": "go.etcd.io/etcd/etcdctl/v3@v" + v,
				"etcdutl": "go.etcd.io/etcd/etcdutl/v3@v" + v})
		require.NoError(t, err)
		images["etcd:v"+v] = image
	}
	snapshot, err := processnode.BuildPackage(t.Context(), t.TempDir(), "./snapshot")
	require.NoError(t, err)
	images["snapshot"] = snapshot
	c := cluster.New(t, cluster.Options{DisableNode: true})
	for _, manifest := range []string{"namespace.yaml", "etcd.example.com_etcdclusters.yaml",
		"etcd.example.com_etcdbackups.yaml",
		"rbac.yaml"} {
		documents, err := fs.ReadFile(deploy.Manifests, manifest)
		require.NoError(t, err)
		list, err := cluster.Decode(documents)
		require.NoError(t, err)
		require.NoError(t, c.Apply(t.Context(), list...))
	}
	// An operator that finds no Lease waits, since a leader may have lost it. This one has been given back.
	now := metav1.NowMicro()
	_, err = c.Client().CoordinationV1().Leases(name).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new(""),
			LeaseDurationSeconds: new(int32(1)), AcquireTime: &now, RenewTime: &now}}, metav1.CreateOptions{})
	require.NoError(t, err)
	pool := processnode.New(t, c, processnode.Options{Nodes: nodes, AllPods: true, Images: images,
		RestartBackOff: 200 * time.Millisecond, Network: net})
	clusters, err := informer.NewResource[*v1.EtcdCluster](c.Config(), v1.GroupVersion.WithResource("etcdclusters"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	pods, err := informer.NewResource[*corev1.Pod](c.Config(), corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	return &real{t, c, c.Namespace(t), pool, clusters, pods, "http://"}
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
	list, err := w.pods.In(w.namespace).List(context.Background(), metav1.ListOptions{LabelSelector: v1.ClusterLabel})
	if err != nil {
		return nil
	}
	for _, pod := range list.Items {
		if pod.Status.PodIP != "" {
			urls = append(urls, w.scheme+pod.Status.PodIP+clientPort)
		}
	}
	return urls
}

// traffic is clients that read and write.
type traffic struct {
	w *real
	*load.Load
}

func (w *real) load() traffic { return w.loadWith(load.Options{}) }

// loadWith starts clients that leave most of the processors to the members and to the other tests, unless the options
// say otherwise.
func (w *real) loadWith(o load.Options) traffic {
	o.Endpoints = w.endpoints
	if o.Pause == 0 {
		o.Pause = 10 * time.Millisecond
	}
	return traffic{w, load.Start(w.Context(), o)}
}

// goesOn waits for n more writes.
func (l traffic) goesOn(n int) {
	for begin := l.Report().Writes.Done; l.Report().Writes.Done < begin+n; {
		<-time.After(50 * time.Millisecond)
	}
}

// check ends the load, and says what the clients have seen.
func (l traffic) check() {
	l.goesOn(100)
	report := l.Stop()
	require.Empty(l.w, report.Wrong)
	verdict := l.Judge(l.w.Context(), time.Minute)
	l.w.Log(verdict)
	require.Empty(l.w, verdict.Wrong)
	for _, of := range []struct {
		what string
		load.Count
	}{{"writes", report.Writes}, {"reads", report.Reads}} {
		l.w.Logf("%d %s, %d failed, longest gap %.2f s", of.Done, of.what, of.Failed, of.Gap.Seconds())
	}
}

// condition waits until a condition has a reason.
func (w *real) condition(condition, reason string) {
	var c metav1.Condition
	if !assert.Eventually(w, func() bool {
		now, err := w.clusters.In(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
		if err != nil {
			return false
		}
		c, _ = objects.FindCondition(now.Status.Conditions, condition)
		return c.Reason == reason
	}, time.Minute, 20*time.Millisecond) {
		w.Fatalf("%s is not %s, but %s: %s", condition, reason, c.Reason, c.Message)
	}
}

// differs waits until the operator has seen that a member is missing.
func (w *real) differs(what string) {
	w.Log(what)
	w.condition(v1.Degraded, v1.ReasonMissing)
}

// during does something while clients read and write, and says what they have seen.
func (w *real) during(do func()) {
	l := w.load()
	l.goesOn(100)
	do()
	l.check()
}

// restarted waits until the kubelet has seen that a member's process ended.
func (w *real) restarted(name string) {
	require.Eventually(w, func() bool {
		pod, err := w.pods.In(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
		return err == nil && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount > 0
	}, time.Minute, 20*time.Millisecond, "%s starts again", name)
}

// TestMembers kills a process, loses a disk, grows and shrinks, while clients read and write.
func TestMembers(t *testing.T) {
	t.Parallel()
	w := newReal(t, "3.6.16")
	w.create(3, "3.6.16")
	w.settles("three members")
	names := w.members()
	w.during(func() {
		require.NoError(t, w.pool.Kill(t.Context(), w.key(names[0]), container))
		w.restarted(names[0])
		w.settles("the process of the leader was killed")
	})
	w.during(func() {
		require.NoError(t, w.pool.LoseDisk(t.Context(), w.key(names[1])))
		w.differs("a disk is lost")
		w.settles("another member has replaced the one whose disk was lost")
	})
	w.during(func() {
		w.patch(`{"spec":{"size":5}}`)
		w.settles("five members")
		w.patch(`{"spec":{"size":3}}`)
		w.settles("three members again")
	})
}

// TestNode loses the leader's node for so long that another member takes its place, and gets the node back.
func TestNode(t *testing.T) {
	t.Parallel()
	w := newReal(t, "3.6.16")
	w.create(3, "3.6.16")
	w.patch(`{"spec":{"replaceAfterSeconds":10}}`)
	w.settles("three members")
	pod, err := w.pods.In(w.namespace).Get(t.Context(), w.members()[0], metav1.GetOptions{})
	require.NoError(t, err)
	i := slices.IndexFunc(w.pool.Nodes(), func(n *processnode.Node) bool { return n.Name == pod.Spec.NodeName })
	w.during(func() {
		require.NoError(t, w.pool.Nodes()[i].Stop(t.Context()))
		w.differs("a node is lost")
		w.settles("another member has replaced the one on the lost node")
	})
	require.NotContains(t, w.members(), pod.Name)
	require.NoError(t, w.pool.Nodes()[i].Start(t.Context()))
	require.Eventually(t, func() bool {
		_, err := w.pods.In(w.namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 50*time.Millisecond, "what the lost member left behind is deleted")
}

// TestNoSpace fills a database until etcd refuses writes, and deletes what fills it. The operator makes room.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	w := newReal(t, "3.6.16")
	_, err := w.clusters.In(w.namespace).Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.EtcdClusterSpec{Size: 3, Version: "3.6.16", Image: "etcd", QuotaBytes: 16 << 20}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	w.settles("three members with a quota of 16 MiB")
	c, err := clientv3.New(clientv3.Config{Endpoints: w.endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	defer c.Close()
	full := func() bool {
		for i := range 1000 {
			if _, err := c.Put(t.Context(), fmt.Sprintf("fill/%03d", i), strings.Repeat("x", 1<<18)); err != nil {
				return errors.Is(err, rpctypes.ErrNoSpace)
			}
		}
		return false
	}
	require.Eventually(t, full, 3*time.Minute, time.Second, "etcd refuses writes")
	w.condition(v1.Degraded, v1.ReasonAlarm)
	require.Eventually(t, func() bool {
		_, err := c.Delete(t.Context(), "fill/", clientv3.WithPrefix())
		return err == nil
	}, 3*time.Minute, time.Second, "keys can be deleted")
	now := w.settles("keys were deleted, and there is room again")
	for _, m := range now.Status.Members {
		require.Less(t, m.DBSize, int64(4<<20), "%s has been defragmented", m.Name)
	}
	require.Eventually(t, func() bool {
		_, err := c.Put(t.Context(), "again", "")
		return err == nil
	}, 3*time.Minute, time.Second, "etcd takes writes again")
}

// TestVersions goes up two minor versions and down one, while clients read and write.
func TestVersions(t *testing.T) {
	t.Parallel()
	w := newReal(t, "3.5.35", "3.6.16", "3.7.3")
	w.create(3, "3.5.35")
	w.settles("three members of 3.5.35")
	for _, version := range []string{"3.6.16", "3.7.3", "3.6.16"} {
		w.during(func() {
			w.patch(`{"spec":{"version":"` + version + `"}}`)
			now := w.settles("version " + version)
			require.Equal(t, version, now.Status.Version)
		})
		l := w.loadWith(load.Options{Pause: time.Millisecond})
		l.goesOn(4000) // until each member has a snapshot of this version
		l.Stop()
	}
}
