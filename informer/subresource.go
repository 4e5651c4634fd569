package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Subresource is a client for a subresource whose objects are of another type than those of its resource. Make one with
// [NewSubresource]; its zero value is not useful. What [Resource] says of requests and errors is true of it, too.
type Subresource[S Object] struct {
	of      endpoint
	name    string
	objects wire.Type
}

// NewSubresource makes a client for a subresource, whose objects are of type S:
//
//	scales, err := informer.NewSubresource[*autoscalingv1.Scale](deployments, "scale")
//	evictions, err := informer.NewSubresource[*policyv1.Eviction](pods, "eviction")
//	bindings, err := informer.NewSubresource[*corev1.Binding](pods, "binding")
//	tokens, err := informer.NewSubresource[*authenticationv1.TokenRequest](serviceAccounts, "token")
//
// Subresources that answer with the object itself, such as status, belong to the methods of [Resource]. Those that
// answer with a stream, such as log and exec, need a clientset.
//
// It returns an error for a resource that is nil, for an empty name, and for a subresource that answers with the object
// itself.
func NewSubresource[S, T Object](of *Resource[T], name string) (*Subresource[S], error) {
	at := of.at()
	s := &Subresource[S]{of: at, name: name}
	// The server has the version of these objects, which is not that of the resource.
	s.of.accept, s.of.metadata = runtime.ContentTypeJSON, false
	t, err := structOf[S]()
	s.objects.Item = t
	switch {
	case at.client == nil:
		err = errors.Join(err, at.check())
	case name == "":
		err = errors.Join(err, errors.New("the name is empty"))
	case name == "status":
		err = errors.Join(err, errors.New("it answers with the object itself: Resource has UpdateStatus, ApplyStatus "+
			"and Patch"))
	}
	if err != nil {
		return nil, fmt.Errorf("NewSubresource %q of %s: %w", name, at, err)
	}
	return s, nil
}

// In returns the client for the objects of a namespace: see [Resource.In].
func (s *Subresource[S]) In(namespace string) *Subresource[S] {
	in := *s
	in.of = in.of.in(namespace)
	return &in
}

// Get reads the subresource of the object of that name.
func (s *Subresource[S]) Get(ctx context.Context, name string, opts metav1.GetOptions) (S, error) {
	return s.send(ctx, "get", http.MethodGet, name, nil, &opts)
}

// Create creates the subresource of the object of that name, such as a token or an eviction, and returns what the
// server answers. To an eviction and to a binding it answers with no object: then Create returns o.
func (s *Subresource[S]) Create(ctx context.Context, name string, o S, opts metav1.CreateOptions) (S, error) {
	return s.sendObject(ctx, "create", http.MethodPost, name, o, &opts)
}

// Update replaces the subresource of the object of that name, such as its scale.
func (s *Subresource[S]) Update(ctx context.Context, name string, o S, opts metav1.UpdateOptions) (S, error) {
	return s.sendObject(ctx, "update", http.MethodPut, name, o, &opts)
}

// Patch changes parts of the subresource of the object of that name.
func (s *Subresource[S]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte,
	opts metav1.PatchOptions) (S, error) {
	if pt == "" {
		var none S
		return none, s.failure("patch", name, errors.New("the patch type is empty"))
	}
	with := func(q *rest.Request) { q.SetHeader("Content-Type", string(pt)).Body(data) }
	return s.send(ctx, "patch", http.MethodPatch, name, with, &opts)
}

func (s *Subresource[S]) sendObject(ctx context.Context, verb, method, name string, o S, opts runtime.Object) (S,
	error) {
	var none S
	if kube.IsNil(o) {
		return none, s.failure(verb, name, errors.New("the object is nil"))
	}
	body, err := encodeJSON(o)
	if err != nil {
		return none, s.failure(verb, name, err)
	}
	with := func(q *rest.Request) { q.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body) }
	answer, err := s.send(ctx, verb, method, name, with, opts)
	if err == nil && kube.IsNil(answer) {
		return o, nil
	}
	return answer, err
}

// send sends a request and decodes the answer. It returns a nil object if the answer is a Status.
func (s *Subresource[S]) send(ctx context.Context, verb, method, name string, with func(*rest.Request),
	opts runtime.Object) (none S, err error) {
	q, err := s.of.about(verb, method, name, s.name)
	if err != nil {
		return none, err
	}
	if with != nil {
		with(q)
	}
	body, err := s.of.answer(ctx, verb+" "+s.name+" of", name,
		q.SpecificallyVersionedParams(opts, metav1.ParameterCodec, versionOfParams))
	if err != nil || method == http.MethodPost && wire.IsStatus(body) {
		return none, err
	}
	o, err := s.objects.Decode(body)
	if err != nil {
		return none, s.failure(verb, name, fmt.Errorf("the answer: %w", err))
	}
	return o.(S), nil
}

func (s *Subresource[S]) failure(verb, name string, err error) error {
	return s.of.failure(verb+" "+s.name+" of", name, err)
}
