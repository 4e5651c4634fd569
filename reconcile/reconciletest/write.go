package reconciletest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// schemaless is the resource of errors that are about none.
var schemaless schema.GroupResource

// createObject answers a POST.
func (s *Server) createObject(c *call) (runtime.Object, error) {
	var opts metav1.CreateOptions
	if err := metav1.Convert_url_Values_To_v1_CreateOptions(&c.query, &opts, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateCreateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	o, err := s.decode(c, c.media, c.body, c.resource.cannotHandle)
	if err != nil {
		return nil, err
	}
	wipe(o)
	if err := sameNamespace(c, o); err != nil {
		return nil, err
	}
	c.resource.applyDefaults(o)
	keep(c.resource, o, nil)
	o = c.resource.fieldManagers[""].UpdateNoErrors(c.resource.make(), o, c.manager()).(object)
	if err := s.admitNamespace(c, o); err != nil {
		return nil, err
	}
	if err := newAdmission(s, c, o, nil).mutate(); err != nil {
		return nil, err
	}
	// A name that the server has made up may be taken; it then makes up another.
	again := copyOf(o)
	for attempt := 1; ; attempt++ {
		err := s.insert(c, o)
		if err == nil || attempt == 8 || !apierrors.IsAlreadyExists(err) || again.GetName() != "" ||
			again.GetGenerateName() == "" {
			return o, err
		}
		o = copyOf(again)
	}
}

// insert puts a new object into the store, after everything that is done to a new object.
func (s *Server) insert(c *call, o object) error {
	if err := cmp.Or(s.admitNamespace(c, o), admitKind(s, c, o.GetName())); err != nil {
		return err
	}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(s.generateName(c.resource.GroupResource().String(), o.GetNamespace(), o.GetGenerateName()))
	}
	o.SetUID(s.newUID())
	if err := permit(s, c, o, nil); err != nil {
		return err
	}
	if k := registered(c.resource); k != nil {
		return k.register(s, c, o)
	}
	o.SetCreationTimestamp(metav1.NewTime(now()))
	if c.resource.hasGeneration() {
		o.SetGeneration(1)
	}
	if c.resource.Status && (c.resource.custom() || !c.resource.builtin.statusAtCreation) {
		c.resource.keepStatus(o, nil)
	}
	if c.resource.schema != nil {
		// A status may have a default, which a real server fills in when it reads what it has stored.
		c.resource.schema.applyDefaults(o.(*unstructured.Unstructured).Object)
	}
	release, err := drawFor(s, c, o, nil)
	if err != nil {
		return err
	}
	defer release()
	if !c.resource.custom() && c.resource.builtin.onCreate != nil {
		c.resource.builtin.onCreate(o)
	}
	errs := s.fork.validate(c, o, nil)
	if len(errs) == 0 || c.resource.custom() || !c.resource.builtin.metadataLast {
		errs = append(errs, apivalidation.ValidateObjectMetaAccessor(o, !c.resource.ClusterScoped, validName,
			field.NewPath("metadata"))...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(c.resource.gvk().GroupKind(), o.GetName(), errs)
	}
	warn(c, o)
	if err := c.admitCreation(s, o); err != nil {
		return err
	}
	if err := c.settle(o, nil); err != nil {
		return err
	}
	return storeNew(s, c, o, c.resource.lend(o))
}

// storeNew stores a new object that nobody refuses, unless there is one of its name or it is a dry run.
func storeNew(s *Server, c *call, o object, lent bool) error {
	exists := apierrors.NewAlreadyExists(c.Resource.GroupResource(), o.GetName())
	if c.DryRun {
		if s.lookup(c.resource, keyOf(o)) != nil {
			return exists
		}
		return nil
	}
	if v := o.GetResourceVersion(); c.Verb == "create" && v != "" && v != "0" {
		return errors.New("resourceVersion should not be set on objects to be created")
	}
	o.SetResourceVersion("")
	written, err := c.write(s, keyOf(o), nil, copyOf(o), lent)
	switch {
	case errors.Is(err, errRaced):
		return exists
	case err != nil:
		return err
	}
	o.SetResourceVersion(written.GetResourceVersion())
	if c.resource.family != nil {
		assign(o, copyOf(written))
	}
	return nil
}

// admitCreation asks who may refuse a creation.
func (c *call) admitCreation(s *Server, o object) error {
	if c.link != nil && c.Verb != "create" { // an update or an apply that creates needs the right to create as well
		r := c.Request
		r.Verb = "create"
		if err := c.link.authorize(r, ""); err != nil {
			return err
		}
	}
	return newAdmission(s, c, o, nil).validate()
}

// now is the time as objects have it, in whole seconds.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// validName is the rule that all names in paths obey, and those of most kinds in addition that of DNS.
func validName(name string, prefix bool) []string {
	return append(validPathSegment(name, prefix), apivalidation.NameIsDNSSubdomain(name, prefix)...)
}

func validPathSegment(name string, prefix bool) (problems []string) {
	if !prefix && (name == "." || name == "..") {
		return []string{"may not be '" + name + "'"}
	}
	for _, part := range []string{"/", "%"} {
		if strings.Contains(name, part) {
			problems = append(problems, "may not contain '"+part+"'")
		}
	}
	return problems
}

// wipe takes out of a new object what only the server may say.
func wipe(o object) {
	o.SetUID("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetSelfLink("")
}

// sameNamespace puts the namespace of the request into an object that names none. What lives in none names none.
func sameNamespace(c *call, o object) error {
	switch {
	case o.GetNamespace() == c.Namespace:
	case o.GetNamespace() == "", c.Namespace == "":
		o.SetNamespace(c.Namespace)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on " +
			"the request")
	}
	return nil
}

// admitNamespace refuses what is to be made in a namespace that does not exist, or is about to go, or in another one
// than that of the request: a webhook may have changed it.
func (s *Server) admitNamespace(c *call, o object) error {
	if err := sameNamespace(c, o); err != nil {
		return err
	}
	if c.resource.ClusterScoped {
		return nil
	}
	if c.Namespace == "" {
		return apierrors.NewBadRequest("an empty namespace may not be set during creation")
	}
	namespace := s.lookup(s.resources.of(namespaces), types.NamespacedName{Name: c.Namespace})
	if namespace == nil && s.fork.knowsNot(namespaces.GroupResource(), "") {
		s.fork.base.Approximate(c.Request, "whether its namespace exists cannot be read")
		return nil
	}
	if namespace == nil {
		return apierrors.NewNotFound(namespaces.GroupResource(), c.Namespace)
	}
	if namespace.GetDeletionTimestamp() != nil {
		err := apierrors.NewForbidden(c.Resource.GroupResource(), o.GetName(),
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", c.Namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", c.Namespace), Field: "metadata.namespace",
		})
		return err
	}
	return nil
}

// updateObject answers a PUT.
func (s *Server) updateObject(c *call) (object, bool, error) {
	var opts metav1.UpdateOptions
	if err := metav1.Convert_url_Values_To_v1_UpdateOptions(&c.query, &opts, nil); err != nil {
		return nil, false, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateUpdateOptions(&opts); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "UpdateOptions"}, "",
			errs)
	}
	sent, err := s.decode(c, c.media, c.body, c.resource.cannotHandle)
	if err != nil {
		return nil, false, err
	}
	if err := sameNamespace(c, sent); err != nil {
		return nil, false, err
	}
	switch sent.GetName() {
	case "":
		return nil, false, apierrors.NewBadRequest(
			"the name of the object (based on URL) was undeterminable: resource name may not be empty")
	case c.Name:
	default:
		return nil, false, apierrors.NewBadRequest(
			fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", sent.GetName(), c.Name))
	}
	c.resource.applyDefaults(sent)
	uid := sent.GetUID()
	createOnUpdate := !c.resource.custom() && c.resource.builtin.createOnUpdate && c.Subresource == ""
	return s.change(c, createOnUpdate, func(live object) (object, error) {
		if uid != "" && (live == nil || live.GetUID() != uid) {
			var is types.UID
			if live != nil {
				is = live.GetUID()
			} else if !createOnUpdate {
				return nil, c.notFound()
			}
			return nil, apierrors.NewConflict(c.Resource.GroupResource(), c.Name,
				fmt.Errorf("the precondition failed: UID in precondition: %v, UID in object meta: %v", uid, is))
		}
		if live == nil {
			live = c.resource.make()
		} else {
			keep(c.resource, sent, live)
		}
		return c.resource.fieldManagers[c.Subresource].UpdateNoErrors(copyOf(live), copyOf(sent), c.manager()).(object),
			nil
	})
}

// change is modify, or, for the Scale of an object, modify of that.
func (s *Server) change(c *call, create bool, change func(live object) (object, error)) (object, bool, error) {
	if c.parent == nil {
		return s.modify(c, create, change)
	}
	parent := *c
	parent.resource = c.parent
	o, created, err := s.modify(&parent, false, s.throughScale(c, change))
	c.warnings = parent.warnings
	return o, created, err
}

// modify replaces an object by what change makes of it, or creates it if there is none and create is set. A change that
// names no resourceVersion is made again when somebody else was faster.
func (s *Server) modify(c *call, create bool, change func(live object) (object, error)) (o object, created bool,
	err error) {
	err = race(c, func() error {
		o, created, err = s.modifyOnce(c, create, change)
		return err
	})
	return o, created, err
}

func (s *Server) modifyOnce(c *call, create bool, change func(live object) (object, error)) (object, bool, error) {
	live, err := c.live(s, c.resource)
	if err != nil {
		return nil, false, err
	}
	if live == nil && !create {
		return nil, false, c.missing()
	}
	o, err := change(live)
	if err == nil && live == nil {
		err = s.admitNamespace(c, o)
	}
	if err == nil {
		err = newAdmission(s, c, o, live).mutate()
	}
	if err != nil {
		return nil, false, err
	}
	if live == nil {
		wipe(o)
		if !c.DryRun {
			o.SetResourceVersion("")
		}
		if err := s.insert(c, o); err != nil {
			return nil, false, err
		}
		return o, true, nil
	}
	o, err = s.replace(c, live, o)
	return o, false, err
}

// missing is the error of a write to an object that does not exist. A real server creates what has no spec yet if it is
// the status of a Service that is put or applied.
func (c *call) missing() error {
	if c.Subresource == "status" && !c.resource.custom() && c.resource.builtin.createOnUpdate &&
		(c.Verb == "update" || c.media == string(types.ApplyYAMLPatchType)) {
		return notModelled("the status of %s that do not exist", c.resource.GroupVersionResource.Resource)
	}
	return c.notFound()
}

// replace puts o in place of live, after everything that is done to an update.
func (s *Server) replace(c *call, live, o object) (object, error) {
	if k := registered(c.resource); k != nil {
		if err := cmp.Or(sameNamespace(c, o), permit(s, c, o, live)); err != nil {
			return nil, err
		}
		return k.update(s, c, live, o)
	}
	if err := expected(c, live, o); err != nil {
		return nil, err
	}
	if err := sameNamespace(c, o); err != nil { // a webhook may have changed it
		return nil, err
	}
	if err := permit(s, c, o, live); err != nil {
		return nil, err
	}
	release, err := putRight(s, c, o, live)
	if err != nil {
		return nil, err
	}
	defer release()
	if o.GetUID() == "" {
		o.SetUID(live.GetUID())
	}
	o.SetCreationTimestamp(live.GetCreationTimestamp())
	if t := live.GetDeletionTimestamp(); t != nil {
		o.SetDeletionTimestamp(t)
	}
	if grace := live.GetDeletionGracePeriodSeconds(); grace != nil && o.GetDeletionGracePeriodSeconds() == nil {
		o.SetDeletionGracePeriodSeconds(grace)
	}
	o.SetSelfLink("")
	metadata := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(o, !c.resource.ClusterScoped, validName, metadata)
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(o, live, metadata)...)
	if errs = append(errs, s.fork.validate(c, o, live)...); len(errs) > 0 {
		return nil, apierrors.NewInvalid(c.resource.gvk().GroupKind(), c.Name, errs)
	}
	warn(c, o)
	if err := newAdmission(s, c, o, live).validate(); err != nil {
		return nil, err
	}

	if finished(o, live) && (c.resource.custom() || c.resource.builtin.terminate == nil ||
		!c.resource.builtin.terminate(copyOf(o))) {
		if c.DryRun {
			return o, nil
		}
		_, err := c.remove(s, live)
		return o, err
	}
	if same(o, live) && !s.store.lent(c.resource.GroupResource(), live) && // what was filled in is stored now
		(c.resource.family == nil || !c.resource.family.outdated(c.key())) {
		return live, nil
	}
	if err := c.settle(o, live); err != nil {
		return nil, err
	}
	lent := c.resource.lend(o)
	if c.DryRun {
		return o, nil
	}
	return c.write(s, c.key(), live, o, lent)
}

// putRight gives an update what its client may not set, or has left out. The caller calls release when the update is
// written, or is not.
func putRight(s *Server, c *call, o, live object) (release func(), err error) {
	release = func() {}
	o.SetResourceVersion(live.GetResourceVersion())
	o.SetGeneration(live.GetGeneration())
	switch {
	case c.Subresource == "status":
		c.resource.keepAllButStatus(o, live)
		if !c.resource.custom() && c.resource.builtin.onStatus != nil {
			c.resource.builtin.onStatus(o, live)
		}
	case c.Subresource == finalize:
		c.resource.keepStatus(o, live)
	default:
		if c.resource.Status {
			c.resource.keepStatus(o, live)
		}
		if release, err = drawFor(s, c, o, live); err != nil {
			return nil, err
		}
		if !c.resource.custom() && c.resource.builtin.onUpdate != nil {
			c.resource.builtin.onUpdate(o, live)
		}
		if c.resource.hasGeneration() && c.resource.specChanged(o, live) {
			o.SetGeneration(live.GetGeneration() + 1)
		}
	}
	return release, nil
}

// drawFor gives an object what all of its kind share, until release is called: then it is stored, or given back. live
// is nil for a new one.
func drawFor(s *Server, c *call, o, live object) (release func(), err error) {
	if c.resource.custom() || c.resource.builtin.draw == nil {
		return func() {}, nil
	}
	return c.resource.builtin.draw(s, c, o, live)
}

// warn tells who writes what the kind warns of.
func warn(c *call, o object) {
	if !c.resource.custom() && c.resource.builtin.warn != nil {
		c.warnings = append(c.warnings, c.resource.builtin.warn(o, c.Subresource)...)
	}
}

// expected refuses an update that was made for another version, or for none where one is needed.
func expected(c *call, live, o object) error {
	switch v := o.GetResourceVersion(); {
	case v != "" && v != "0" && v != live.GetResourceVersion():
		return apierrors.NewConflict(c.Resource.GroupResource(), c.Name, errors.New(
			"the object has been modified; please apply your changes to the latest version and try again"))
	case v != "" && v != "0":
	case c.resource.custom() || c.resource.builtin.conditionalUpdate:
		return apierrors.NewInvalid(schema.GroupKind{Group: c.Resource.Group, Kind: c.Resource.Resource}, c.Name,
			field.ErrorList{
				field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	}
	return nil
}

// settle refuses what the resource has a guard against, and then makes the object what it is once it has been stored.
func (c *call) settle(o, live object) error {
	if c.resource.guard != nil {
		was, _ := live.(*unstructured.Unstructured)
		if err := c.resource.guard(o.(*unstructured.Unstructured), was); err != nil {
			return err
		}
	}
	if c.mutated && c.resource.schema != nil {
		c.resource.schema.prune(o.(*unstructured.Unstructured).Object)
	}
	if err := c.resource.settle(o); err != nil || !c.DryRun || c.resource.family == nil {
		return err
	}
	stored, err := c.resource.family.store(c, o) // as if it were stored and read again
	if err == nil {
		stored, err = c.show(c.resource, stored)
	}
	if err == nil {
		assign(o, copyOf(stored))
	}
	return err
}

// settle makes an object what it is once it has been stored: a list or a map that is empty is none, in an object of a
// built-in kind, which a real server stores as protobuf, and in the metadata of a custom resource.
func (r *Resource) settle(o object) error {
	type message interface {
		object
		Marshal() ([]byte, error)
		Unmarshal([]byte) error
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		_, err := pruneMetadata(u)
		return err
	}
	m := o.(message)
	data, err := m.Marshal()
	if err != nil {
		return err
	}
	stored := r.make().(message)
	if err := stored.Unmarshal(data); err != nil {
		return err
	}
	stored.GetObjectKind().SetGroupVersionKind(r.gvk())
	if set, ok := stored.(*appsv1.StatefulSet); ok {
		nameClaims(&set.Spec)
	}
	assign(o, stored)
	return nil
}

// assign makes an object what another one of its type is.
func assign(o, is object) { reflect.ValueOf(o).Elem().Set(reflect.ValueOf(is).Elem()) }

// lend fills in what everybody sees of an object beside what is stored, and reports whether there is such.
func (r *Resource) lend(o object) bool {
	return !r.custom() && r.builtin.lend != nil && r.builtin.lend(o)
}

// finished reports whether an update has removed the last thing that kept a deleted object.
func finished(o, live object) bool {
	grace := live.GetDeletionGracePeriodSeconds()
	return len(o.GetFinalizers()) == 0 && live.GetDeletionTimestamp() != nil && (grace == nil || *grace == 0)
}

// same reports whether a write changes nothing. When a manager has set its fields is not a change by itself.
func same(o, live object) bool {
	was, is := live.GetManagedFields(), o.GetManagedFields()
	timeless := func(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
		entries = slices.Clone(entries)
		for i := range entries {
			entries[i].Time = nil
		}
		return entries
	}
	if !apiequality.Semantic.DeepEqual(timeless(was), timeless(is)) {
		return false
	}
	o.SetManagedFields(was)
	equal := apiequality.Semantic.DeepEqual(o, live)
	if !equal {
		o.SetManagedFields(is)
	}
	return equal
}

// createNamespace is for the namespaces that are there from the beginning.
func createNamespace(s *Server, name string) error {
	c := &call{Request: Request{Resource: namespaces}, resource: s.resources.of(namespaces), userAgent: "apiserver"}
	o := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.resource.applyDefaults(o)
	return s.insert(c, o)
}
