package main

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
)

// Is somebody else at work?
//
// Two ReplicaSet controllers on one cluster adopt each other's orphans, both refill what is missing, and both delete
// what is then too much, for ever. So the first status that another one writes ends this process.

// manager is the name under which the API server notes what we write. It takes it from the user agent.
const manager = "thermostat-replicaset"

// rivalError says who else is at work, and what to do about it.
type rivalError struct {
	manager    string
	replicaSet informer.Key
}

func (e *rivalError) Error() string {
	return fmt.Sprintf("%q wrote the status of ReplicaSet %s: another ReplicaSet controller is at work, and the two "+
		"would fight; switch it off "+
		"with kube-controller-manager --controllers=*,-replicaset-controller (for kind: "+
		"examples/replicaset/deploy/kind.yaml)", e.manager, e.replicaSet)
}

// watchForRivals calls found, maybe several times, when somebody else writes the status of a ReplicaSet. What was
// written before the first list does not count: that is how a controller that has been switched off leaves its
// ReplicaSets.
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

// rival names whoever else has written the status between two versions of a ReplicaSet; before may be nil. The times
// are the server's own, so no clock is trusted but that one. What is older than the ReplicaSet itself came with it,
// from a backup.
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
