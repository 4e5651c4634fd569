package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// REST is a Client that reads the bytes itself: those of a resource, listed as L, in one namespace or, if that is
// empty, in all of them.
//
//	informer.REST[*corev1.PodList](clientset.CoreV1().RESTClient(), "pods", metav1.NamespaceAll)
//
// An informer on it takes lists and watches apart as they arrive, and decodes object by object, on several cores if
// there is much to do. So a list is never held as a whole; an object that cannot be decoded, or is too large, is
// quarantined alone (see [SharedIndexInformer.Invalid]), where any other Client fails with its whole page, or loses its
// watch.
//
// It asks for protobuf if the items of L can be decoded from that, and the REST client is not configured otherwise,
// else for JSON: unstructured objects and those of custom resources are JSON. L may be
// *metav1.PartialObjectMetadataList, for which only the metadata is asked for. A request is made once; what the server
// says about coming back later is for the informer to obey. The transport unzips.
//
// What objects have in common they share in memory: strings, labels, managed fields, in protobuf also whatever slices
// and pointers hold. With Options.Transform, which may change them, they share strings only.
//
// L must be a pointer to a struct with a field Items, a slice of objects; anything else, a client or resource that is
// missing, and a client of another group or version than L, if L is a type of k8s.io/api, are errors of [New].
func REST[L runtime.Object](client rest.Interface, resource, namespace string) Client[L] {
	return &restClient[L]{client: client, resource: resource, namespace: namespace}
}

type restClient[L runtime.Object] struct {
	client              rest.Interface
	resource, namespace string
}

// List asks for one list and holds it as a whole. An informer does not use it.
func (c *restClient[L]) List(ctx context.Context, opts metav1.ListOptions) (list L, err error) {
	s, err := c.source(decoderOf[L](false))
	if err != nil {
		return list, err
	}
	list = reflect.New(reflect.TypeFor[L]().Elem()).Interface().(L)
	if err := s.request(opts).Do(ctx).Into(list); err != nil {
		var none L
		return none, err
	}
	return list, nil
}

// Watch asks for one watch. An informer does not use it.
func (c *restClient[L]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s, err := c.source(decoderOf[L](false))
	if err != nil {
		return nil, err
	}
	opts.Watch = true
	return s.request(opts).Watch(ctx)
}

func (c *restClient[L]) source(decoder func() (*wire.Decoder, error)) (*rawSource, error) {
	d, err := decoder()
	if err != nil {
		err = fmt.Errorf("REST: %w", err)
	}
	if kube.IsNil(c.client) {
		err = errors.Join(err, errors.New("REST: the REST client is nil"))
	}
	if !kube.IsNil(c.client) {
		err = errors.Join(err, sameGroup(c.client.APIVersion(), reflect.TypeFor[L]()))
	}
	if c.resource == "" {
		err = errors.Join(err, errors.New("REST: the resource is empty; it is the plural in the URL, such as pods"))
	}
	if err != nil {
		return nil, err
	}
	return &rawSource{client: c.client, resource: c.resource, namespace: c.namespace, decoder: d,
		metadata: reflect.TypeFor[L]() == reflect.TypeFor[*metav1.PartialObjectMetadataList]()}, nil
}

// sameGroup returns an error if a REST client is one of another group or version than a list type of package
// k8s.io/api, whose path has both: k8s.io/api/apps/v1 is that of apps/v1, k8s.io/api/rbac/v1 that of
// rbac.authorization.k8s.io/v1. What would be listed has the same fields by accident only. Other types do not tell
// where they belong.
func sameGroup(of schema.GroupVersion, list reflect.Type) error {
	if list.Kind() != reflect.Pointer || of.Version == "" {
		return nil
	}
	group, version, builtIn := strings.Cut(strings.TrimPrefix(list.Elem().PkgPath(), "k8s.io/api/"), "/")
	if !builtIn || !strings.HasPrefix(list.Elem().PkgPath(), "k8s.io/api/") || group == "apiserverinternal" {
		return nil
	}
	of.Group, _, _ = strings.Cut(of.Group, ".")
	if of.Group == "" {
		of.Group = "core"
	}
	if of.Group != group || of.Version != version {
		return fmt.Errorf("REST: the REST client is one of %s/%s, and %s is of %s/%s", of.Group, of.Version,
			list.Elem(),
			group, version)
	}
	return nil
}

// rawSource is the source that a client made by [REST] is.
type rawSource struct {
	client              rest.Interface
	resource, namespace string
	decoder             *wire.Decoder
	metadata            bool // only the metadata of the objects is asked for
}

func (s *rawSource) streams() bool { return true }

func (s *rawSource) request(opts metav1.ListOptions) *rest.Request {
	r := s.client.Get().Resource(s.resource).SpecificallyVersionedParams(&opts, metav1.ParameterCodec,
		schema.GroupVersion{Version: "v1"}).MaxRetries(0)
	if s.namespace != "" {
		r.Namespace(s.namespace)
	}
	if opts.Watch {
		r.Throttle(nil) // one that lives for minutes is no load
	}
	const forms = "application/vnd.kubernetes.protobuf;as=%[1]s;g=meta.k8s.io;v=v1," +
		"application/json;as=%[1]s;g=meta.k8s.io;v=v1"
	switch {
	case !s.metadata:
	case opts.Watch:
		return r.SetHeader("Accept", fmt.Sprintf(forms, "PartialObjectMetadata"))
	default:
		return r.SetHeader("Accept", fmt.Sprintf(forms, "PartialObjectMetadataList"))
	}
	if s.decoder.Protobuf() {
		return r.UseProtobufAsDefault()
	}
	return r.SetHeader("Accept", runtime.ContentTypeJSON)
}

func (s *rawSource) list(ctx context.Context, opts metav1.ListOptions) (response, error) {
	body, err := s.request(opts).Stream(ctx)
	if err != nil {
		return response{}, discreet(err)
	}
	reader := s.decoder.Read(ctx, body, true)
	each := func(visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error) {
		for b := range reader.Batches {
			events, err := b.Events()
			if err != nil {
				return metav1.ListMeta{}, err
			}
			if err := visit(b.List, events); err != nil {
				return metav1.ListMeta{}, err
			}
			reader.Recycle(b)
		}
		return reader.End()
	}
	return response{each: each, stop: reader.Close}, nil
}

func (s *rawSource) watch(ctx context.Context, opts metav1.ListOptions) (stream, error) {
	opts.Watch = true
	body, err := s.request(opts).Stream(ctx)
	if err != nil {
		return stream{}, discreet(err)
	}
	reader := s.decoder.Read(ctx, body, false)
	return stream{reader: reader, batches: reader.Batches, stop: reader.Close}, nil
}
