package check

import (
	"context"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/job"
)

func newController(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) (
	*job.Controller, error) {
	return job.NewController(ctx, client, f.Core().V1().Pods(), f.Batch().V1().Jobs(),
		f.Scheduling().V1beta1().Workloads(), f.Scheduling().V1beta1().PodGroups())
}
