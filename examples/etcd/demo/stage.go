package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/deploy"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

const (
	older, newer = "3.6.16", "3.7.3"
	operator     = "etcd-operator" // its namespace, account and Lease
	database     = "orders"        // the EtcdCluster
	backup       = "evening"       // the EtcdBackup
	claim        = "backups"       // the volume that its file is on
	snapshot     = "snapshot"      // the image that makes it
)

// stage is a control plane with nodes, the operator, and an EtcdCluster.
type stage struct {
	cluster   *cluster.Cluster
	pool      *processnode.Pool
	namespace string
	clusters  *informer.Resource[*v1.EtcdCluster]
	backups   *informer.Resource[*v1.EtcdBackup]
	claims    *informer.Resource[*corev1.PersistentVolumeClaim]
	pods      *informer.Resource[*corev1.Pod]
}

// build returns the images, which are compiled the first time.
func build(ctx context.Context, say *screen) (map[string]processnode.Image, error) {
	images := map[string]processnode.Image{}
	for _, version := range []string{older, newer} {
		image, err := processnode.BuildModules(ctx, say, "etcd",
			map[string]string{"etcd": "go.etcd.io/etcd/server/v3@v" + version,
				"etcdctl": "go.etcd.io/etcd/etcdctl/v3@v" + version,
				"etcdutl": "go.etcd.io/etcd/etcdutl/v3@v" + version})
		if err != nil {
			return nil, err
		}
		images["etcd:v"+version] = image
	}
	return images, nil
}

// buildSnapshot builds the command that makes and restores backups.
func (s *stage) buildSnapshot(ctx context.Context, images map[string]processnode.Image) error {
	dir := filepath.Join(s.cluster.Dir(), snapshot)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	image, err := processnode.BuildPackage(ctx, dir, "./snapshot")
	images[snapshot] = image
	return err
}

// open starts everything but the operator. What it has started ends with close.
func open(ctx context.Context, say *screen) (s *stage, err error) {
	images, err := build(ctx, say)
	if err != nil {
		return nil, err
	}
	s = &stage{}
	if s.cluster, err = cluster.Start(ctx, cluster.Options{DisableNode: true, Log: say}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := errors.Join(s.apply(ctx), s.buildSnapshot(ctx, images)); err != nil {
		return nil, err
	}
	s.pool, err = processnode.Start(ctx, s.cluster, processnode.Options{Nodes: 5, AllPods: true, Images: images,
		RestartBackOff: 200 * time.Millisecond, Log: say})
	if err != nil {
		return nil, err
	}
	var errs [5]error
	s.namespace, errs[0] = s.cluster.CreateNamespace(ctx, "demo")
	s.clusters, errs[1] = clientOf[*v1.EtcdCluster](s, v1.GroupVersion.WithResource("etcdclusters"))
	s.backups, errs[2] = clientOf[*v1.EtcdBackup](s, v1.GroupVersion.WithResource("etcdbackups"))
	s.claims, errs[3] = clientOf[*corev1.PersistentVolumeClaim](s,
		corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"))
	s.pods, errs[4] = clientOf[*corev1.Pod](s, corev1.SchemeGroupVersion.WithResource("pods"))
	return s, errors.Join(errs[:]...)
}

func clientOf[T informer.Object](s *stage, gvr schema.GroupVersionResource) (*informer.Resource[T], error) {
	return informer.NewResource[T](s.cluster.Config(), gvr, informer.ResourceOptions{})
}

// apply applies the manifests, and a Lease that has been given back: without one the operator waits for 15 seconds.
func (s *stage) apply(ctx context.Context) error {
	files, err := fs.Glob(deploy.Manifests, "etcd.example.com_*.yaml")
	if err != nil {
		return err
	}
	for _, file := range append([]string{"namespace.yaml", "rbac.yaml"}, files...) {
		documents, err := fs.ReadFile(deploy.Manifests, file)
		if err != nil {
			return err
		}
		list, err := cluster.Decode(documents)
		if err != nil {
			return err
		}
		if err := s.cluster.Apply(ctx, list...); err != nil {
			return err
		}
	}
	_, err = s.cluster.Client().CoordinationV1().Leases(operator).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: operator}}, metav1.CreateOptions{})
	return err
}

// operate builds the operator, and starts it with the rights of its role.
func (s *stage) operate(ctx context.Context) error {
	dir := filepath.Join(s.cluster.Dir(), "operator")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	image, err := processnode.BuildPackage(ctx, dir, ".")
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(s.cluster.Kubeconfig())
	if err != nil {
		return err
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = reconciletest.ServiceAccount(operator, operator)
	}
	kubeconfig := filepath.Join(s.cluster.Dir(), "operator.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return err
	}
	for _, path := range image.Programs {
		_, err = s.cluster.Run(ctx, cluster.Command{Name: operator, Path: path,
			Args: []string{"--kubeconfig=" + kubeconfig, "--addresses", "--http-address=0",
				"--snapshot-image=" + snapshot}, Env: os.Environ()})
	}
	return err
}

func (s *stage) close() (err error) {
	if s.pool != nil {
		err = s.pool.Close()
	}
	return errors.Join(err, s.cluster.Close())
}

func (s *stage) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

// create creates the EtcdCluster, with the data of a backup if one is given.
func (s *stage) create(ctx context.Context, version v1.Version, from *v1.Restore) error {
	_, err := s.clusters.In(s.namespace).Create(ctx, &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: database},
		Spec: v1.EtcdClusterSpec{Size: 3, Version: version, Image: "etcd", Restore: from}}, metav1.CreateOptions{})
	return err
}

func (s *stage) patch(ctx context.Context, format string, args ...any) error {
	_, err := s.clusters.In(s.namespace).Patch(ctx, database, types.MergePatchType,
		fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	return err
}

// ofMembers selects what belongs to the members.
var ofMembers = metav1.ListOptions{LabelSelector: v1.ClusterLabel + "=" + database}

// endpoints are the addresses of all members, as the Service of a real cluster has them.
func (s *stage) endpoints() (urls []string) {
	list, err := s.pods.In(s.namespace).List(context.Background(), ofMembers)
	if err != nil {
		return nil // the clients ask again
	}
	for _, pod := range list.Items {
		if pod.Status.PodIP != "" {
			urls = append(urls, "http://"+pod.Status.PodIP+":2379")
		}
	}
	return urls
}

// until waits until the EtcdCluster is as wanted, and returns it.
func (s *stage) until(ctx context.Context, what string, there func(*v1.EtcdCluster) bool) (now *v1.EtcdCluster,
	err error) {
	err = wait(ctx, what, func() (bool, error) {
		now, err = s.clusters.In(s.namespace).Get(ctx, database, metav1.GetOptions{})
		return err == nil && there(now), err
	})
	return now, err
}

// wait asks until something is there, for at most five minutes. An error is no end: it may pass.
func wait(ctx context.Context, what string, there func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		ok, err := there()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for %s: %w", what, ctx.Err()), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// settled reports whether the operator has nothing more to do.
func settled(c *v1.EtcdCluster) bool {
	p, _ := objects.FindCondition(c.Status.Conditions, v1.Progressing)
	return p.Reason == "Done" && p.ObservedGeneration == c.Generation && !degraded(c)
}

func degraded(c *v1.EtcdCluster) bool {
	d, _ := objects.FindCondition(c.Status.Conditions, v1.Degraded)
	return d.Status == metav1.ConditionTrue
}

// restarted waits until a member's process has started again.
func (s *stage) restarted(ctx context.Context, name string) error {
	_, err := s.until(ctx, name+" to start again", func(*v1.EtcdCluster) bool {
		pod, err := s.pods.In(s.namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0
	})
	return err
}
