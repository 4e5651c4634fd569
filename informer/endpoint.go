package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// endpoint is where a [Resource] sends its requests: a resource, in one namespace or in all.
type endpoint struct {
	client    rest.Interface
	gvr       schema.GroupVersionResource
	namespace string // empty: all, or cluster-scoped
	wrong     error  // no namespace can have that name
	accept    string // the types of answers
	metadata  bool   // only the metadata of the objects is asked for
}

// in returns the endpoint for a namespace.
func (e endpoint) in(namespace string) endpoint {
	e.namespace, e.wrong = namespace, nil
	if wrong := validation.IsDNS1123Label(namespace); namespace != metav1.NamespaceAll && len(wrong) > 0 {
		e.wrong = fmt.Errorf("%q cannot be the name of a namespace: %s", kube.Brief(namespace),
			strings.Join(wrong, ", "))
	}
	return e
}

func (e endpoint) String() string {
	name := e.gvr.GroupResource().String()
	if e.namespace != "" {
		name += " in " + kube.Brief(e.namespace)
	}
	return name
}

// check returns an error if no request can be sent.
func (e endpoint) check() error {
	if e.client == nil {
		return errors.New("the Resource is nil or empty: NewResource makes one")
	}
	return e.wrong
}

// holds returns an error if an object of that namespace is not at this endpoint. The server gives an object without a
// namespace that of the endpoint.
func (e endpoint) holds(namespace string) error {
	switch {
	case namespace == e.namespace || namespace == "":
		return nil
	case e.namespace == "":
		return fmt.Errorf("the object is in namespace %[1]s, and the client is for no namespace: use that of In(%[1]q)",
			kube.Brief(namespace))
	}
	return fmt.Errorf("the object is in namespace %s, and the client is for namespace %s", kube.Brief(namespace),
		e.namespace)
}

// versionOfParams is the version of the options in a query.
var versionOfParams = schema.GroupVersion{Version: "v1"}

// request begins a request, which is sent once: an informer and the loop have retries of their own.
func (e endpoint) request(method string) *rest.Request {
	r := e.client.Verb(method).Resource(e.gvr.Resource).MaxRetries(0)
	if e.namespace != "" {
		r.Namespace(e.namespace)
	}
	return e.accepts(r, "PartialObjectMetadata")
}

// accepts says which answers r takes; as is what they are if only metadata is asked for.
func (e endpoint) accepts(r *rest.Request, as string) *rest.Request {
	accept := e.accept
	if e.metadata {
		as = ";as=" + as + ";g=meta.k8s.io;v=v1"
		accept = strings.ReplaceAll(accept, ",", as+",") + as
	}
	return r.SetHeader("Accept", accept)
}

// about begins a request about one object, or about a subresource of it.
func (e endpoint) about(verb, method, name string, subresources ...string) (*rest.Request, error) {
	if err := e.check(); err != nil {
		return nil, e.failure(verb, name, err)
	}
	if name == "" {
		return nil, e.failure(verb, name, errors.New("the name is empty"))
	}
	return e.request(method).Name(name).SubResource(subresources...), nil
}

// answer sends a request about one object or a collection, and returns the body of the answer. Each error names the
// verb, the resource and the object: most servers' errors do, and errors of the connection have the URL.
func (e endpoint) answer(ctx context.Context, verb, name string, q *rest.Request) ([]byte, error) {
	result := q.Do(ctx)
	err := result.Error()
	if err == nil {
		return result.Raw()
	}
	err = e.explained(err, true)
	if status, ok := err.(*apierrors.StatusError); ok && (status.ErrStatus.Details == nil ||
		status.ErrStatus.Details.Kind == "") {
		named := *status
		named.ErrStatus.Message = e.failure(verb, name, err).Error()
		err = &named
	}
	return nil, err
}

// delete sends a request to delete one object, or a collection.
func (e endpoint) delete(ctx context.Context, verb, name string, q *rest.Request, opts metav1.DeleteOptions) error {
	opts.APIVersion, opts.Kind = "v1", "DeleteOptions"
	body, err := encodeJSON(&opts)
	if err != nil {
		return e.failure(verb, name, err)
	}
	_, err = e.answer(ctx, verb, name, q.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body))
	return err
}

// explained adds to a server's error what it leaves out. The server may not have the path because it does not serve the
// resource, or because the path has a namespace and should have none, or the other way round.
func (e endpoint) explained(err error, one bool) error {
	status, ok := err.(*apierrors.StatusError)
	pathless := ok && apierrors.IsNotFound(err) &&
		(apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) ||
			status.ErrStatus.Details == nil || status.ErrStatus.Details.Name == "") // it names no object
	if !ok || !pathless && !apierrors.IsMethodNotSupported(err) {
		return err
	}
	why := "the server does not have %s of %s"
	switch {
	case e.namespace != "":
		why += "; or its objects are cluster-scoped, and have a client without In(namespace)"
	case one:
		why += "; or its objects are in namespaces, and have a client with In(namespace)"
	}
	explained := *status
	explained.ErrStatus.Message = status.ErrStatus.Message + ": " + fmt.Sprintf(why, e.gvr.Resource,
		e.gvr.GroupVersion())
	return &explained
}

// failure names what was asked for.
func (e endpoint) failure(verb, name string, err error) error {
	if name != "" {
		name = " " + kube.Brief(name)
	}
	return fmt.Errorf("%s %s%s: %w", verb, e, name, err)
}
