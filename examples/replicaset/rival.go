package main

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
)

// Does another ReplicaSet controller run?
//
// Two ReplicaSet controllers on one cluster would both create the missing pods, and both delete the surplus, without
// end. So the first status that another controller writes ends this process.

// manager is the field manager of our writes, which the API server takes from the user agent.
const manager = "thermostat-replicaset"

// rivalError names the other controller, and says what to do.
type rivalError struct {
	manager    string
	replicaSet informer.Key
}

func (e *rivalError) Error() string {
	return fmt.Sprintf("%q wrote the status of ReplicaSet %s: another ReplicaSet controller is at work, and the two "+
		"would undo each other's changes; switch it off with kube-controller-manager "+
		"--controllers=*,-replicaset-controller (for kind: examples/replicaset/deploy/kind.yaml)",
		e.manager, e.replicaSet)
}

// watchForRivals calls found, possibly several times, when another controller writes the status of a ReplicaSet. What
// was written before the first list does not count: it may be from a controller that has been switched off.
func watchForRivals(replicaSets *informer.SharedIndexInformer[*appsv1.ReplicaSet], found func(error)) error {
	_, err := replicaSets.AddHandler(func(e informer.Event[*appsv1.ReplicaSet]) {
		if e.Type == informer.Deleted || e.Initial {
			return
		}
		if name := rival(e.Old, e.New); name != "" {
			found(&rivalError{name, e.Key})
		}
	}, informer.HandlerOptions{Name: "rivals"})
	return err
}

// rival returns the other manager that has written the status between two versions of a ReplicaSet, or ""; before may
// be nil. All times that it compares are of the server's clock. An entry that is older than the ReplicaSet itself came
// with it from a backup.
func rival(before, after *appsv1.ReplicaSet) string {
	var known []metav1.ManagedFieldsEntry
	if before != nil {
		known = before.ManagedFields
	}
	for _, entry := range after.ManagedFields {
		if entry.Manager == manager || entry.Subresource != "status" || entry.Time.Before(&after.CreationTimestamp) {
			continue
		}
		old := slices.ContainsFunc(known, func(k metav1.ManagedFieldsEntry) bool {
			return k.Manager == entry.Manager && k.Operation == entry.Operation && k.Subresource == entry.Subresource &&
				k.Time.Equal(entry.Time)
		})
		if !old {
			return entry.Manager
		}
	}
	return ""
}
