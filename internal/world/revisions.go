package world

import (
	"context"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// revisionOf returns the newest ControllerRevision of a StatefulSet or DaemonSet that has its template; nil: there is
// none. Those that a workload has left count as well: the controllers of Kubernetes adopt them as they adopt its pods,
// so that a workload which is made anew as it was keeps its pods. The names of pods' revisions come from there.
func (w *World) revisionOf(ctx context.Context, set Object) (
	newest *appsv1.ControllerRevision, err error) {
	if served, err := w.serves(ctx, appsv1.SchemeGroupVersion.String(), "controllerrevisions"); err != nil || !served {
		return nil, err
	}
	list, err := w.client.AppsV1().ControllerRevisions(set.GetNamespace()).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) { // which the report says
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	selector, template := SelectedBy(set)
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		one := &list.Items[i]
		orphaned := metav1.GetControllerOf(one) == nil && matches.Matches(labels.Set(one.Labels))
		if !orphaned && !metav1.IsControlledBy(one, set) {
			continue
		}
		var data struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		if json.Unmarshal(one.Data.Raw, &data) != nil { // another controller's
			continue
		}
		if SameTemplate(data.Spec.Template, *template) && (newest == nil || one.Revision > newest.Revision) {
			newest = one
		}
	}
	return newest, nil
}
