package informer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Resource is a client for one resource of an API server, whose objects are of type T. Make one with [NewResource]; its
// zero value is not useful. It is safe for concurrent use.
//
// A Resource is for all namespaces, or for cluster-scoped objects; [Resource.In] returns the one for a namespace. It is
// a [Client] for informers, and has the methods that the helpers of reconcile/objects call.
//
// Each method sends one request and retries nothing: in a Reconcile, return the error, and the loop tries again after
// the time that the server asks for in Retry-After. An error of the server is a *StatusError of package
// k8s.io/apimachinery/pkg/api/errors, whose functions, such as IsNotFound, work on it. An error of a Resource itself
// names the verb and the resource, and no value of an object. When ctx ends, so does the request.
type Resource[T Object] struct {
	endpoint endpoint
	format   format
}

// ResourceOptions may be left zero.
type ResourceOptions struct {
	// Kind is the kind of the objects. Empty: the name of the Go type, with a capital first letter: CronBackup for
	// *v1.CronBackup. It has no meaning for unstructured objects, which carry their kind, and for metadata.
	Kind string
}

// NewResource makes a client for a resource whose objects are of the Go type T. It needs no scheme, no generated client
// and no list type:
//
//	backups, err := informer.NewResource[*v1.CronBackup](cfg, v1.GroupVersion.WithResource("cronbackups"),
//		informer.ResourceOptions{})
//	pods, err := informer.NewResource[*corev1.Pod](cfg, corev1.SchemeGroupVersion.WithResource("pods"),
//		informer.ResourceOptions{})
//
// T is a pointer to a struct that embeds metav1.TypeMeta with the tag `json:",inline"` and metav1.ObjectMeta with the
// tag `json:"metadata,omitempty"`, and that has a method DeepCopyObject. [controller-gen] generates the method and the
// CustomResourceDefinition from markers above the package clause and above each type:
//
//	// +kubebuilder:object:generate=true
//	// +groupName=backups.example.com
//	package v1
//
//	// +kubebuilder:object:root=true
//	// +kubebuilder:subresource:status
//	type CronBackup struct { ... }
//
// It needs what the file imports, so run go mod tidy before:
//
//	go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=./api/... \
//		output:crd:dir=config/crd
//
// *unstructured.Unstructured is a T as well, for resources without a Go type, and so is *metav1.PartialObjectMetadata:
// then the server sends the metadata only.
//
// The client asks for protobuf if T can be decoded from it, as the types of k8s.io/api can, unless
// cfg.AcceptContentTypes or cfg.ContentType say otherwise; and for JSON if not. If cfg has no QPS and no RateLimiter
// there is no client-side limit: the server's priority and fairness limits its clients, and a request that it refuses
// for that reason is tried again later. If cfg has no UserAgent, it is the name of the program. cfg is not changed.
//
// NewResource sends no request. It returns an error that names everything that is wrong: a nil cfg, or one without
// Host; a resource that cannot be in a URL; a T that does not encode its metadata where the API has it, or whose
// DeepCopyObject returns another type, as one does that is inherited from an embedded struct; a T of k8s.io/api that
// belongs to another group, version or resource.
//
// [controller-gen]: https://book.kubebuilder.io/reference/controller-gen
func NewResource[T Object](cfg *rest.Config, gvr schema.GroupVersionResource, opts ResourceOptions) (*Resource[T],
	error) {
	objects, wrong := typeOf[T](gvr, opts)
	own, err := kube.ClientConfig(cfg)
	if err := errors.Join(checkResource(gvr), wrong, err); err != nil {
		return nil, fmt.Errorf("NewResource of %s: %w", gvr.Resource, err)
	}
	content, accept := contentTypes(own.ContentConfig, objects)
	r := &Resource[T]{
		endpoint: endpoint{gvr: gvr, accept: accept, metadata: objects.Item == metadataType},
		format:   format{objects: objects, version: gvr.GroupVersion().String(), content: content},
	}
	gv := gvr.GroupVersion()
	own.GroupVersion, own.APIPath, own.NegotiatedSerializer = &gv, "/apis", statusCodec
	if gvr.Group == "" {
		own.APIPath = "/api"
	}
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, "" // each request has its own
	if r.endpoint.client, err = rest.RESTClientFor(own); err != nil {
		return nil, fmt.Errorf("NewResource of %s: %w", gvr.Resource, err)
	}
	return r, nil
}

// statusCodec decodes the errors of servers, in JSON and protobuf. Objects do not pass it.
var statusCodec = func() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}()

// In returns the client for the objects of a namespace. It shares the connections of r. NamespaceAll, the empty one,
// stands for all namespaces, and for cluster-scoped objects. A name that no namespace can have is an error of every
// method of the client, and of an informer that is made with it.
func (r *Resource[T]) In(namespace string) *Resource[T] {
	if r == nil {
		return nil
	}
	in := *r
	in.endpoint = r.endpoint.in(namespace)
	return &in
}

// onlyMetadata returns the client for the metadata of the same objects.
func onlyMetadata[T Object](r *Resource[T]) *Resource[*metav1.PartialObjectMetadata] {
	of := &Resource[*metav1.PartialObjectMetadata]{endpoint: r.endpoint, format: r.format}
	of.endpoint.metadata, of.format.objects = true, wire.Type{Item: metadataType}
	return of
}

// Namespace returns the namespace that the client is for, or NamespaceAll.
func (r *Resource[T]) Namespace() string { return r.endpoint.namespace }

// GroupVersionResource returns the resource.
func (r *Resource[T]) GroupVersionResource() schema.GroupVersionResource { return r.endpoint.gvr }

// GroupVersionKind returns the kind of the objects. It has no Kind if T is unstructured or metadata.
func (r *Resource[T]) GroupVersionKind() schema.GroupVersionKind {
	return r.endpoint.gvr.GroupVersion().WithKind(r.format.objects.Kind)
}

// Host returns the host of the API server, and the port if the configuration has one.
func (r *Resource[T]) Host() string { return r.endpoint.client.Get().URL().Host }

// String names the resource, and the namespace if there is one.
func (r *Resource[T]) String() string { return r.at().String() }

// at returns the endpoint; that of a nil client answers every request with an error.
func (r *Resource[T]) at() endpoint {
	if r == nil {
		return endpoint{}
	}
	return r.endpoint
}

// checkResource returns an error for a resource that cannot be in a URL.
func checkResource(gvr schema.GroupVersionResource) (err error) {
	switch {
	case gvr.Resource == "":
		err = errors.New("the resource is empty; it is the plural in the URL, such as pods")
	case strings.Contains(gvr.Resource, "/"):
		err = fmt.Errorf("resource %q has a subresource: NewSubresource makes a client for one", gvr.Resource)
	case len(validation.IsDNS1123Label(gvr.Resource)) > 0:
		err = fmt.Errorf("%q cannot be a resource; it is the plural in the URL, in lower case, such as pods",
			gvr.Resource)
	}
	switch {
	case gvr.Group == "core":
		err = errors.Join(err, errors.New("there is no group core: that of pods and services is the empty string"))
	case gvr.Group != "" && len(validation.IsDNS1123Subdomain(gvr.Group)) > 0:
		err = errors.Join(err, fmt.Errorf("%q cannot be a group; one is apps or backups.example.com", gvr.Group))
	}
	if len(validation.IsDNS1123Label(gvr.Version)) > 0 {
		err = errors.Join(err, fmt.Errorf("%q cannot be a version; one is v1 or v1beta1", gvr.Version))
	}
	return err
}

var (
	unstructuredType = reflect.TypeFor[unstructured.Unstructured]()
	metadataType     = reflect.TypeFor[metav1.PartialObjectMetadata]()
)

// typeOf says what the objects of a resource are, or why they cannot be of type T.
func typeOf[T Object](gvr schema.GroupVersionResource, opts ResourceOptions) (wire.Type, error) {
	t, err := structOf[T]()
	switch {
	case err != nil:
		return wire.Type{}, err
	case t == unstructuredType || t == metadataType:
		if opts.Kind != "" {
			err = fmt.Errorf("ResourceOptions.Kind is %q, and a %s carries its kind", opts.Kind, reflect.PointerTo(t))
		}
		return wire.Type{Item: t}, err
	}
	name, _, _ := strings.Cut(t.Name(), "[") // of a generic type, without its arguments
	if name != "" {
		name = strings.ToUpper(name[:1]) + name[1:]
	}
	objects := wire.Type{Item: t, Kind: cmp.Or(opts.Kind, name), APIVersion: gvr.GroupVersion().String()}
	if err := builtIn(t, gvr); err != nil {
		return objects, err
	}
	if panicked := lifecycle.Try(func() { err = checkObject(objects) }); panicked != nil {
		err = fmt.Errorf("a method of an empty %s: %w", reflect.PointerTo(t), panicked)
	}
	return objects, err
}

// structOf returns the struct that T points to.
func structOf[T Object]() (reflect.Type, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is no pointer to a struct, as *corev1.Pod is one", t)
	}
	return t.Elem(), nil
}

// checkObject returns an error for a type that the API could not read, or that cannot be copied.
func checkObject(of wire.Type) error {
	t := reflect.PointerTo(of.Item)
	o := reflect.New(of.Item).Interface().(Object)
	if copied := reflect.TypeOf(o.DeepCopyObject()); copied != t {
		return fmt.Errorf("DeepCopyObject of a %s returns a %v: generate one for %s itself", t, copied, of.Item)
	}
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind))
	o.SetName("name")
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("an empty %s cannot be encoded: %w", t, err)
	}
	var read struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
	}
	if err := json.Unmarshal(body, &read); err != nil {
		return fmt.Errorf("an empty %s is no object in JSON: %w", t, err)
	}
	if read.Kind != of.Kind || read.APIVersion != of.APIVersion {
		err = fmt.Errorf("%s encodes no kind and apiVersion: it has to embed metav1.TypeMeta with the tag %s", t,
			"`json:\",inline\"`")
	}
	if read.Metadata.Name != "name" {
		err = errors.Join(err, fmt.Errorf("%s encodes no metadata: it has to embed metav1.ObjectMeta with the tag %s",
			t, "`json:\"metadata,omitempty\"`"))
	}
	return err
}

// builtIn returns an error if a type of k8s.io/api is not that of the resource. The path of its package has the group
// and version: k8s.io/api/apps/v1 for apps/v1, k8s.io/api/rbac/v1 for rbac.authorization.k8s.io/v1. The path of any
// other type does not say to what it belongs.
func builtIn(t reflect.Type, gvr schema.GroupVersionResource) error {
	path, ok := strings.CutPrefix(t.PkgPath(), "k8s.io/api/")
	group, version, _ := strings.Cut(path, "/")
	if !ok || group == "apiserverinternal" {
		return nil
	}
	of, _, _ := strings.Cut(gvr.Group, ".")
	if of = cmp.Or(of, "core"); of != group || gvr.Version != version {
		return fmt.Errorf("the resource is one of %s/%s, and %s is of %s/%s", of, gvr.Version, reflect.PointerTo(t),
			group, version)
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: t.Name()})
	if plural.Resource != gvr.Resource {
		return fmt.Errorf("objects of type %s are %s, not %s", reflect.PointerTo(t), plural.Resource, gvr.Resource)
	}
	return nil
}

// contentTypes returns the types of bodies that carry an object and of answers. An API server reads objects in protobuf
// only if their types are built into it.
func contentTypes(asked rest.ContentConfig, objects wire.Type) (content, accept string) {
	const inJSON, inProtobuf = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	wanted := cmp.Or(asked.AcceptContentTypes, asked.ContentType, inProtobuf)
	if !objects.Protobuf() || !strings.Contains(wanted, inProtobuf) {
		return inJSON, inJSON
	}
	content = inJSON
	if strings.HasPrefix(objects.Item.PkgPath(), "k8s.io/api/") && asked.ContentType != inJSON {
		content = inProtobuf
	}
	return content, inProtobuf + "," + inJSON
}
