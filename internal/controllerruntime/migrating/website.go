// Package migrating has the code of reconcile/MIGRATING.md: an operator that is written with controller-runtime and
// with thermostat, and a controller that is written with client-go. A test compares the page with these files, and runs
// the programs.
package migrating

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const finalizer = "example.com/dns"

// names is something outside of the cluster: each Website has a name in it.
type names interface {
	Register(ctx context.Context, name string) error
	Remove(ctx context.Context, name string) error
}

// status says whether a Deployment has what is wanted.
func status(d *appsv1.Deployment) metav1.ConditionStatus {
	if d.Spec.Replicas != nil && d.Status.ReadyReplicas == *d.Spec.Replicas {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
