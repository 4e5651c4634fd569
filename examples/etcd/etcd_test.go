package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/deploy"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// account is the user name of the operator's service account.
var account = reconciletest.ServiceAccount(name, name)

// start runs the operator with the fake etcd, without listening on the network.
func start(ctx context.Context, cfg *rest.Config) error {
	err := run(ctx, cfg, options{address: "0", snapshotImage: "snapshot",
		connect: func(c *tls.Config) members.Etcd { return fakeClient{c} }})
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil // the test has ended before the operator had started
	}
	return err
}

// serverOptions are those of a server with the manifests.
func serverOptions(t testing.TB) reconciletest.Options {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, deploy.Manifests))
	return reconciletest.Options{
		CRDs: []string{filepath.Join(dir, "etcd.example.com_etcdclusters.yaml"),
			filepath.Join(dir, "etcd.example.com_etcdbackups.yaml")},
		Roles: []string{filepath.Join(dir, "rbac.yaml")}, Rules: cel.Rules{}, Namespaces: []string{"default", name},
	}
}

// world is a server in memory with the operator and a fake etcd, as a test sees it.
type world struct {
	*testing.T
	server   *reconciletest.Server
	link     *reconciletest.Link // of the operator
	clusters *informer.Resource[*v1.EtcdCluster]
	pods     *informer.Resource[*corev1.Pod]
	claims   *informer.Resource[*corev1.PersistentVolumeClaim]
}

func clientOf[T informer.Object](t *testing.T, server *reconciletest.Server,
	gvr schema.GroupVersionResource) *informer.Resource[T] {
	client, err := informer.NewResource[T](server.Config(), gvr, informer.ResourceOptions{})
	require.NoError(t, err)
	return client.In("default")
}

// inMemory runs a test in virtual time.
func inMemory(t *testing.T, test func(w *world)) {
	inMemoryWith(t, func(ctx context.Context, link *reconciletest.Link) error {
		err := leaderelection.ErrLost
		for errors.Is(err, leaderelection.ErrLost) { // Kubernetes starts it again
			err = start(ctx, link.Config())
		}
		return err
	}, test)
}

// inMemoryWith has an operator of the test's own.
func inMemoryWith(t *testing.T, operate func(ctx context.Context, link *reconciletest.Link) error,
	test func(w *world)) {
	options := serverOptions(t)
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, options)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		defer func() { // also after a failure: no goroutine may outlive the test
			stop()
			require.NoError(t, errors.Join(<-ended, <-ended))
			require.Empty(t, etcd.now.mistakes())
		}()
		go func() { ended <- kubelet(ctx, server.Config()) }()
		link := server.LinkAs(account)
		go func() { ended <- operate(ctx, link) }()
		core := corev1.SchemeGroupVersion
		test(&world{t, server, link, clientOf[*v1.EtcdCluster](t, server, v1.GroupVersion.WithResource("etcdclusters")),
			clientOf[*corev1.Pod](t, server, core.WithResource("pods")),
			clientOf[*corev1.PersistentVolumeClaim](t, server, core.WithResource("persistentvolumeclaims"))})
	})
}

func (w *world) create(size int32, version v1.Version) {
	_, err := w.clusters.Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.EtcdClusterSpec{Size: size, Version: version}}, metav1.CreateOptions{})
	require.NoError(w, err)
}

func (w *world) patch(patch string) error {
	_, err := w.clusters.Patch(w.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// settled returns an error unless the operator has nothing more to do, and all members are there.
func settled(s *reconciletest.Server, size int32, version v1.Version) error {
	now, ok := reconciletest.Get[*v1.EtcdCluster](s, "etcdclusters.etcd.example.com", "default", "a")
	if !ok {
		return errors.New("there is no EtcdCluster")
	}
	p, _ := objects.FindCondition(now.Status.Conditions, v1.Progressing)
	pods := ofMembers(reconciletest.List[*corev1.Pod](s, "pods", "default"))
	claims := ofMembers(reconciletest.List[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default"))
	words := reconciletest.List[*corev1.ConfigMap](s, "configmaps", "default")
	if p.Reason != "Done" || now.Status.ObservedGeneration != now.Generation || now.Status.Voters != size ||
		now.Status.Ready != size || now.Status.Version != string(version) || len(pods) != int(size) ||
		len(claims) != int(size) || len(words) != int(size) {
		return fmt.Errorf("%d pods, %d claims, %d words, %+v", len(pods), len(claims), len(words), now.Status)
	}
	for _, word := range words {
		if word.Annotations[wordNote] != "Restart" {
			return fmt.Errorf("%s may begin on an empty disk", word.Name)
		}
	}
	return nil
}

// ofMembers returns the objects that have the label of an EtcdCluster.
func ofMembers[T metav1.Object](all []T) []T {
	return slices.DeleteFunc(all, func(o T) bool { return o.GetLabels()[v1.ClusterLabel] == "" })
}

// settles waits up to 10 minutes.
func (w *world) settles(size int32, version v1.Version) {
	w.Helper()
	var last error
	for range 600 {
		time.Sleep(time.Second)
		if last = settled(w.server, size, version); last == nil {
			return
		}
	}
	w.Fatal(last)
}

func (w *world) status() v1.EtcdClusterStatus {
	now, err := w.clusters.Get(w.Context(), "a", metav1.GetOptions{})
	require.NoError(w, err)
	return now.Status
}

func (w *world) is(condition, reason string) {
	w.Helper()
	c, _ := objects.FindCondition(w.status().Conditions, condition)
	require.Equal(w, reason, c.Reason, "%s: %s", condition, c.Message)
}

func TestBehaviours(t *testing.T) {
	for what, test := range map[string]func(w *world){
		"three members": func(w *world) {
			w.settles(3, "3.6.16")
			w.is(v1.Available, v1.ReasonQuorum)
			w.is(v1.Degraded, v1.ReasonHealthy)
			require.Equal(w, "1", w.status().ClusterID)
			budget, ok := reconciletest.Get[*policyv1.PodDisruptionBudget](w.server, "poddisruptionbudgets.policy",
				"default", "a")
			require.True(w, ok)
			require.Equal(w, 1, budget.Spec.MaxUnavailable.IntValue())
			for _, name := range []string{"a", "a-client"} {
				_, ok := reconciletest.Get[*corev1.Service](w.server, "services", "default", name)
				require.True(w, ok, name)
			}
		},
		"the size follows the spec": func(w *world) {
			for _, size := range []int32{5, 2, 1, 4} {
				require.NoError(w, w.patch(fmt.Sprintf(`{"spec":{"size":%d}}`, size)))
				w.settles(size, "3.6.16")
			}
			w.is(v1.Degraded, v1.ReasonEvenSize)
		},
		"a pod that is deleted comes back": func(w *world) {
			require.NoError(w, w.pods.Delete(w.Context(), "a-2", metav1.DeleteOptions{}))
			etcd.now.said()
			w.settles(3, "3.6.16")
			require.Empty(w, etcd.now.said(), "etcd had nothing to be told")
		},
		"a claim that is deleted is a member that is lost": func(w *world) {
			require.NoError(w, w.claims.Delete(w.Context(), "a-2", metav1.DeleteOptions{}))
			require.NoError(w, w.pods.Delete(w.Context(), "a-2", metav1.DeleteOptions{}))
			time.Sleep(5 * time.Second)
			w.settles(3, "3.6.16")
			require.Contains(w, etcd.now.said(), "Remove a-2: it is lost; another one takes its place")
		},
		"all pods are deleted": func(w *world) {
			require.NoError(w, w.pods.DeleteCollection(w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			w.settles(3, "3.6.16")
		},
		"up and down, the leader last": func(w *world) {
			for _, version := range []v1.Version{"3.7.3", "3.6.16", "3.5.35"} {
				etcd.now.said()
				require.NoError(w, w.patch(fmt.Sprintf(`{"spec":{"version":%q}}`, version)))
				w.settles(3, version)
				said := etcd.now.said()
				require.NotEmpty(w, said)
				require.Contains(w, said[len(said)-1], "MoveLeader", "%q", said)
			}
		},
		"a pause": func(w *world) {
			require.NoError(w, w.patch(`{"spec":{"paused":true,"size":5}}`))
			time.Sleep(time.Minute)
			w.is(v1.Progressing, "Paused")
			require.EqualValues(w, 3, w.status().Voters)
			require.NoError(w, w.patch(`{"spec":{"paused":false}}`))
			w.settles(5, "3.6.16")
		},
		"an EtcdCluster that is deleted goes with all that it owns": func(w *world) {
			require.NoError(w, w.clusters.Delete(w.Context(), "a", metav1.DeleteOptions{}))
			time.Sleep(time.Minute)
			require.Empty(w, reconciletest.List[*corev1.Pod](w.server, "pods", "default"))
			require.Empty(w, reconciletest.List[*corev1.ConfigMap](w.server, "configmaps", "default"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			inMemory(t, func(w *world) {
				w.create(3, "3.6.16")
				w.settles(3, "3.6.16")
				test(w)
			})
		})
	}
}

// TestAPodOfAnotherOwner is in the way.
func TestAPodOfAnotherOwner(t *testing.T) {
	inMemory(t, func(w *world) {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a-1"}}
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		_, err := w.claims.Create(w.Context(), claim, metav1.CreateOptions{})
		require.NoError(w, err)
		w.create(3, "3.6.16")
		time.Sleep(time.Minute)
		w.is(v1.Progressing, v1.ReasonNameTaken)
		require.NoError(w, w.claims.Delete(w.Context(), "a-1", metav1.DeleteOptions{}))
		w.settles(3, "3.6.16")
	})
}

// TestDefinition has what the CustomResourceDefinition refuses.
func TestDefinition(t *testing.T) {
	inMemory(t, func(w *world) {
		w.create(3, "3.6.16")
		for patch, want := range map[string]string{
			`{"spec":{"size":0}}`:                    "spec.size",
			`{"spec":{"size":10}}`:                   "spec.size",
			`{"spec":{"version":"3.6"}}`:             "spec.version",
			`{"spec":{"version":"3.4.1"}}`:           "spec.version",
			`{"spec":{"version":"3.8.0"}}`:           "skips one",
			`{"spec":{"storage":{"size":"1Gi"}}}`:    "cannot shrink",
			`{"spec":{"storage":{"className":"b"}}}`: "cannot be changed",
			`{"spec":{"quotaBytes":1}}`:              "spec.quotaBytes",
			`{"spec":{"replaceAfterSeconds":1}}`:     "spec.replaceAfterSeconds",
			`{"spec":{"image":"etcd:v3.6.16"}}`:      "spec.image",
		} {
			require.ErrorContains(w, w.patch(patch), want, patch)
		}
		for _, name := range []string{"1a", "a.b"} {
			_, err := w.clusters.Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1.EtcdClusterSpec{Version: "3.6.16"}}, metav1.CreateOptions{})
			require.ErrorContains(w, err, "no Service name", name)
		}
	})
}
