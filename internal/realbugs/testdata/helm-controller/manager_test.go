// Package check runs the controller of HelmCharts of K3s, as its main does, with the defaults of its flags. Leader
// election and the installation of the definitions are left out.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rancher/lasso/pkg/cache"
	"github.com/rancher/lasso/pkg/client"
	"github.com/rancher/lasso/pkg/controller"
	"github.com/rancher/wrangler/v3/pkg/apply"
	"github.com/rancher/wrangler/v3/pkg/generated/controllers/batch"
	"github.com/rancher/wrangler/v3/pkg/generated/controllers/core"
	"github.com/rancher/wrangler/v3/pkg/generated/controllers/rbac"
	"github.com/rancher/wrangler/v3/pkg/generic"
	"github.com/rancher/wrangler/v3/pkg/ratelimit"
	"github.com/rancher/wrangler/v3/pkg/schemes"
	"github.com/rancher/wrangler/v3/pkg/start"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/k3s-io/helm-controller/pkg/controllers/chart"
	"github.com/k3s-io/helm-controller/pkg/generated/controllers/helm.cattle.io"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	logrus.SetOutput(io.Discard)
	resources := &corev1.ResourceRequirements{}
	if err := json.Unmarshal([]byte(`{"requests":{"cpu":"0.1","memory":"10M"},"limits":{"cpu":"32","memory":"32G"}}`),
		resources); err != nil {
		panic(err)
	}
	chart.JobResources = resources
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.RateLimiter = ratelimit.None
	applies, err := apply.NewForConfig(cfg)
	if err != nil {
		return err
	}
	applies = applies.WithSetOwnerReference(false, false).WithContext(ctx)
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	clients, err := client.NewSharedClientFactory(cfg, nil)
	if err != nil {
		return err
	}
	o := &generic.FactoryOptions{SharedControllerFactory: controller.NewSharedControllerFactory(
		cache.NewSharedCachedFactory(clients, nil), &controller.SharedControllerFactoryOptions{
			DefaultRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[any](5*time.Millisecond,
				60*time.Second),
			DefaultWorkers: 50,
		})}
	cores, err := core.NewFactoryFromConfigWithOptions(cfg, o)
	batches, err2 := batch.NewFactoryFromConfigWithOptions(cfg, o)
	roles, err3 := rbac.NewFactoryFromConfigWithOptions(cfg, o)
	charts, err4 := helm.NewFactoryFromConfigWithOptions(cfg, o)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	const name = "helm-controller"
	chart.Register(ctx, "", name, "cluster-admin", "6443", applies,
		broadcaster.NewRecorder(schemes.All, corev1.EventSource{Component: name}),
		batches.Batch().V1(), cores.Core().V1(), charts.Helm().V1(), roles.Rbac().V1())
	if err := start.All(ctx, 50, cores, batches, roles, charts); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
