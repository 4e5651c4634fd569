package reconciletest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// Base is a cluster that a server is a fork of. The server reads a resource from it once, when a request first names
// the resource, and holds what is written since then itself; the base is never written to. Discovery is the base's.
//
// A fork serves every kind that the base serves, those that are not modelled included, and refuses no field: what it
// does not do as a real server would, it does without, and tells the base's Approximate. Package
// github.com/thermostat-go/thermostat/reconcile/plan has a Base that is a live cluster.
//
// The server calls the methods on the goroutine of a request and without a lock, at the same time for several requests.
// An error is the answer to the request; the next request tries again.
type Base interface {
	// Resource says how the base serves a resource.
	Resource(ctx context.Context, r schema.GroupVersionResource) (BaseResource, error)
	// Objects calls each for each object of a resource, as JSON, in one namespace or, if that is empty, in all, as they
	// were at the version that it returns.
	Objects(ctx context.Context, r schema.GroupVersionResource, namespace string, each func(object []byte) error) (
		version int64, err error)
	// Document answers a request for a path that is that of no resource, such as discovery.
	Document(req *http.Request) (*http.Response, error)
	// Wrote is told of each write to the fork, those of its garbage collector included, in no fixed order. The garbage
	// collector waits until the channel is closed that it returns, if it returns one: a Base that wants to know what
	// goes with a deleted object asks the fork for those resources meanwhile, so that it has read them.
	Wrote(w BaseWrite) (looked <-chan struct{})
	// Admit says whether the base would take a write of a client, and what it would make of it. The fork asks before it
	// makes the write, and also about a write that is a dry run itself. opts are those of a deletion. An error is the
	// answer to the client.
	Admit(ctx context.Context, w BaseWrite, opts *metav1.DeleteOptions) (BaseAnswer, error)
	// Approximate is told why the base may have answered a request otherwise.
	Approximate(r Request, why string)
}

// BaseResource says how a [Base] serves a resource.
type BaseResource struct {
	Kind          string
	ClusterScoped bool
	// Listed: the objects can be listed. Without that the fork refuses every request for the resource.
	Listed bool
	// Status: there is a status subresource.
	Status bool
	// Definition is the CustomResourceDefinition as JSON. Nil: it is no custom resource, or its definition is unknown.
	Definition []byte
}

// BaseWrite is one write to a fork. The objects are the server's: read only.
type BaseWrite struct {
	Request // with the name of the object, also for a creation
	// By is the field manager, or the controller of the server itself.
	By string
	// Old is nil for a creation, New for a deletion.
	Old, New Object
	// StatusApart: requests for the object leave its status as it is, and those for its status leave the rest.
	StatusApart bool
}

// fork is what a server has beside others that has a base. A nil fork is that of a server without one.
type fork struct {
	server *Server
	base   Base
	// known are the types of Kubernetes: scheme.Scheme may have been added to, by the program of a test or of a plan.
	known *runtime.Scheme

	turn chan struct{} // has a value while a resource is read, one after the other

	mu      sync.Mutex
	read    map[schema.GroupResource]map[string]bool // guarded by mu: the namespaces in which it was; "": all
	written map[types.UID]bool                       // guarded by mu: of objects that the fork has written or deleted
	writing int                                      // guarded by mu: writes that the base has not been told of yet
	looking []<-chan struct{}                        // guarded by mu: what the garbage collector waits for
}

func newFork(s *Server, base Base) *fork {
	crds := s.resources.of(definitions)
	crds.terminate, crds.inexact = nil, "the kinds that are served stay those of the cluster"
	crds.guard = func(o, old *unstructured.Unstructured) error {
		if o == nil || old != nil {
			return nil
		}
		d, err := parseDefinition(o)
		if err == nil {
			establish(o, d.storage())
		}
		return err
	}
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		panic(err) // client-go's own types do not collide
	}
	s.store.compacted = 0 // versions that the base has given out are as good as its own
	return &fork{server: s, base: base, known: known, turn: make(chan struct{}, 1),
		read: make(map[schema.GroupResource]map[string]bool), written: make(map[types.UID]bool)}
}

// prepare reads what the answer to a request depends on.
func (f *fork) prepare(ctx context.Context, r Request) error {
	if err := f.open(ctx, r.Resource, r.Namespace); err != nil || !r.Writes() && !r.DryRun {
		return err
	}
	needed := []schema.GroupVersionResource{mutatingConfigurations, validatingConfigurations}
	if r.Namespace != "" {
		needed = append(needed, namespaces)
	}
	for _, also := range needed {
		err := f.open(ctx, also, "")
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
			f.base.Approximate(r, fmt.Sprintf("%s cannot be read: %v", also.Resource, err))
		case err != nil:
			return err
		}
	}
	return nil
}

// open reads a resource, unless it has been read: in all namespaces or, if the base forbids that, in one.
func (f *fork) open(ctx context.Context, gvr schema.GroupVersionResource, namespace string) error {
	if f.isOpen(gvr, namespace) {
		return nil
	}
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.turn }()
	if f.isOpen(gvr, namespace) {
		return nil
	}
	r, err := f.resource(ctx, gvr)
	if err != nil {
		return err
	}
	err = f.fill(ctx, r, "")
	if apierrors.IsForbidden(err) && namespace != "" && !r.ClusterScoped {
		err = f.fill(ctx, r, namespace)
	}
	return err
}

func (f *fork) isOpen(gvr schema.GroupVersionResource, namespace string) bool {
	return f.server.resources.of(gvr) != nil && !f.knowsNot(gvr.GroupResource(), namespace)
}

// knowsNot reports whether a fork has not read a resource in a namespace, or, if that is empty, as a whole.
func (f *fork) knowsNot(r schema.GroupResource, namespace string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.read[r][""] && !f.read[r][namespace]
}

// fill reads the objects of a resource into the store.
func (f *fork) fill(ctx context.Context, r *Resource, namespace string) error {
	from := r
	if r.family != nil { // an object that is stored in another version would be converted at its next write
		of, err := r.family.now()
		if err != nil {
			return err
		}
		if stored := r.family.versions[of.storage()]; f.server.resources.of(stored.GroupVersionResource) != nil {
			from = stored
		}
	}
	var objects []object
	version, err := f.base.Objects(ctx, from.GroupVersionResource, namespace, func(data []byte) error {
		o, err := f.decode(from, data)
		if err == nil {
			objects = append(objects, o)
		}
		return err
	})
	if err != nil {
		return err
	}
	f.server.store.seed(r.GroupResource(), objects, version)
	f.mu.Lock()
	if f.read[r.GroupResource()] == nil {
		f.read[r.GroupResource()] = make(map[string]bool)
	}
	f.read[r.GroupResource()][namespace] = true
	f.mu.Unlock()
	f.server.collector.wrote(nil) // which may have waited for these
	return nil
}

// decode reads an object of the base. It is taken as it is: the base has filled in what there is to be filled in.
func (f *fork) decode(r *Resource, data []byte) (object, error) {
	if r.custom() {
		u := r.make().(*unstructured.Unstructured)
		kind := u.GroupVersionKind()
		if err := utiljson.Unmarshal(data, &u.Object); err != nil {
			return nil, err
		}
		u.SetGroupVersionKind(kind)
		return u, nil
	}
	o, unknown, err := f.server.read(r, runtime.ContentTypeJSON, data)
	for _, field := range unknown {
		f.base.Approximate(Request{Verb: "get", Resource: r.GroupVersionResource, Namespace: o.GetNamespace(),
			Name: o.GetName()}, fmt.Sprintf("%v: the cluster is newer than this program, which leaves it out", field))
	}
	return o, err
}

// resource returns a resource, which it begins to serve if the base has it.
func (f *fork) resource(ctx context.Context, gvr schema.GroupVersionResource) (*Resource, error) {
	if r := f.server.resources.of(gvr); r != nil {
		return r, nil
	}
	said, err := f.base.Resource(ctx, gvr)
	switch {
	case err != nil:
		return nil, err
	case !said.Listed:
		return nil, notModelled("%s, which cannot be listed", gvr)
	}
	for other := range f.server.resources.all() {
		switch {
		case other.GroupResource() != gvr.GroupResource():
		case f.server.store.floor(gvr.GroupResource()) > 0:
			return nil, notModelled("%s in two versions, %s and %s", gvr.GroupResource(), other.Version, gvr.Version)
		default: // it is modelled in a version that nobody has asked for
			f.server.resources.remove(other)
		}
	}
	if said.Definition != nil {
		if err := f.define(said.Definition, gvr); err == nil {
			return f.server.resources.of(gvr), nil
		} else {
			return f.undefined(gvr, said, fmt.Sprintf("its schema is not modelled: %v", err))
		}
	}
	if f.known.Recognizes(gvr.GroupVersion().WithKind(said.Kind)) {
		return f.typed(gvr, said)
	}
	return f.undefined(gvr, said, "its schema is unknown")
}

// undefined serves a resource of whose fields nothing is known.
func (f *fork) undefined(gvr schema.GroupVersionResource, said BaseResource, why string) (*Resource, error) {
	r := &Resource{GroupVersionResource: gvr, Kind: said.Kind, ClusterScoped: said.ClusterScoped, Status: said.Status,
		inexact: why + ": no defaults, no pruning, no validation, and lists are merged as a whole"}
	return r, install(f.server, r)
}

// typed serves a kind of Kubernetes that is not modelled: with its fields, and without its rules.
func (f *fork) typed(gvr schema.GroupVersionResource, said BaseResource) (*Resource, error) {
	gvk := gvr.GroupVersion().WithKind(said.Kind)
	o, err := f.known.New(gvk)
	if err != nil {
		return nil, err
	}
	if _, ok := o.(object); !ok {
		return nil, notModelled("%s, whose kind %s is that of no object", gvr, said.Kind)
	}
	kind := reflect.TypeOf(o).Elem()
	has := func(name string) bool { _, ok := kind.FieldByName(name); return ok }
	r := &Resource{
		GroupVersionResource: gvr, Kind: said.Kind, ClusterScoped: said.ClusterScoped,
		Status:  said.Status && has("Spec") && has("Status"),
		inexact: "its defaults and its validation are not modelled",
		builtin: &rules{
			new:        func() object { return reflect.New(kind).Interface().(object) },
			generation: has("Spec"),
			defaults:   defaultTemplate,
			keeps:      keepGeneration,
			onCreate:   func(o object) { keepGeneration(o, nil) },
			onUpdate:   countTemplate,
		},
	}
	return r, install(f.server, r)
}

// keepGeneration gives a DaemonSet the annotation that counts the changes of its template, and belongs to the server.
func keepGeneration(o, live object) {
	is, ok := o.(*appsv1.DaemonSet)
	if !ok || is.Annotations[appsv1.DeprecatedTemplateGeneration] != "" {
		return
	}
	generation := "1"
	if live != nil {
		if generation = live.GetAnnotations()[appsv1.DeprecatedTemplateGeneration]; generation == "" {
			return
		}
	}
	if is.Annotations == nil {
		is.Annotations = map[string]string{}
	}
	is.Annotations[appsv1.DeprecatedTemplateGeneration] = generation
}

// countTemplate counts a change of the template of a DaemonSet.
func countTemplate(o, live object) {
	is, ok := o.(*appsv1.DaemonSet)
	if !ok {
		return
	}
	was := live.(*appsv1.DaemonSet)
	generation, err := strconv.Atoi(was.Annotations[appsv1.DeprecatedTemplateGeneration])
	if err != nil {
		return // it has none
	}
	if !apiequality.Semantic.DeepEqual(is.Spec.Template, was.Spec.Template) {
		generation++
	}
	if is.Annotations == nil {
		is.Annotations = map[string]string{}
	}
	is.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.Itoa(generation)
}

// defaultTemplate fills in the pod template of a kind that is not modelled, and what else a DaemonSet leaves open: an
// update of the whole object would seem to restart its pods.
func defaultTemplate(o object) {
	if d, ok := o.(*appsv1.DaemonSet); ok {
		orValue(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
		if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
			orDefault(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
			orDefault(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
			orDefault(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
		}
		orDefault(&d.Spec.RevisionHistoryLimit, 10)
	}
	spec := reflect.ValueOf(o).Elem().FieldByName("Spec")
	if !spec.IsValid() || spec.Kind() != reflect.Struct {
		return
	}
	if template := spec.FieldByName("Template"); template.IsValid() && template.CanAddr() {
		if t, ok := template.Addr().Interface().(*corev1.PodTemplateSpec); ok {
			defaultPodSpec(&t.Spec)
		}
	}
}

// define serves a custom resource in all of its versions. What goes by a webhook is served in one.
func (f *fork) define(manifest []byte, gvr schema.GroupVersionResource) error {
	read, err := ReadCRDs(manifest)
	if err != nil {
		return err
	}
	var served []*Resource
	for i := range read {
		r := &read[i]
		if f.server.rules == nil && r.schema.ruled {
			r.schema.ruled, r.inexact = false, "its rules in CEL are not checked"
		}
		if err := r.compileRules(f.server.rules); err != nil {
			return err
		}
		if err := r.manageFields(f.server.types); err != nil {
			return err
		}
		served = append(served, r)
	}
	at := slices.IndexFunc(served, func(r *Resource) bool { return r.GroupVersionResource == gvr })
	if at < 0 {
		return fmt.Errorf("its definition does not serve %s", gvr.Version)
	}
	d := served[at].of
	if d.Spec.Conversion.Strategy == "Webhook" && len(d.Spec.Versions) > 1 {
		served[at].of = nil
		f.server.resources.add(served[at])
		return nil
	}
	crd := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(manifest, &crd.Object); err != nil {
		return err
	}
	f.server.store.seed(definitions.GroupResource(), []object{crd}, 0)
	if err := join(f.server, d, served); err != nil {
		return err
	}
	for _, r := range served {
		f.server.resources.add(r)
	}
	return nil
}

// refuse returns an error for what is not modelled. A fork goes on, and says so if the write changes such a field.
func (f *fork) refuse(c *call, o, live object) error {
	if f == nil {
		return c.resource.refuse(o)
	}
	switch {
	case c.resource.inexact != "" && live != nil && sameBeyondMetadata(o, live):
	case c.resource.inexact != "":
		f.base.Approximate(c.Request, c.resource.inexact)
	case !c.resource.custom():
		if what := inexactField(c.resource, o, live); what != "" {
			f.base.Approximate(c.Request, what+" is not modelled: neither its defaults nor its validation")
		}
	}
	return nil
}

// permit refuses a write before it is worked on: what is not modelled of the object, or around it. A fork asks its
// base, or goes on, and says so.
func permit(s *Server, c *call, o, live object) error {
	if err := s.fork.admit(newAdmission(s, c, o, live)); err != nil || c.asked {
		return err
	}
	if err := s.fork.refuse(c, o, live); err != nil {
		return err
	}
	err := mayBind(c, o, live)
	if err == nil && live == nil {
		err = constrained(s, c)
	}
	if s.fork != nil && isNotModelled(err) {
		s.fork.base.Approximate(c.Request, err.Error())
		return nil
	}
	return err
}

// unchanging reports whether a write changes nothing but who manages which field.
func unchanging(o, live object) bool {
	is := copyOf(o)
	is.SetResourceVersion(live.GetResourceVersion())
	is.SetManagedFields(live.GetManagedFields())
	return apiequality.Semantic.DeepEqual(is, live)
}

// sameBeyondMetadata reports whether a write changes nothing but metadata, which is the same for every kind.
func sameBeyondMetadata(o, live object) bool {
	is, was, err := beyondMetadata(o, live)
	return err == nil && apiequality.Semantic.DeepEqual(is, was)
}

// beyondMetadata returns what two objects hold beside their metadata. The second one may be nil.
func beyondMetadata(o, live object) (is, was map[string]any, err error) {
	if is, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o); err != nil {
		return nil, nil, err
	}
	was = map[string]any{}
	if live != nil {
		if was, err = runtime.DefaultUnstructuredConverter.ToUnstructured(live); err != nil {
			return nil, nil, err
		}
	}
	is, was = maps.Clone(is), maps.Clone(was) // those of a custom resource are its own
	for _, shared := range []string{"apiVersion", "kind", "metadata"} {
		delete(is, shared)
		delete(was, shared)
	}
	return is, was, nil
}

// inexactField returns a field that is not modelled and that is not the same in both objects; empty: there is none.
func inexactField(r *Resource, o, live object) string {
	is, was, err := beyondMetadata(o, live)
	if err != nil {
		return err.Error()
	}
	fields := modelledFields[r.GroupVersionResource.Resource]
	added, removed := without(is, was), without(was, is)
	return cmp.Or(fields.beyond("", added), fields.beyond("", removed))
}

// without returns what of a value is not the same in another one; nil: everything is.
func without(value, other any) any {
	is, ok := value.(map[string]any)
	was, ok2 := other.(map[string]any)
	if !ok || !ok2 {
		if apiequality.Semantic.DeepEqual(value, other) {
			return nil
		}
		return value
	}
	rest := map[string]any{}
	for name, v := range is {
		if left := without(v, was[name]); left != nil {
			rest[name] = left
		}
	}
	return rest
}

// validate says what is wrong with an object. The checks of a kind are made for objects that are modelled: of another
// one a fork believes only those that compare it with what it was.
func (f *fork) validate(c *call, o, old object) field.ErrorList {
	r := c.resource
	if c.asked && (old == nil || !c.askedAsNew && !f.changed(old)) {
		return nil // the base has compared it with what it was
	}
	errs := r.validate(o, old)
	if f == nil || len(errs) == 0 || r.custom() || !c.asked && r.refuse(o) == nil {
		return errs
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		// Of a pod, fields that are not modelled may change.
		return old == nil || r.GroupVersionResource == pods ||
			err.Type != field.ErrorTypeForbidden && !strings.Contains(err.Detail, "immutable")
	})
}

// changed reports whether the fork has written to an object, which the base has in another state then.
func (f *fork) changed(o object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.written[o.GetUID()]
}

// begin is called before a write, and the function that it returns when the base has been told of it.
func (f *fork) begin() (end func()) {
	if f == nil {
		return func() {}
	}
	add := func(n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.writing += n
	}
	add(1)
	return func() { add(-1) }
}

// wrote tells the base of a write. last is the object as it is now or, if it is gone, as it was at the end.
func (f *fork) wrote(c *call, was, last object, gone bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.written[last.GetUID()] = true
	f.mu.Unlock()
	w := BaseWrite{Request: c.Request, By: c.controller, Old: was, New: last, StatusApart: c.resource.Status}
	if w.Name = last.GetName(); c.link != nil {
		w.By = c.manager()
	}
	if gone {
		w.New = nil
	}
	if looked := f.base.Wrote(w); looked != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.looking = append(f.looking, looked)
	}
}

// isLooked reports whether the garbage collector may begin.
func (f *fork) isLooked() bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looking = slices.DeleteFunc(f.looking, func(looked <-chan struct{}) bool {
		select {
		case <-looked:
			return true
		default:
			return false
		}
	})
	return f.writing == 0 && len(f.looking) == 0
}

// isVersion reports whether a reference to an apiVersion is to a resource. A fork may serve one version of several.
func (f *fork) isVersion(r *Resource, apiVersion string) bool {
	if f == nil {
		return r.GroupVersion().String() == apiVersion
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	return err == nil && gv.Group == r.Group
}

// isGone reports whether an owner that the fork does not have is gone for certain: the fork itself has deleted it. It
// may not have read it otherwise, or have read its kind before the owner was made, and its dependents afterwards.
func (f *fork) isGone(owner types.UID) bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.written[owner]
}

// leaves reports whether the garbage collector leaves an object alone, since the cluster's own has to say what becomes
// of it: the object is as it came from the base, and so are its owners. A claim may be in use by a pod that has not
// been read.
func (f *fork) leaves(i item) bool {
	switch {
	case f == nil:
		return false
	case i.deleting() && i.has(claimProtection) && f.knowsNot(pods.GroupResource(), i.GetNamespace()):
		return true
	case !f.server.store.seeded(i.resource.GroupResource(), keyOf(i)):
		return false
	case i.deleting():
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ref := range i.GetOwnerReferences() {
		if f.written[ref.UID] {
			return false
		}
	}
	return true
}
