package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// REST makes a Client that reads the bytes of the responses itself. It lists a resource as L, in one namespace or, if
// namespace is empty, in all of them.
//
//	informer.REST[*corev1.PodList](clientset.CoreV1().RESTClient(), "pods", metav1.NamespaceAll)
//
// An informer with it decodes lists and watches object by object while they arrive, on several cores if there is much
// to decode. So a list is never in memory as a whole. An object that cannot be decoded, or is larger than 16 MB, is
// invalid alone (see [SharedIndexInformer.Invalid]); with any other Client the whole page fails, or the watch ends.
//
// It asks for protobuf if the items of L can be decoded from protobuf and the REST client is not configured otherwise,
// and for JSON if not: unstructured objects and custom resources are JSON. With *metav1.PartialObjectMetadataList as L
// it asks for the metadata only. It sends a request once; the informer obeys the server's Retry-After.
//
// Objects share in memory what they have in common: strings, labels, managed fields and, from protobuf, slices and what
// pointers point to. With Options.Transform, which may change the objects, they share strings only.
//
// L must be a pointer to a struct with a field Items, a slice of objects. [New] returns an error for any other L, for a
// client or resource that is missing, and, if L is a type of k8s.io/api, for a client of another group or version.
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

// decoderOf returns a function that makes the decoder of an informer when a client made by [REST] first needs it, and
// returns that one from then on. Of frozen see [wire.NewDecoder].
func decoderOf[L runtime.Object](frozen bool) func() (*wire.Decoder, error) {
	return sync.OnceValues(func() (*wire.Decoder, error) { return wire.NewDecoder(reflect.TypeFor[L](), frozen) })
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

// sameGroup returns an error if a REST client is of another group or version than a list type of k8s.io/api, whose path
// has both: k8s.io/api/apps/v1 for apps/v1, k8s.io/api/rbac/v1 for rbac.authorization.k8s.io/v1. The path of any other
// type does not say to which group the type belongs.
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
			list.Elem(), group, version)
	}
	return nil
}

// rawSource is the source of a client made by [REST].
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
		r.Throttle(nil) // one request in minutes is no load
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
