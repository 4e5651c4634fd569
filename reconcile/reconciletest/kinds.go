package reconciletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// This file has the kinds that come and go while the server runs, with their CustomResourceDefinitions. As on a real
// server, a kind is served a moment after the creation of its definition, and a deleted definition goes when all of the
// kind's objects are gone, which the server deletes for that.

// cleanup is the finalizer of a definition whose objects are to be deleted first.
const cleanup = "customresourcecleanup.apiextensions.k8s.io"

// Install creates one of [Options.Uninstalled], by the name of the CustomResourceDefinition such as
// "backups.example.com", as somebody does who installs it, and returns when its kind is served. It fails the test if
// there is no such manifest.
func (s *Server) Install(name string) {
	s.t.Helper()
	manifest, ok := s.uninstalled[name]
	if !ok {
		s.t.Fatalf("reconciletest: there is no CustomResourceDefinition %s in Options.Uninstalled", name)
	}
	if err := applyDocument(context.Background(), s, string(manifest)); err != nil {
		s.t.Fatalf("reconciletest: install %s: %v", name, err)
	}
}

// awaitKind waits until a definition has been established.
func awaitKind(ctx context.Context, s *Server, name string) error {
	for {
		s.store.mu.Lock()
		changed, stopped := s.store.changed, s.store.stopped
		s.store.mu.Unlock()
		if stopped || established(s, name) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func established(s *Server, name string) bool {
	u, ok := s.store.get(definitions.GroupResource(), keyOfName(name)).(*unstructured.Unstructured)
	return ok && conditionStatus(u, "Established") == "True"
}

// readUninstalled reads the manifests of definitions that are not there at first.
func readUninstalled(s *Server, o Options) error {
	if o.Base != nil && len(o.Uninstalled) > 0 {
		return errors.New("uninstalled custom resources: a fork serves the kinds of its base")
	}
	s.uninstalled = make(map[string][]byte)
	err := eachManifest(o.Uninstalled, func(document []byte) error {
		read, err := ReadCRDs(document)
		for _, r := range read {
			if s.resources.of(r.GroupVersionResource) != nil {
				return fmt.Errorf("%s is in Options.CRDs as well", r.of.Metadata.Name)
			}
			s.uninstalled[r.of.Metadata.Name] = document
			s.resources.note(&r)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("uninstalled custom resources: %w", err)
	}
	if len(o.Uninstalled) > 0 && len(s.uninstalled) == 0 {
		return fmt.Errorf("uninstalled custom resources: there are no CustomResourceDefinitions in %v", o.Uninstalled)
	}
	return nil
}

// defined reads the resources of a definition that came while the server runs.
func defined(s *Server, u *unstructured.Unstructured) (of *definition, served []*Resource, err error) {
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, nil, err
	}
	read, err := ReadCRDs(data)
	if err != nil {
		return nil, nil, err
	}
	before := s.resources.noted()
	for i := range read {
		r := &read[i]
		if was := before[r.GroupVersionResource]; was != nil { // what the test has said of it
			r.Default, r.Validate = was.Default, was.Validate
		}
		if err := cmp.Or(r.compileRules(s.rules), r.manageFields(s.types)); err != nil {
			return nil, nil, err
		}
		served = append(served, r)
	}
	of = served[0].of // ReadCRDs refuses a definition of which no version is served
	for _, other := range s.resources.all() {
		switch {
		case ofKubernetes(of.Spec.Group):
			return nil, nil, fmt.Errorf("its group is one of Kubernetes itself: %s", otherKinds)
		case other.of == nil && other.Group == of.Spec.Group &&
			(other.GroupVersionResource.Resource == of.Spec.Names.Plural || other.Kind == of.Spec.Names.Kind):
			return nil, nil, fmt.Errorf("its names are those of %s, which the server has", other.GroupVersionResource)
		}
	}
	return of, served, join(s, of, served)
}

// taken returns the name of another definition that has one of the names of a new one, or "".
func taken(s *Server, of *definition) string {
	for _, o := range s.store.list(definitions.GroupResource(), s.Version()) {
		other, err := parseDefinition(o.(*unstructured.Unstructured))
		if err != nil || o.GetName() == of.Metadata.Name || other.Spec.Group != of.Spec.Group {
			continue
		}
		for _, name := range other.names() {
			if slices.Contains(of.names(), name) {
				return o.GetName()
			}
		}
	}
	return ""
}

// names returns all names by which a definition's kind is known.
func (d *definition) names() []string {
	n, kind := d.Spec.Names, strings.ToLower(d.Spec.Names.Kind)
	return append([]string{n.Plural, cmp.Or(n.Singular, kind), kind,
		cmp.Or(strings.ToLower(n.ListKind), kind+"list")}, n.ShortNames...)
}

// admitDefinition refuses a new definition that is not modelled, and gives one the status that it has at first.
func admitDefinition(s *Server, u *unstructured.Unstructured) error {
	of, _, err := defined(s, u)
	if err != nil {
		return notModelled("this CustomResourceDefinition: %v", err)
	}
	if other := taken(s, of); other != "" {
		return notModelled("this CustomResourceDefinition: one of its names is one of %s", other)
	}
	u.Object["status"] = map[string]any{"acceptedNames": map[string]any{"kind": "", "plural": ""}, "conditions": nil,
		"storedVersions": []any{of.storage()}}
	return nil
}

// serveKind begins to serve the kind of a definition.
func serveKind(s *Server, u *unstructured.Unstructured) (of *definition, err error) {
	of, served, err := defined(s, u)
	if err != nil {
		return nil, err
	}
	s.resources.define(of.Metadata.Name, u.GetUID())
	for _, r := range served {
		s.resources.add(r)
	}
	return of, nil
}

// announce says that the kind of a new definition is going to be served.
func announce(s *Server, u object) {
	if _, served, err := defined(s, u.(*unstructured.Unstructured)); err == nil {
		for _, r := range served {
			s.resources.note(r)
		}
	}
}

// withdraw no longer serves the kind of a definition.
func withdraw(s *Server, name string, uid types.UID) {
	if s.resources.definition(name) != uid {
		return
	}
	for gvr, r := range s.resources.all() {
		if r.of != nil && r.of.Metadata.Name == name {
			s.resources.note(r)
			s.resources.remove(gvr)
		}
	}
}

// comesLater reports whether a resource that is not served is one that comes later, or has gone.
func comesLater(s *Server, gr schema.GroupResource) bool {
	for gvr := range s.resources.noted() {
		if gvr.GroupResource() == gr {
			return true
		}
	}
	return false
}

// followDefinitions serves the kinds that the definitions in the store say, after a restore.
func followDefinitions(s *Server) error {
	if s.fork != nil {
		return nil // the kinds are those of the base
	}
	for _, r := range s.resources.all() {
		if r.of == nil {
			continue
		}
		o := s.store.get(definitions.GroupResource(), keyOfDefinition(r.of))
		if uid := s.resources.definition(r.of.Metadata.Name); o == nil || o.GetUID() != uid {
			withdraw(s, r.of.Metadata.Name, uid)
		}
	}
	for _, o := range s.store.list(definitions.GroupResource(), s.Version()) {
		u := o.(*unstructured.Unstructured)
		of, err := parseDefinition(u)
		if err == nil && conditionStatus(u, "Established") == "True" && s.resources.of(of.stored()) == nil {
			_, err = serveKind(s, u)
		}
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// terminateDefinition marks a definition that is deleted for the first time.
func terminateDefinition(o object) bool {
	if o.GetDeletionTimestamp() != nil {
		return false
	}
	u := o.(*unstructured.Unstructured)
	if !slices.Contains(u.GetFinalizers(), cleanup) {
		u.SetFinalizers(append(u.GetFinalizers(), cleanup))
	}
	setCondition(u, "Terminating", "True", "InstanceDeletionPending",
		"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
	return true
}

// keepDefinition does what the controllers of definitions do: it begins to serve the kind of a new one, and deletes the
// objects of one that is deleted. It reports whether it has something to do.
func (c *collector) keepDefinition(i item, items []item) bool {
	if c.server.fork != nil {
		return false // those are the base's
	}
	u := i.object.(*unstructured.Unstructured)
	isNew := !i.deleting() && conditionStatus(u, "Established") != "True"
	if !isNew && !(i.deleting() && i.has(cleanup)) {
		return false
	}
	next := u.DeepCopy()
	switch {
	case isNew:
		of, err := serveKind(c.server, u)
		if err != nil {
			return false // it was admitted
		}
		establish(next, of.storage())
	case setCondition(next, "Terminating", "True", "InstanceDeletionInProgress",
		"CustomResource deletion is in progress"):
	case !c.cleanUp(u.GetName(), items):
		return true
	default:
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == cleanup }))
		setCondition(next, "Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
	}
	call := c.as(i, "")
	if o, err := call.write(c.server, keyOf(u), u, next, false); err == nil && finished(o, u) {
		_, _ = call.remove(c.server, o)
	}
	return true
}

// cleanUp deletes the objects of a definition, past the webhooks as the real server does, and reports whether there are
// none left.
func (c *collector) cleanUp(name string, items []item) (empty bool) {
	empty = true
	for _, i := range items {
		if i.resource.of == nil || i.resource.of.Metadata.Name != name {
			continue
		}
		empty = false
		if !i.deleting() {
			call := c.as(i, "")
			call.unasked = true
			_, _, err := c.server.delete(call, &metav1.DeleteOptions{})
			c.heed(err)
		}
	}
	return empty
}

// admitKind refuses what is to be made of a kind whose definition is being deleted.
func admitKind(s *Server, c *call, name string) error {
	if c.resource.of == nil || s.fork != nil {
		return nil
	}
	u, ok := s.store.get(definitions.GroupResource(), keyOfDefinition(c.resource.of)).(*unstructured.Unstructured)
	if !ok || conditionStatus(u, "Terminating") != "True" {
		return nil
	}
	return apierrors.NewForbidden(c.Resource.GroupResource(), name, errors.New(
		"create not allowed while custom resource definition is terminating"))
}

// conditionStatus returns the status of a condition of a definition; empty: it has none.
func conditionStatus(u *unstructured.Unstructured, of string) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range conditions {
		if one, ok := one.(map[string]any); ok && one["type"] == of {
			status, _ := one["status"].(string)
			return status
		}
	}
	return ""
}

// setCondition sets a condition of a definition, at the end if it is a new one, and reports whether that is a change.
func setCondition(u *unstructured.Unstructured, of, status, reason, message string) (changed bool) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	condition := map[string]any{"type": of, "status": status, "reason": reason, "message": message,
		"lastTransitionTime": now().Format("2006-01-02T15:04:05Z")}
	at := slices.IndexFunc(conditions, func(one any) bool { return one.(map[string]any)["type"] == of })
	if at < 0 {
		conditions = append(conditions, condition)
	} else {
		was := conditions[at].(map[string]any)
		if was["status"] == status {
			condition["lastTransitionTime"] = was["lastTransitionTime"]
		}
		if reflect.DeepEqual(was, condition) {
			return false
		}
		conditions[at] = condition
	}
	_ = unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions") // or it has no status
	return true
}

// notServed is the answer to a request for a kind that comes later, or has gone.
func notServed() *http.Response {
	return answerText(http.StatusNotFound, "404 page not found\n")
}

func (d *definition) stored() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: d.Spec.Group, Version: d.storage(), Resource: d.Spec.Names.Plural}
}
