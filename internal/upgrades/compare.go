package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/plan"
)

// write is one of the program, to an object by its full name.
type write struct {
	verb, resource, namespace, name string
	status                          bool
}

// effect is what has come of writes to an object: create, update, delete or status.
type effect struct {
	verb string
	object
}

func (e effect) String() string { return e.verb + " " + e.object.String() }

// writesOf are the writes of an account that were not refused.
func writesOf(log []entry, prefix string) (all []write) {
	for _, e := range log {
		if !e.writes() || !strings.HasPrefix(e.User.Username, prefix) || e.ResponseStatus.Code >= 300 {
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.APIGroup != "" {
			resource += "." + e.ObjectRef.APIGroup
		}
		all = append(all, write{e.Verb, resource, e.ObjectRef.Namespace, e.ObjectRef.Name,
			e.ObjectRef.Subresource == "status"})
	}
	return all
}

// plannedOf are the writes of a report, less those of the garbage collector.
func plannedOf(r *plan.Report, resources map[string]string) (all []write, err error) {
	for _, c := range r.Changes {
		if strings.Contains(c.By, "garbage") {
			continue
		}
		group, _, ok := strings.Cut(c.Object.APIVersion, "/")
		if !ok {
			group = ""
		}
		resource, ok := resources[c.Object.Kind+"."+group]
		if !ok {
			return nil, fmt.Errorf("no resource of the kind %s.%s", c.Object.Kind, group)
		}
		all = append(all, write{c.Verb, resource, c.Object.Namespace, c.Object.Name, c.Subresource == "status"})
	}
	return all, nil
}

// effects says what has come of writes.
func effects(before, after state, writes []write) (map[effect]bool, error) {
	found := map[effect]bool{}
	for name := range union(before, after) {
		was, is := before[name], after[name]
		by := func(status bool, verbs ...string) bool {
			return slices.ContainsFunc(writes, func(w write) bool {
				return w.resource == name.resource && w.status == status && slices.Contains(verbs, w.verb) &&
					(is != nil && w.isOf(is) || was != nil && w.isOf(was))
			})
		}
		switch {
		case is == nil || was != nil && was.GetUID() != is.GetUID():
			if by(false, "delete", "deletecollection", "remove", "update", "patch") {
				found[effect{"delete", name}] = true
			}
			was = nil
		}
		if is == nil {
			continue
		}
		if was == nil {
			if by(false, "create", "patch", "update") {
				found[effect{"create", name}] = true
			}
		} else if changed, err := differences(was, is, ""); err != nil {
			return nil, err
		} else if len(changed) > 0 && by(false, "update", "patch") {
			found[effect{"update", name}] = true
		}
		changed, err := differences(was, is, "status")
		if err != nil {
			return nil, err
		}
		if len(changed) > 0 && by(true, "update", "patch") {
			found[effect{"status", name}] = true
		}
	}
	return found, nil
}

// isOf reports whether a write was one to an object. The log does not know the name that a new one was given.
func (w write) isOf(o *unstructured.Unstructured) bool {
	if w.namespace != o.GetNamespace() {
		return false
	}
	return w.name == o.GetName() || w.name == "" && w.verb == "create" && o.GetGenerateName() != "" ||
		w.verb == "deletecollection"
}

func union(a, b state) map[object]bool {
	all := map[object]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

// ended are the pods that have gone, by their UIDs: a pod that has restarted is another one of the same name.
func ended(before, after state) map[types.UID]object {
	pods := map[types.UID]object{}
	for name, o := range before {
		if name.resource == "pods" {
			pods[o.GetUID()] = object{"pods", o.GetNamespace(), o.GetName()}
		}
	}
	for _, o := range after {
		delete(pods, o.GetUID())
	}
	return pods
}

// without are the pods that have ended here and not there.
func without(here, there map[types.UID]object) (all []string) {
	for uid, pod := range here {
		if _, ok := there[uid]; !ok {
			all = append(all, pod.String())
		}
	}
	slices.Sort(all)
	return all
}

// comparison is a prediction beside what has come.
type comparison struct {
	predicted, came          int
	missed, wrong            []string // effects: that came and were not predicted, and the other way round
	different                []string // fields of objects of which both have an effect
	fields                   int      // that were compared
	podsPredicted, podsEnded int      // by the report, and for real
	podsMissed, podsWrong    []string // that have ended for real and not on the fork, and the other way round
}

// compared compares the effects of a plan with those of a real run.
func compared(before, fork, real state, planned, written []write) (*comparison, error) {
	predicted, err := effects(before, fork, planned)
	if err != nil {
		return nil, err
	}
	came, err := effects(before, real, written)
	if err != nil {
		return nil, err
	}
	onFork, forReal := ended(before, fork), ended(before, real)
	c := &comparison{predicted: len(predicted), came: len(came), podsEnded: len(forReal),
		podsMissed: without(forReal, onFork), podsWrong: without(onFork, forReal)}
	for e := range came {
		if !predicted[e] {
			c.missed = append(c.missed, e.String())
		}
	}
	for e := range predicted {
		if !came[e] {
			c.wrong = append(c.wrong, e.String())
			continue
		}
		part := ""
		if e.verb == "status" {
			part = "status"
		}
		fields, err := differences(fork[e.object], real[e.object], part)
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			c.different = append(c.different, e.String()+": "+f)
		}
		all, err := comparable(real[e.object], part)
		if err != nil {
			return nil, err
		}
		c.fields += len(all)
	}
	slices.Sort(c.missed)
	slices.Sort(c.wrong)
	slices.Sort(c.different)
	return c, nil
}
