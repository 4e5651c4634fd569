package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
)

// The helpers accept any client with the methods that they call. An [informer.Resource] has them all, and so has a
// typed client of client-go; each determines T:
//
//	objects.UpdateStatus(ctx, backups.In(namespace), backup, ...)
//	objects.UpdateStatus(ctx, clientset.AppsV1().ReplicaSets(namespace), replicaSet, ...)
//
// A dynamic client becomes one with [Dynamic]. Patch is the same in all clients, the metadata client included.

// Getter reads one object from the server.
type Getter[T informer.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Creator creates objects, and reads those that exist already.
type Creator[T informer.Object] interface {
	Getter[T]
	Create(ctx context.Context, o T, opts metav1.CreateOptions) (T, error)
}

// StatusUpdater writes the status of objects, and reads them again after a conflict.
type StatusUpdater[T informer.Object] interface {
	Getter[T]
	UpdateStatus(ctx context.Context, o T, opts metav1.UpdateOptions) (T, error)
}

// Patcher changes parts of objects.
type Patcher[T informer.Object] interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (T, error)
}

// Applier applies objects, and reads those that exist already.
type Applier[T informer.Object] interface {
	Getter[T]
	Patcher[T]
}

// ErrGone is wrapped by the error of a helper whose object was deleted, or was deleted and created again, which makes
// it another object under the same name. The cache will show that soon, so there is nothing to retry.
var ErrGone = errors.New("the object is gone")

// errNotRead is the error for an object that lacks what every server gives it: "UID" or "resourceVersion".
func errNotRead(object, lacks string) error {
	return fmt.Errorf("%s has no %[2]s, so it was not read from a server; client-go's fake clients give none: a test "+
		"that uses one sets the %[2]s itself", object, lacks)
}

// gone marks an error that says that the object of that name does not exist. A server also answers 404 if it does not
// know the resource or the subresource, and a proxy if it does not know the server. These do not name the object: they
// are mistakes that must stay visible.
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

// replaced is the error for an object that has the expected name and another UID.
func replaced(was, is types.UID) error {
	return fmt.Errorf("%w and another has its name: UID %s is now %s", ErrGone, was, is)
}

// change is that of a list or map in an object's metadata. If both values are equal, it is a condition only.
type change struct {
	field      string // such as "finalizers"
	seen, want any    // lists or maps
}

// changeMetadata makes changes, provided that the object's UID and the lists and maps are still those that the caller
// has seen. So it cannot undo what another client has done to them; changes to anything else do not matter. If the
// condition does not hold, the answer is 422 Invalid. It is a JSON patch, since custom resources do not support
// strategic merge patches.
func changeMetadata[T informer.Object](ctx context.Context, client Patcher[T], o T, changes []change) (T, error) {
	if o.GetUID() == "" {
		var none T
		return none, errNotRead("the object", "UID")
	}
	patch := []operation{{"test", "/metadata/uid", o.GetUID()}}
	for _, c := range changes {
		test := operation{"test", "/metadata/" + c.field, c.seen}
		if reflect.ValueOf(c.seen).Len() == 0 {
			test.Value = nil // the server omits an empty list, and what is missing equals null
		}
		patch = append(patch, test)
	}
	for _, c := range changes {
		switch want := reflect.ValueOf(c.want); {
		case reflect.DeepEqual(c.seen, c.want):
		case want.IsNil():
			patch = append(patch, operation{"add", "/metadata/" + c.field, []string{}})
		default:
			patch = append(patch, operation{"add", "/metadata/" + c.field, c.want}) // replaces an existing value
		}
	}
	return sendPatch(ctx, client, o.GetName(), patch)
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func sendPatch[T informer.Object](ctx context.Context, client Patcher[T], name string, patch []operation) (T, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		var none T
		return none, err
	}
	return client.Patch(ctx, name, types.JSONPatchType, data, metav1.PatchOptions{})
}

// copyOf returns a copy, to be changed, of an object that may come from a cache.
func copyOf[T informer.Object](o T) T { return o.DeepCopyObject().(T) }

// dynamicResource has the methods of client-go's dynamic.ResourceInterface that the helpers use.
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

// DynamicClient has the methods of a typed client. Make one with [Dynamic].
type DynamicClient struct{ dynamicResource }

// Dynamic turns a resource of a dynamic client into a client for the helpers:
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
