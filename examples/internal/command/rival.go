package command

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
)

// Does another controller do the same work?
//
// Two controllers for the same objects would both do what is missing, and both undo what is too much, without end. So
// the first status that another controller writes ends this process.

// RivalError names the other controller, and says what to do.
type RivalError struct {
	Program Program
	Manager string // the field manager of its writes
	Object  informer.Key
}

func (e *RivalError) Error() string {
	return fmt.Sprintf("%q wrote the status of %[2]s %s: another %[2]s controller is at work, and the two would undo "+
		"each other's changes; switch it off with kube-controller-manager --controllers=*,-%[4]s (for kind: "+
		"examples/%[5]s/deploy/kind.yaml)", e.Manager, e.Program.Kind, e.Object, e.Program.builtIn(), e.Program.Name)
}

// WatchForRivals calls found, possibly several times, when another controller writes the status of an object. What was
// written before the first list does not count: it may be from a controller that has been switched off.
func WatchForRivals[T metav1.Object](p Program, objects *informer.SharedIndexInformer[T], found func(error)) error {
	_, err := objects.AddHandler(func(e informer.Event[T]) {
		if e.Type == informer.Deleted || e.Initial {
			return
		}
		var known []metav1.ManagedFieldsEntry
		if e.Type == informer.Updated {
			known = e.Old.GetManagedFields()
		}
		if name := rival(p.manager(), known, e.New); name != "" {
			found(&RivalError{p, name, e.Key})
		}
	}, informer.HandlerOptions{Name: "rivals"})
	return err
}

// rival returns the manager, other than our own, that has written the status since the entries in known, or "". All
// times that it compares are of the server's clock. An entry that is older than the object itself came with it from a
// backup.
func rival(own string, known []metav1.ManagedFieldsEntry, after metav1.Object) string {
	created := after.GetCreationTimestamp()
	for _, entry := range after.GetManagedFields() {
		if entry.Manager == own || entry.Subresource != "status" || entry.Time.Before(&created) {
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
