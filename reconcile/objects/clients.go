package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
)

// The helpers ask for as much of a client as they use. A typed client of client-go has it all, under these names, so it
// is handed over as it stands, and its type says what T is:
//
//	objects.UpdateStatus(ctx, clientset.AppsV1().ReplicaSets(namespace), replicaSet, ...)
//
// A dynamic client becomes one with [Dynamic]. Patch is the same in all clients, the metadata client included.

// Getter reads one object from the server.
type Getter[T informer.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Creator creates objects, and reads those that are there already.
type Creator[T informer.Object] interface {
	Getter[T]
	Create(ctx context.Context, o T, opts metav1.CreateOptions) (T, error)
}

// StatusUpdater writes the status of objects, and reads those that have changed meanwhile.
type StatusUpdater[T informer.Object] interface {
	Getter[T]
	UpdateStatus(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error)
}

// Patcher changes parts of objects.
type Patcher[T informer.Object] interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (T, error)
}

// ErrGone is wrapped by the error of a helper whose object is gone: deleted, or deleted and made anew, which is another
// object under the same name. The cache will say so soon, so there is nothing to try again.
var ErrGone = errors.New("the object is gone")

// errNotRead is the error of an object that lacks what every server gives it: "UID" or "resourceVersion".
func errNotRead(object, lacks string) error {
	return fmt.Errorf("%s has no %[2]s, so it was not read from a server; client-go's fake clients give none: a test "+
		"that uses one sets the %[2]s itself", object, lacks)
}

// gone marks an error that says that the object of that name does not exist. A server answers 404, too, if it does not
// know the resource or the subresource, and so does a proxy that does not know the server: but neither names the
// object. That is nobody's death but a mistake which has to be seen.
func gone(name string, err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) ||
		!errors.As(err, &status) {
		return err
	}
	if details := status.Status().Details; details == nil || details.Name != name {
		return err
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}

// replaced is the error of an object that has the name, but not the UID, of the one in question.
func replaced(was, is types.UID) error {
	return fmt.Errorf("%w and another has its name: UID %s is now %s", ErrGone, was, is)
}

// replaceList replaces a list in the object's metadata, provided that it is still the object, by UID, and the list that
// the caller has seen. So no change that somebody else has made to the list can be undone; changes to anything else do
// not matter. It takes no list apart, as a strategic merge patch would: custom resources know no such patches. When the
// condition does not hold the answer is 422, Invalid.
func replaceList[T informer.Object, E any](ctx context.Context, client Patcher[T], o T, field string, seen,
	want []E) (T, error) {
	if o.GetUID() == "" {
		var none T
		return none, errNotRead("the object", "UID")
	}
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	path := "/metadata/" + field
	test := op{"test", path, seen}
	if len(seen) == 0 {
		test.Value = nil // the server leaves an empty list out, and what is not there equals null
	}
	if want == nil {
		want = []E{}
	}
	// add replaces what is there
	patch, err := json.Marshal([]op{{"test", "/metadata/uid", o.GetUID()}, test, {"add", path, want}})
	if err != nil {
		var none T
		return none, err
	}
	return client.Patch(ctx, o.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
}

// copyOf returns a copy of an object, which may come from a cache, to be changed.
func copyOf[T informer.Object](o T) T { return o.DeepCopyObject().(T) }

// dynamicResource is what the helpers use of client-go's dynamic.ResourceInterface.
type dynamicResource interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (*unstructured.Unstructured,
		error)
	Create(ctx context.Context, o *unstructured.Unstructured, opts metav1.CreateOptions,
		subresources ...string) (*unstructured.Unstructured, error)
	UpdateStatus(ctx context.Context, o *unstructured.Unstructured,
		opts metav1.UpdateOptions) (*unstructured.Unstructured, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (*unstructured.Unstructured, error)
}

// DynamicClient is a dynamic client with the methods of a typed one. Make one with [Dynamic].
type DynamicClient struct{ dynamicResource }

// Dynamic lets the helpers use a resource of a dynamic client:
//
//	gadgets := objects.Dynamic(dynamicClient.Resource(gvr).Namespace(namespace))
func Dynamic(resource dynamicResource) DynamicClient { return DynamicClient{resource} }

// Get reads an object.
func (c DynamicClient) Get(ctx context.Context, name string, opts metav1.GetOptions) (*unstructured.Unstructured,
	error) {
	return c.dynamicResource.Get(ctx, name, opts)
}

// Create creates an object.
func (c DynamicClient) Create(ctx context.Context, o *unstructured.Unstructured,
	opts metav1.CreateOptions) (*unstructured.Unstructured, error) {
	return c.dynamicResource.Create(ctx, o, opts)
}
