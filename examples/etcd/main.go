// Command etcd is an operator for etcd: it keeps the clusters that EtcdClusters ask for. README.md says how to run it,
// and what it promises.
//
// # Reading order
//
// api/v1/types.go: what the user writes. plan: what is done next, decided without I/O. members: how etcd is asked.
// main.go: what runs. reconcile.go: observe, plan, act. observe.go: what is. hear.go: who is alive for others. act.go:
// what is done. rehearse.go: what etcd would answer then, for a plan. objects.go: what is made. tls.go: certificates,
// on which package certs decides. status.go: what is told. lost.go: whose data are gone for good. recover.go: a cluster
// that begins anew with the best of the others. backup.go: from an EtcdBackup to a file. job.go: the Jobs that make it
// so. snapshot: the command that runs in them. restore.go: a cluster that begins with a backup. last.go: a backup
// before the end.
package main

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

const name = "etcd-operator" // of the controller, its field manager, its Lease and the namespace of that

//go:embed deploy/rbac.yaml
var role []byte

// options are the flags, and how etcd is reached.
type options struct {
	addresses bool       // members are known by the addresses of their pods, and not by names
	version   v1.Version // of clusters that name none
	address   string
	// connect returns a way to etcd. The TLS configuration has a client's certificate; nil: no TLS.
	connect func(*tls.Config) members.Etcd

	snapshotImage string // has the command in the folder snapshot
}

func main() {
	o := options{connect: func(c *tls.Config) members.Etcd { return members.Client{TLS: c} }}
	kubeconfig := pflag.String("kubeconfig", "", "file that names the API server; not needed in a pod")
	pflag.BoolVar(&o.addresses, "addresses", false,
		"members know each other by the addresses of their pods: for clusters without DNS, where a pod that is made "+
			"again gets the same address")
	pflag.StringVar((*string)(&o.version), "etcd-version", "3.6.16", "version of clusters that name none")
	pflag.StringVar(&o.snapshotImage, "snapshot-image", "etcd-snapshot:dev",
		"image whose entrypoint is the command snapshot")
	pflag.StringVar(&o.address, "http-address", "127.0.0.1:8080", "of /metrics, /healthz and /readyz; 0: nowhere")
	pflag.Parse()
	program.Main(*kubeconfig, func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, o) })
}

// run runs the operator until ctx ends. It then returns nil or, if it was still starting, an error that wraps ctx's
// cause.
func run(ctx context.Context, base *rest.Config, o options) error {
	needs, err := rights.Parse(role)
	if err := errors.Join(err, rights.Check(ctx, base, needs)); err != nil {
		return err
	}
	elector, err1 := leaderelection.New(leaderelection.Config{REST: base, Namespace: name, Name: name})
	cfg, err2 := reconcile.ClientConfig(base, elector) // for all requests but those about the Lease and Events
	recorder, err3 := events.NewRecorder(base, name)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	r := &reconciler{options: o, events: recorder}
	if program.Planned(ctx) {
		r.rehearse()
	}
	collector := metrics.New(metrics.Options{})
	collector.Elector(name, elector.Stats)
	group := informer.NewGroup(cfg)
	if err := r.caches(group, cfg); err != nil {
		return err
	}
	collector.Informer(group.Informers()...)
	controllers, err := r.controllers(collector)
	if err != nil {
		return err
	}
	server, err := serve.New(serve.Options{Address: o.address, Metrics: collector})
	if err != nil {
		return err
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: controllers,
		Beside:      map[string]func(context.Context) error{"events": recorder.Run},
		Elector:     elector,
		Serve:       server.Run,
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// controllers makes the two loops: one for EtcdClusters, and one for EtcdBackups.
func (r *reconciler) controllers(collector *metrics.Collector) ([]*reconcile.Controller, error) {
	c, err1 := reconcile.NewController(name, r, reconcile.Options{Workers: 8, Metrics: collector, Invalid: r.invalid})
	b, err2 := reconcile.NewController(name+"-backups", backups{r}, reconcile.Options{Workers: 2, Metrics: collector,
		Invalid: r.invalid})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	reconcile.For(c, r.clusters.Cache, reconcile.GenerationChanged)
	owner := r.clusters.GroupVersionKind()
	reconcile.Owns(c, r.pods.Cache, owner)
	reconcile.Owns(c, r.claims.Cache, owner)
	reconcile.Owns(c, r.words.Cache, owner)
	reconcile.Owns(c, r.services.Cache, owner)
	reconcile.Owns(c, r.budgets.Cache, owner)
	reconcile.Owns(c, r.secrets.Cache, owner)
	reconcile.Watches(c, r.backups.Cache, func(b *v1.EtcdBackup) []reconcile.Key {
		return []reconcile.Key{clusterOf(b)} // which may wait for its last one
	})

	reconcile.For(b, r.backups.Cache)
	reconcile.Owns(b, r.jobs.Cache, r.backups.GroupVersionKind())
	reconcile.Watches(b, r.jobPods.Cache, func(pod *corev1.Pod) []reconcile.Key {
		return []reconcile.Key{{Namespace: pod.Namespace, Name: pod.Labels[v1.BackupLabel]}}
	})
	return []*reconcile.Controller{c, b}, nil
}

// caches makes the clients and caches. Of what is not the operator's it sees only what has its label.
func (r *reconciler) caches(g *informer.Group, cfg *rest.Config) error {
	ours, err := labels.Parse(v1.ClusterLabel)
	if err != nil {
		return err
	}
	core, err1, err2 := corev1.SchemeGroupVersion, error(nil), error(nil)
	r.volumes, err1 = informer.NewResource[*corev1.PersistentVolume](cfg, core.WithResource("persistentvolumes"),
		informer.ResourceOptions{})
	r.nodes, err2 = informer.NewResource[*corev1.Node](cfg, core.WithResource("nodes"), informer.ResourceOptions{})
	r.clusters = informer.CachedIn(g, v1.GroupVersion.WithResource("etcdclusters"), informer.Options[*v1.EtcdCluster]{})
	r.pods = informer.CachedIn(g, core.WithResource("pods"), informer.Options[*corev1.Pod]{LabelSelector: ours})
	r.claims = informer.CachedIn(g, core.WithResource("persistentvolumeclaims"),
		informer.Options[*corev1.PersistentVolumeClaim]{LabelSelector: ours})
	r.words = informer.CachedIn(g, core.WithResource("configmaps"),
		informer.Options[*corev1.ConfigMap]{LabelSelector: ours})
	r.services = informer.CachedIn(g, core.WithResource("services"),
		informer.Options[*corev1.Service]{LabelSelector: ours})
	r.budgets = informer.CachedIn(g, policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"),
		informer.Options[*policyv1.PodDisruptionBudget]{LabelSelector: ours})
	r.secrets = informer.CachedIn(g, core.WithResource("secrets"),
		informer.Options[*corev1.Secret]{LabelSelector: ours})
	r.podsOf = informer.IndexIn(g, r.pods.Cache, ownerOf[*corev1.Pod])
	r.claimsOf = informer.IndexIn(g, r.claims.Cache, ownerOf[*corev1.PersistentVolumeClaim])
	r.wordsOf = informer.IndexIn(g, r.words.Cache, ownerOf[*corev1.ConfigMap])
	r.secretsOf = informer.IndexIn(g, r.secrets.Cache, ownerOf[*corev1.Secret])
	return errors.Join(err1, err2, r.backupCaches(g), g.Err())
}

func (r *reconciler) backupCaches(g *informer.Group) error {
	ours, err := labels.Parse(v1.BackupLabel)
	if err != nil {
		return err
	}
	r.backups = informer.CachedIn(g, v1.GroupVersion.WithResource("etcdbackups"), informer.Options[*v1.EtcdBackup]{})
	r.jobs = informer.CachedIn(g, batchv1.SchemeGroupVersion.WithResource("jobs"),
		informer.Options[*batchv1.Job]{LabelSelector: ours})
	r.jobPods = informer.CachedIn(g, corev1.SchemeGroupVersion.WithResource("pods"),
		informer.Options[*corev1.Pod]{LabelSelector: ours})
	r.backupsOf = informer.IndexIn(g, r.backups.Cache, func(b *v1.EtcdBackup, add func(informer.Key)) {
		add(clusterOf(b))
	})
	r.jobPodsOf = informer.IndexIn(g, r.jobPods.Cache, ownerOf[*corev1.Pod])
	return nil
}

// ownerOf returns the UID of the object's controller.
func ownerOf[T metav1.Object](o T, add func(types.UID)) {
	if owner := metav1.GetControllerOf(o); owner != nil {
		add(owner.UID)
	}
}
