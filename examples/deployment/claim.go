package main

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// Which ReplicaSets are mine, and which Deployments does a change concern?

// ownerKey is what ReplicaSets are indexed by: the namespace, and the UID of the controller, empty for an orphan.
type ownerKey struct {
	namespace string
	uid       types.UID
}

func ownerKeyOf(set *appsv1.ReplicaSet, add func(ownerKey)) {
	key := ownerKey{namespace: set.Namespace}
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		key.uid = owner.UID
	}
	add(key)
}

// claim returns the ReplicaSets of d. objects.Claim adopts those that match and have no controller, and releases those
// of ours that no longer match.
func (r *deploymentReconciler) claim(ctx context.Context, d *appsv1.Deployment, owner *objects.Owner,
	selector labels.Selector) ([]*appsv1.ReplicaSet, error) {
	// The orphans are looked up first: a ReplicaSet that is adopted between the two lookups is then found twice, and
	// its newer version counts. The other way round it would be missed.
	candidates := map[types.UID]*appsv1.ReplicaSet{}
	for _, key := range []ownerKey{{namespace: d.Namespace}, {d.Namespace, d.UID}} {
		for set := range r.replicaSetsByOwner.Get(key) {
			candidates[set.UID] = set
		}
	}
	return objects.Claim(ctx, owner, r.server.replicaSets.In(d.Namespace), maps.Values(candidates),
		func(set *appsv1.ReplicaSet) bool { return selector.Matches(labels.Set(set.Labels)) })
}

// selectorOf returns the selector of d. An empty one would match everything: the API server refuses it, and here it
// matches nothing.
func selectorOf(d *appsv1.Deployment) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	if selector.Empty() {
		return labels.Nothing(), nil
	}
	return selector, nil
}

// concerned returns the keys of the Deployments that a change of a ReplicaSet concerns: its controller or, if it has
// none, all whose selectors match it.
func (r *deploymentReconciler) concerned(set *appsv1.ReplicaSet) (keys []informer.Key) {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		if owner.Kind != kind.Kind {
			return nil
		}
		return []informer.Key{{Namespace: set.Namespace, Name: owner.Name}}
	}
	for d := range r.deploymentsByNamespace.Get(set.Namespace) {
		if selector, err := selectorOf(d); err == nil && selector.Matches(labels.Set(set.Labels)) {
			keys = append(keys, informer.KeyOf(d))
		}
	}
	return keys
}
