package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// Which revision is the new ReplicaSet, and how is it created?
//
// The new ReplicaSet has the highest revision. A rollback gives the Deployment an old template again, so an old
// ReplicaSet becomes the new one: its revision moves up, and the one that it had goes into its history. kubectl rollout
// history and undo read these annotations.

const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history" // former revisions, separated by commas
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas" // spec.replicas when the set was last resized
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"     // the same with maxSurge
)

// historyLength is the most that historyAnnotation may hold, in bytes.
const historyLength = 2000

// notCopied are the annotations of a Deployment that its ReplicaSets do not get.
var notCopied = map[string]bool{
	corev1.LastAppliedConfigAnnotation: true, revisionAnnotation: true, historyAnnotation: true,
	desiredAnnotation: true, maxAnnotation: true, appsv1.DeprecatedRollbackTo: true,
}

// revisionOf returns the revision of a ReplicaSet, 0 if it has none or it is no number.
func revisionOf(set *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// annotated returns the annotations that the new ReplicaSet should have: its own, those of the Deployment, and the
// highest revision.
func annotated(d *appsv1.Deployment, set *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) map[string]string {
	annotations := maps.Clone(set.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range d.Annotations {
		if !notCopied[key] {
			annotations[key] = value
		}
	}
	revision := int64(1)
	for _, set := range old {
		revision = max(revision, revisionOf(set)+1)
	}
	// The set may have a higher revision already, when old sets have been deleted.
	if former := revisionOf(set); former < revision {
		annotations[revisionAnnotation] = strconv.FormatInt(revision, 10)
		if former > 0 {
			annotations[historyAnnotation] = remember(annotations[historyAnnotation], strconv.FormatInt(former, 10))
		}
	}
	return annotations
}

// remember appends a revision to a history, and drops the first ones if that gets longer than historyLength.
func remember(history, revision string) string {
	if history == "" {
		return revision
	}
	history += "," + revision
	for len(history) > historyLength {
		_, history, _ = strings.Cut(history, ",")
	}
	return history
}

// refreshNew gives the new ReplicaSet the annotations and minReadySeconds that it should have.
func (r *deploymentReconciler) refreshNew(ctx context.Context, ro *rollout) error {
	d := ro.deployment
	ro.noteNew()
	annotations := annotated(d, ro.new, ro.old)
	if maps.Equal(annotations, ro.new.Annotations) && ro.new.Spec.MinReadySeconds == d.Spec.MinReadySeconds {
		return nil
	}
	changed, err := r.apply(ctx, ro.new, change{minReadySeconds: &d.Spec.MinReadySeconds, annotations: annotations})
	if err == nil {
		ro.new = changed
	}
	return err
}

// createNew creates the new ReplicaSet, as large as maxSurge allows. If its name is taken, or the namespace is being
// deleted, ro.new stays nil without an error, and this run has nothing more to do.
func (r *deploymentReconciler) createNew(ctx context.Context, ro *rollout, owner *objects.Owner) error {
	d := ro.deployment
	set, err := newReplicaSet(d, ro.old, owner)
	if err != nil {
		return err
	}
	created, err := objects.CreateOwned(ctx, owner, r.server.replicaSets.In(d.Namespace), set)
	taken := (*objects.TakenError)(nil)
	switch {
	case errors.As(err, &taken), err == nil && !sameTemplate(&created.Spec.Template, &d.Spec.Template):
		// Another template has this hash, or another owner's ReplicaSet this name. One collision more gives another
		// hash. The write of the status starts the run that uses it.
		ro.collisions = new(int32)
		if d.Status.CollisionCount != nil {
			*ro.collisions = *d.Status.CollisionCount
		}
		*ro.collisions++
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the Deployment will be deleted, too: no retry, no event
	case err != nil:
		const reason = "ReplicaSetCreateError"
		message := fmt.Sprintf("Failed to create new replica set %q: %v", set.Name, err)
		if hasDeadline(d) {
			ro.setCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reason, message)
		}
		r.events.Event(d, corev1.EventTypeWarning, reason, message)
		return err
	}
	ro.new = created
	ro.seen = append(ro.seen, created)
	if size(created) > 0 {
		r.tellScaled(d, created.Name, 0, size(created))
	}
	if hasDeadline(d) {
		ro.setCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated",
			fmt.Sprintf("Created new replica set %q", created.Name))
	}
	return nil
}

// newReplicaSet returns the ReplicaSet for the template of d.
func newReplicaSet(d *appsv1.Deployment, old []*appsv1.ReplicaSet, owner *objects.Owner) (*appsv1.ReplicaSet, error) {
	hash, err := hashOf(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, err
	}
	template := d.Spec.Template.DeepCopy()
	template.Labels = withLabel(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withLabel(selector.MatchLabels, hash)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            nameOf(d, hash),
			Namespace:       d.Namespace,
			Labels:          template.Labels,
			OwnerReferences: []metav1.OwnerReference{owner.Reference()},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        *template,
		},
	}
	*set.Spec.Replicas = int32(grown(d, set, old))
	set.Annotations = annotated(d, set, old)
	maps.Copy(set.Annotations, sizesOf(d))
	return set, nil
}

func withLabel(labels map[string]string, hash string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return labels
}
