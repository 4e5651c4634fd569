// Package check runs the controllers of the Kubeflow Training Operator as its main does, each by itself, with the
// defaults of its flags: no gang scheduler, and one worker.
package check

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllerv1 "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	logrus.SetOutput(io.Discard)
	// What the flags of main set.
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	os.Exit(m.Run())
}

// check runs Check on the controller of a kind. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, kind string, s reconciletest.Scenario) {
	t.Helper()
	s.Run = manager(kind)
	s.Server.CRDs, s.Server.Rules, s.Server.Kinds = []string{"crd"}, cel.Rules{}, builtin.Kinds()
	s.World = &reconciletest.World{}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// manager is main with --enable-scheme=KIND, without leader election, webhooks, certificates and HTTP.
func manager(kind string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		scheme, again := runtime.NewScheme(), true
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kubeflow.AddToScheme,
			volcano.AddToScheme, schedulerplugins.AddToScheme} {
			if err := add(scheme); err != nil {
				return err
			}
		}
		cfg = rest.CopyConfig(cfg)
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(20, 30)
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme,
			Metrics:                metricsserver.Options{BindAddress: "0"},
			HealthProbeBindAddress: "0",
			Controller:             crconfig.Controller{SkipNameValidation: &again}})
		if err != nil {
			return err
		}
		setup := controllerv1.SupportedSchemeReconciler[kind]
		if err := setup(mgr, common.GenNonGangSchedulerSetupFunc(), 1); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
}

// ends lets each pod that runs succeed, as a kubelet does when the containers end.
func ends(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 30*time.Second)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) {
			p := o.(*corev1.Pod)
			if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
				return
			}
			// What fails is tried again at the next resync.
			_, _ = client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
				[]byte(`{"status":{"phase":"Succeeded","conditions":[]}}`), metav1.PatchOptions{}, "status")
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// want returns an error unless something is as it should be.
func want(what string, is, should any) error {
	if fmt.Sprint(is) == fmt.Sprint(should) {
		return nil
	}
	return fmt.Errorf("%s: %v, want %v", what, is, should)
}

// holds returns an error unless a condition of a job is true.
func holds(name string, status kubeflow.JobStatus, condition kubeflow.JobConditionType) error {
	for _, c := range status.Conditions {
		if c.Type == condition && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not %s: %v", name, condition, status.Conditions)
}

// pods returns an error unless a job has so many pods.
func pods(s *reconciletest.Server, job string, number int) error {
	n := 0
	for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
		if p.Labels[kubeflow.JobNameLabel] == job {
			n++
		}
	}
	return want("pods of "+job, n, number)
}

// gone returns an error if there is an object.
func gone[T reconciletest.Object](s *reconciletest.Server, resource, name string) error {
	if _, there := reconciletest.Get[T](s, resource, "default", name); there {
		return fmt.Errorf("%s %s is still there", resource, name)
	}
	return nil
}

// there returns an object, or an error if there is none.
func there[T reconciletest.Object](s *reconciletest.Server, resource, name string) (T, error) {
	o, ok := reconciletest.Get[T](s, resource, "default", name)
	if !ok {
		return o, fmt.Errorf("%s %s is not there", resource, name)
	}
	return o, nil
}
