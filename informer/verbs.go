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

	"github.com/thermostat-go/thermostat/internal/kube"
)

// The methods of a Resource have the shapes of a typed client of client-go, so that a helper for one takes the other.

// Get reads the object of that name, past any cache. The object is the caller's own.
func (r *Resource[T]) Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error) {
	q, err := r.at().about("get", http.MethodGet, name)
	if err != nil {
		var none T
		return none, err
	}
	return r.object(ctx, "get", name, q, &opts)
}

// Create creates an object, and returns it as the server has stored it. It does not change o. An object without a
// namespace gets that of the client.
func (r *Resource[T]) Create(ctx context.Context, o T, opts metav1.CreateOptions) (T, error) {
	return r.send(ctx, "create", http.MethodPost, o, &opts)
}

// Update replaces an object, and returns it as the server has stored it. It does not change o. The server answers with
// a conflict if o has a resourceVersion and the object has changed since. Fields that T does not have are removed; a
// Patch leaves them.
func (r *Resource[T]) Update(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error) {
	return r.send(ctx, "update", http.MethodPut, o, &opts)
}

// UpdateStatus is Update for the status alone, if the resource has that subresource.
func (r *Resource[T]) UpdateStatus(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error) {
	return r.send(ctx, "update", http.MethodPut, o, &opts, "status")
}

// Patch changes parts of an object, or of a subresource that answers with the object, such as status. For the others
// there is [NewSubresource]. The server knows strategic merge patches for built-in kinds only.
func (r *Resource[T]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte,
	opts metav1.PatchOptions, subresources ...string) (T, error) {
	var none T
	q, err := r.at().about("patch", http.MethodPatch, name, subresources...)
	switch {
	case err != nil:
		return none, err
	case pt == "":
		return none, r.failure("patch", name, errors.New("the patch type is empty"))
	}
	for _, s := range subresources {
		if ofOtherType[s] {
			return none, r.failure("patch", name, fmt.Errorf("subresource %s does not answer with the object: "+
				"NewSubresource makes a client for it", s))
		}
	}
	return r.object(ctx, "patch", name, q.SetHeader("Content-Type", string(pt)).Body(data), &opts)
}

// Delete deletes the object of that name. If the object has finalizers the server only marks it.
func (r *Resource[T]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	q, err := r.at().about("delete", http.MethodDelete, name)
	if err != nil {
		return err
	}
	return r.endpoint.delete(ctx, "delete", name, q, opts)
}

// DeleteCollection deletes the objects that listOpts select: without a selector, all objects of the namespace.
func (r *Resource[T]) DeleteCollection(ctx context.Context, opts metav1.DeleteOptions,
	listOpts metav1.ListOptions) error {
	if err := r.at().check(); err != nil {
		return r.failure("delete all", "", err)
	}
	q := r.endpoint.request(http.MethodDelete)
	return r.endpoint.delete(ctx, "delete all", "",
		q.SpecificallyVersionedParams(&listOpts, metav1.ParameterCodec, versionOfParams), opts)
}

// ofOtherType has the subresources whose answer is no object of the resource.
var ofOtherType = map[string]bool{"scale": true, "binding": true, "eviction": true, "token": true}

// send sends an object, and returns the one that the server answers with.
func (r *Resource[T]) send(ctx context.Context, verb, method string, o T, opts runtime.Object,
	subresources ...string) (none T, err error) {
	switch {
	case r.at().check() != nil:
		return none, r.failure(verb, "", r.at().check())
	case kube.IsNil(o):
		return none, r.failure(verb, "", errors.New("the object is nil"))
	}
	name := o.GetName()
	if err := r.endpoint.holds(o.GetNamespace()); err != nil {
		return none, r.failure(verb, name, err)
	}
	body, err := r.format.encode(o)
	if err != nil {
		return none, r.failure(verb, name, err)
	}
	q := r.endpoint.request(method)
	if method != http.MethodPost {
		if q, err = r.endpoint.about(verb, method, name, subresources...); err != nil {
			return none, err
		}
	}
	return r.object(ctx, verb, name, q.SetHeader("Content-Type", r.format.content).Body(body), opts)
}

// object sends a request and decodes the object of the answer.
func (r *Resource[T]) object(ctx context.Context, verb, name string, q *rest.Request, opts runtime.Object) (none T,
	err error) {
	body, err := r.endpoint.answer(ctx, verb, name,
		q.SpecificallyVersionedParams(opts, metav1.ParameterCodec, versionOfParams))
	if err != nil {
		return none, err
	}
	o, err := r.format.objects.Decode(body)
	if err != nil {
		return none, r.failure(verb, name, fmt.Errorf("the answer: %w", err))
	}
	return o.(T), nil
}

// failure names what was asked for.
func (r *Resource[T]) failure(verb, name string, err error) error {
	return r.at().failure(verb, name, err)
}
