// Package check runs three controllers of Argo Rollouts, each by itself: informers, queues and configurations are those
// of its main, with the defaults of the flags. Servers of metrics, leader election, and the sending of notifications
// are left out; no service mesh and no traffic router is installed.
package check

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	smi "github.com/servicemeshinterface/smi-sdk-go/pkg/gen/client/split/clientset/versioned"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	notifications "github.com/argoproj/notifications-engine/pkg/api"

	"github.com/argoproj/argo-rollouts/analysis"
	"github.com/argoproj/argo-rollouts/controller"
	"github.com/argoproj/argo-rollouts/controller/metrics"
	"github.com/argoproj/argo-rollouts/experiments"
	jobprovider "github.com/argoproj/argo-rollouts/metricproviders/job"
	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/pkg/client/clientset/versioned"
	rolloutscheme "github.com/argoproj/argo-rollouts/pkg/client/clientset/versioned/scheme"
	rolloutinformers "github.com/argoproj/argo-rollouts/pkg/client/informers/externalversions/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/rollout"
	"github.com/argoproj/argo-rollouts/utils/config"
	controllerutil "github.com/argoproj/argo-rollouts/utils/controller"
	"github.com/argoproj/argo-rollouts/utils/defaults"
	ingressutil "github.com/argoproj/argo-rollouts/utils/ingress"
	istioutil "github.com/argoproj/argo-rollouts/utils/istio"
	"github.com/argoproj/argo-rollouts/utils/queue"
	"github.com/argoproj/argo-rollouts/utils/record"
	timeutil "github.com/argoproj/argo-rollouts/utils/time"
	"github.com/argoproj/argo-rollouts/utils/tolerantinformer"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const resync = controller.DefaultRolloutResyncPeriod * time.Second

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	timeutil.SetNowTimeFunc(moves)
	if err := rolloutscheme.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var reads atomic.Int64

// moves is the clock of the controllers, which is later at the next reading, as a real one. At the moment at which
// something is due they wait until it is over, and ask again at once: for that virtual time does not pass.
func moves() time.Time { return time.Now().Add(time.Duration(reads.Add(1)%1000) * time.Microsecond) }

// start makes a controller of the parts, and returns what runs it.
type start func(p *parts) (run func(ctx context.Context) error, err error)

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, start start, s reconciletest.Scenario) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, start) }
	s.Server.Kinds, s.Server.Rules, s.Server.Resources = builtin.Kinds(), cel.Rules{}, defined()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// defined are the custom resources of Argo Rollouts, which are too large to be read for each run.
var defined = sync.OnceValue(func() (all []reconciletest.Resource) {
	files, err := filepath.Glob("crd/*.yaml")
	for _, file := range files {
		data, err2 := os.ReadFile(file)
		some, err3 := reconciletest.ReadCRDs(data)
		err, all = errors.Join(err, err2, err3), append(all, some...)
	}
	if err != nil {
		panic(err)
	}
	return all
})

// parts are what main makes for the controllers.
type parts struct {
	cfg       *rest.Config
	client    *kubernetes.Clientset
	rollouts  versioned.Interface
	dynamic   dynamic.Interface
	metrics   *metrics.MetricsServer
	recorder  record.EventRecorder
	all, sets informers.SharedInformerFactory // sets: those of rollouts only
	jobs      informers.SharedInformerFactory
	own, mesh dynamicinformer.DynamicSharedInformerFactory

	rollout    rolloutinformers.RolloutInformer
	experiment rolloutinformers.ExperimentInformer
	run        rolloutinformers.AnalysisRunInformer
	template   rolloutinformers.AnalysisTemplateInformer
	cluster    rolloutinformers.ClusterAnalysisTemplateInformer
	queues     map[string]workqueue.RateLimitingInterface
}

// labelled makes informers of objects that have a label.
func labelled(client kubernetes.Interface, label string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = label }))
}

// named makes informers of the objects of a name in the namespace of the controller.
func named(client kubernetes.Interface, name string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithNamespace(defaults.Namespace()),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }))
}

func newParts(cfg *rest.Config) (*parts, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = defaults.DefaultQPS, defaults.DefaultBurst
	client, err := kubernetes.NewForConfig(cfg)
	own, err2 := versioned.NewForConfig(cfg)
	untyped, err3 := dynamic.NewForConfig(cfg)
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	// main does so after it has made the queues, and its process ends if that fails.
	if _, err := config.InitializeConfig(client, defaults.DefaultRolloutsConfigMapName); err != nil {
		return nil, err
	}
	ours := controllerutil.InstanceIDRequirement("")
	p := &parts{cfg: cfg, client: client, rollouts: own, dynamic: untyped,
		all:  informers.NewSharedInformerFactory(client, resync),
		sets: labelled(client, v1alpha1.DefaultRolloutUniqueLabelKey),
		jobs: labelled(client, jobprovider.AnalysisRunUIDLabelKey),
		own: dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, resync, metav1.NamespaceAll,
			func(o *metav1.ListOptions) { o.LabelSelector = ours.String() }),
		mesh:   dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, resync, metav1.NamespaceAll, nil),
		queues: map[string]workqueue.RateLimitingInterface{}}
	p.rollout = tolerantinformer.NewTolerantRolloutInformer(p.own)
	p.experiment = tolerantinformer.NewTolerantExperimentInformer(p.own)
	p.run = tolerantinformer.NewTolerantAnalysisRunInformer(p.own)
	p.template = tolerantinformer.NewTolerantAnalysisTemplateInformer(p.own)
	p.cluster = tolerantinformer.NewTolerantClusterAnalysisTemplateInformer(p.own)
	p.metrics = metrics.NewMetricsServer(metrics.ServerConfig{RolloutLister: p.rollout.Lister(),
		AnalysisRunLister: p.run.Lister(), AnalysisTemplateLister: p.template.Lister(),
		ClusterAnalysisTemplateLister: p.cluster.Lister(), ExperimentLister: p.experiment.Lister(),
		K8SRequestProvider: &metrics.K8sRequestsCountProvider{}})
	for _, name := range []string{"Rollouts", "Experiments", "AnalysisRuns", "Services", "Ingresses"} {
		p.queues[name] = workqueue.NewNamedRateLimitingQueue(queue.DefaultArgoRolloutsRateLimiter(), name)
	}
	return p, nil
}

// run is Manager.Run of main, for one controller.
func run(ctx context.Context, cfg *rest.Config, start start) error {
	p, err := newParts(cfg)
	if err != nil {
		return err
	}
	secrets, texts := named(p.client, record.NotificationSecret), named(p.client, record.NotificationConfigMap)
	p.recorder = record.NewEventRecorder(p.client, metrics.MetricRolloutEventsTotal,
		metrics.MetricNotificationFailedTotal, metrics.MetricNotificationSuccessTotal, metrics.MetricNotificationSend,
		notifications.NewFactory(record.NewAPIFactorySettings(p.run), defaults.Namespace(),
			secrets.Core().V1().Secrets().Informer(), texts.Core().V1().ConfigMaps().Informer()))
	run, err := start(p)
	if err != nil {
		return err
	}
	p.own.Start(ctx.Done())
	typed := []informers.SharedInformerFactory{p.all, p.sets, p.jobs, secrets, texts}
	for _, f := range typed {
		f.Start(ctx.Done())
	}
	if istioutil.DoesIstioExist(p.dynamic, metav1.NamespaceAll) {
		p.mesh.Start(ctx.Done())
	}
	for _, f := range typed {
		f.WaitForCacheSync(ctx.Done())
	}
	p.own.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { err = run(ctx) })
	<-ctx.Done()
	for _, q := range p.queues {
		q.ShutDownWithDrain()
	}
	running.Wait()
	for _, f := range typed {
		f.Shutdown()
	}
	p.own.Shutdown()
	p.mesh.Shutdown()
	return err
}

func rollouts(p *parts) (func(context.Context) error, error) {
	split, err := smi.NewForConfig(p.cfg)
	if err != nil {
		return nil, err
	}
	mode, err := ingressutil.DetermineIngressMode("", p.client.DiscoveryClient)
	if err != nil {
		return nil, err
	}
	ingresses, err := ingressutil.NewIngressWrapper(mode, p.client, p.all)
	if err != nil {
		return nil, err
	}
	c := rollout.NewController(rollout.ControllerConfig{
		Namespace: metav1.NamespaceAll, KubeClientSet: p.client, ArgoProjClientset: p.rollouts,
		DynamicClientSet: p.dynamic, SmiClientSet: split,
		RefResolver: rollout.NewInformerBasedWorkloadRefResolver(metav1.NamespaceAll, p.dynamic, p.client.Discovery(),
			p.rollouts, p.rollout.Informer()),
		ExperimentInformer: p.experiment, AnalysisRunInformer: p.run, AnalysisTemplateInformer: p.template,
		ClusterAnalysisTemplateInformer: p.cluster, IstioPrimaryDynamicClient: p.dynamic,
		IstioVirtualServiceInformer:  p.mesh.ForResource(istioutil.GetIstioVirtualServiceGVR()).Informer(),
		IstioDestinationRuleInformer: p.mesh.ForResource(istioutil.GetIstioDestinationRuleGVR()).Informer(),
		ReplicaSetInformer:           p.sets.Apps().V1().ReplicaSets(),
		ServicesInformer:             p.all.Core().V1().Services(), IngressWrapper: ingresses,
		RolloutsInformer: p.rollout, ResyncPeriod: resync, RolloutWorkQueue: p.queues["Rollouts"],
		ServiceWorkQueue: p.queues["Services"], IngressWorkQueue: p.queues["Ingresses"], MetricsServer: p.metrics,
		Recorder: p.recorder, EphemeralMetadataThreads: rollout.DefaultEphemeralMetadataThreads,
		EphemeralMetadataPodRetries: rollout.DefaultEphemeralMetadataPodRetries,
	})
	return func(ctx context.Context) error { return c.Run(ctx, controller.DefaultRolloutThreads) }, nil
}

func experimentsOf(p *parts) (func(context.Context) error, error) {
	c := experiments.NewController(experiments.ControllerConfig{
		KubeClientSet: p.client, ArgoProjClientset: p.rollouts,
		ReplicaSetInformer: p.sets.Apps().V1().ReplicaSets(), ExperimentsInformer: p.experiment,
		AnalysisRunInformer: p.run, AnalysisTemplateInformer: p.template, ClusterAnalysisTemplateInformer: p.cluster,
		ServiceInformer: p.all.Core().V1().Services(), ResyncPeriod: resync, RolloutWorkQueue: p.queues["Rollouts"],
		ExperimentWorkQueue: p.queues["Experiments"], MetricsServer: p.metrics, Recorder: p.recorder,
	})
	return func(ctx context.Context) error { return c.Run(ctx, controller.DefaultExperimentThreads) }, nil
}

func analyses(p *parts) (func(context.Context) error, error) {
	c := analysis.NewController(analysis.ControllerConfig{
		KubeClientSet: p.client, ArgoProjClientset: p.rollouts, AnalysisRunInformer: p.run,
		JobInformer: p.jobs.Batch().V1().Jobs(), JobPodsInformer: p.jobs.Core().V1().Pods(), ResyncPeriod: resync,
		AnalysisRunWorkQueue: p.queues["AnalysisRuns"], MetricsServer: p.metrics, Recorder: p.recorder,
	})
	return func(ctx context.Context) error { return c.Run(ctx, controller.DefaultAnalysisThreads) }, nil
}
