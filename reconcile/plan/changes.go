package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// report says what has been recorded.
func (r *recorder) report() (*Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report, inexactHere := &Report{Events: r.events}, maps.Clone(r.inexact)
	pods := adoptions{known: make(map[types.UID]tally)}
	for _, one := range r.changes {
		c, err := one.change(pods.compared(one))
		if err != nil {
			return nil, err
		}
		pods.after(one)
		r.drawn.mark(&c)
		report.Changes = append(report.Changes, c)
		if custom, err := one.changesCustomPods(); err != nil {
			return nil, err
		} else if custom {
			const why = "its pod template is another one, and what becomes of its pods is not known"
			inexactHere[inexact{one.resource, why}]++
		}
	}
	changes, err := ordered(r.changes, report.Changes)
	if err != nil {
		return nil, err
	}
	report.Changes, report.Unlisted = changes, unlisted(r.changes)
	r.sayRefusedLocked(report)
	for one, n := range inexactHere {
		report.Approximate = append(report.Approximate,
			Approximation{one.resource.Resource, one.resource.Group, one.why, n})
	}
	slices.SortFunc(report.Approximate, func(a, b Approximation) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Why, b.Why),
			cmp.Compare(a.Times, b.Times)) // of two versions
	})
	for at, w := range r.writes {
		if max(w.n, w.changes) < loopAfter {
			continue
		}
		loop, err := w.loop(at)
		if err != nil {
			return nil, err
		}
		report.HotLoops = append(report.HotLoops, loop)
	}
	slices.SortFunc(report.HotLoops, func(a, b HotLoop) int {
		return cmp.Or(a.Object.compare(b.Object), cmp.Compare(a.Subresource, b.Subresource))
	})
	report.Missing = slices.SortedFunc(maps.Keys(r.missing), Right.compare)
	for resource := range r.unserved {
		report.Unserved = append(report.Unserved, resource.Resource+"."+resource.Version+"."+resource.Group)
	}
	slices.Sort(report.Unserved)
	return report, nil
}

// sayRefusedLocked adds the refused requests. r.mu is held.
func (r *recorder) sayRefusedLocked(report *Report) {
	for one, n := range r.refused {
		report.Refused = append(report.Refused, Refusal{Verb: one.verb, Subresource: one.subresource,
			Object: Object{one.resource.GroupVersion().String(), one.resource.Resource, one.namespace, one.name},
			Code:   one.code, Reason: one.reason, Message: one.message, Times: n})
	}
	slices.SortFunc(report.Refused, func(a, b Refusal) int {
		return cmp.Or(a.Object.compare(b.Object), cmp.Compare(a.Verb, b.Verb),
			cmp.Compare(a.Subresource, b.Subresource), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
}

// change says what a recorded change is. before and now are what decides which pods it restarts: see adoptions.
func (one *recorded) change(before, now reconciletest.Object) (Change, error) {
	last := cmp.Or[reconciletest.Object](one.now, one.old)
	c := Change{Wave: one.wave, Verb: one.verb, Object: objectOf(one.resource, last), By: one.by, Writes: one.writes}
	if one.status {
		c.Subresource = "status"
	}
	var err error
	if one.verb == "create" || one.verb == "update" {
		if c.Fields, err = changed(one.old, one.now); err != nil {
			return c, err
		}
	}
	if one.verb == "update" && one.apart { // in between others may have written the other part
		c.Fields = slices.DeleteFunc(c.Fields, func(f Field) bool { return isStatus(f.Path) != one.status })
	}
	if one.verb == "delete" || one.verb == "remove" {
		c.LosesData = losesData(one.resource.GroupResource())
		if one.now != nil {
			c.Waits = one.now.GetFinalizers()
		}
	}
	c.LosesData = c.LosesData || scalesDataAway(one)
	c.Restarts, err = restarts(one, before, now)
	return c, err
}

// changesCustomPods reports whether the change is one of a pod template in a custom resource.
func (one *recorded) changesCustomPods() (bool, error) {
	if _, custom := one.old.(*unstructured.Unstructured); !custom || one.verb != "update" || one.status {
		return false, nil
	}
	was, err1 := treeOf(one.old)
	is, err2 := treeOf(one.now)
	return changesPods(was["spec"], is["spec"]), errors.Join(err1, err2) // the object itself is no template
}

func isStatus(path string) bool { return path == "status" || strings.HasPrefix(path, "status.") }

func objectOf(r schema.GroupVersionResource, o reconciletest.Object) Object {
	kind := cmp.Or(o.GetObjectKind().GroupVersionKind().Kind, r.Resource)
	return Object{r.GroupVersion().String(), kind, o.GetNamespace(), o.GetName()}
}

// loop says what a hot loop is.
func (w *rewrites) loop(at place) (HotLoop, error) {
	loop := HotLoop{Object: Object{w.resource.GroupVersion().String(), at.resource.Resource, at.Namespace, at.Name},
		Writes: max(w.n, w.changes), Changes: w.changes, Seconds: w.last.Sub(w.first).Seconds()}
	if at.status {
		loop.Subresource = "status"
	}
	fields, err := changed(w.was, w.is)
	for _, f := range fields {
		loop.Fields = append(loop.Fields, f.Path)
	}
	return loop, err
}

// makes are what the controllers of a cluster make of new objects, which no report lists.
var makes = map[schema.GroupResource]string{
	{Resource: "services"}:                    "EndpointSlices",
	{Resource: "persistentvolumeclaims"}:      "PersistentVolumes",
	{Resource: "namespaces"}:                  "their default ServiceAccount and ConfigMap",
	{Group: "apps", Resource: "deployments"}:  "ReplicaSets and Pods",
	{Group: "apps", Resource: "replicasets"}:  "Pods",
	{Group: "apps", Resource: "statefulsets"}: "ControllerRevisions, Pods and PersistentVolumeClaims",
	{Group: "apps", Resource: "daemonsets"}:   "ControllerRevisions and Pods",
	{Group: "batch", Resource: "jobs"}:        "Pods",
	{Group: "batch", Resource: "cronjobs"}:    "Jobs",
}

// unlisted says what a cluster makes of new objects, once for a resource. Those that the program has deleted again do
// not count.
func unlisted(all []*recorded) (says []string) {
	objects := map[types.UID]schema.GroupResource{}
	for _, one := range all {
		switch r := one.resource.GroupResource(); {
		case one.verb == "delete" || one.verb == "remove":
			delete(objects, uidOf(one))
		case one.verb == "create" && makes[r] != "" && !isWithoutEndpoints(one.now):
			objects[uidOf(one)] = r
		}
	}
	made := map[schema.GroupResource]int{}
	for _, r := range objects {
		made[r]++
	}
	for r, n := range made {
		says = append(says, fmt.Sprintf("%s of new %s (%d)", makes[r], r, n))
	}
	slices.Sort(says)
	return says
}

// isWithoutEndpoints reports whether an object is a Service for which a cluster makes no EndpointSlices.
func isWithoutEndpoints(o reconciletest.Object) bool {
	s, ok := o.(*corev1.Service)
	return ok && (len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName)
}
