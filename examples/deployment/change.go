package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// How is a ReplicaSet changed?
//
// With a JSON patch that the API server applies only to the generation that was observed. If the spec has changed
// since, the server refuses the patch, even one that arrives late from a process that no longer leads. A new status
// does not change the generation. An update of the whole object would conflict with every report of the ReplicaSet
// controller.

// change has the new values of some fields of a ReplicaSet. What is nil here stays as it is.
type change struct {
	replicas        *int32
	minReadySeconds *int32
	annotations     map[string]string // these keys get these values, others stay
}

// apply changes a ReplicaSet and returns the changed one.
func (r *deploymentReconciler) apply(ctx context.Context, set *appsv1.ReplicaSet, c change) (*appsv1.ReplicaSet,
	error) {
	patch, err := json.Marshal(c.patch(set))
	if err != nil {
		return nil, err
	}
	changed, err := r.server.replicaSets.In(set.Namespace).Patch(ctx, set.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("change ReplicaSet %s: %w", set.Name, err)
	}
	return changed, nil
}

// patchOperation is one operation of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (c change) patch(set *appsv1.ReplicaSet) []patchOperation {
	patch := []patchOperation{{"test", "/metadata/uid", set.UID}, {"test", "/metadata/generation", set.Generation}}
	if c.replicas != nil {
		patch = append(patch, patchOperation{"add", "/spec/replicas", c.replicas})
	}
	if c.minReadySeconds != nil {
		patch = append(patch, patchOperation{"add", "/spec/minReadySeconds", c.minReadySeconds})
	}
	if len(set.Annotations) == 0 && len(c.annotations) > 0 {
		return append(patch, patchOperation{"test", "/metadata/annotations", nil}, // what is missing equals null
			patchOperation{"add", "/metadata/annotations", c.annotations})
	}
	for _, key := range slices.Sorted(maps.Keys(c.annotations)) {
		if value, ok := set.Annotations[key]; !ok || value != c.annotations[key] {
			path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			patch = append(patch, patchOperation{"add", path, c.annotations[key]})
		}
	}
	return patch
}
