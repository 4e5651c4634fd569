package objects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// A Resource and the clients of client-go are what the helpers ask for.
var (
	_ = func(c kubernetes.Interface) (objects.StatusUpdater[*appsv1.ReplicaSet], objects.Creator[*corev1.Pod],
		objects.Patcher[*corev1.Node]) {
		return c.AppsV1().ReplicaSets(""), c.CoreV1().Pods(""), c.CoreV1().Nodes()
	}
	_ = func(c dynamic.Interface, gvr schema.GroupVersionResource) objects.DynamicClient {
		return objects.Dynamic(c.Resource(gvr))
	}
	_ = func(c *informer.Resource[*corev1.Pod]) (objects.StatusUpdater[*corev1.Pod], objects.Creator[*corev1.Pod],
		objects.Patcher[*corev1.Pod]) {
		return c, c, c
	}
	_ = func(c metadata.Interface, gvr schema.GroupVersionResource) objects.Patcher[*metav1.PartialObjectMetadata] {
		return c.Resource(gvr)
	}
)

var resource = schema.GroupResource{Group: "example.com", Resource: "things"}

// desk is one namespace of one resource, as far as the helpers use it: versions, conflicts, and JSON patches that test
// before they add. It notes each request, and insists on the context of the test.
type desk[T informer.Object] struct {
	t  *testing.T
	mu sync.Mutex
	// Guarded by mu. The objects are the desk's own; copies go in and out.
	objects  map[string]T
	version  int
	requests []string
	// before, if set, is called ahead of each request, without mu; an error is its answer. after does the same when the
	// request has taken effect.
	before, after func(verb string) error
}

func newDesk[T informer.Object](t *testing.T, objects ...T) *desk[T] {
	d := &desk[T]{t: t, objects: map[string]T{}}
	for _, o := range objects {
		d.put(o)
	}
	return d
}

type ctxKey struct{}

// testCtx is the context that requests must carry.
func testCtx(t *testing.T) context.Context { return context.WithValue(t.Context(), ctxKey{}, true) }

func clone[T informer.Object](o T) T { return o.DeepCopyObject().(T) }

// put stores o as it is, at a new version, and gives o that version, as if it had been read.
func (d *desk[T]) put(o T) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.store(o)
	return o
}

func (d *desk[T]) store(o T) {
	d.version++
	o.SetResourceVersion(fmt.Sprint(d.version))
	d.objects[o.GetName()] = clone(o)
}

// change changes an object as somebody else would.
func (d *desk[T]) change(name string, f func(T)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := clone(d.objects[name])
	f(o)
	d.store(o)
}

func (d *desk[T]) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, name)
}

func (d *desk[T]) get(name string) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return clone(d.objects[name])
}

// took returns the requests since the last call.
func (d *desk[T]) took() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	requests := d.requests
	d.requests = nil
	return requests
}

func (d *desk[T]) serve(ctx context.Context, verb, name string, f func(o T, exists bool) (T, error)) (T, error) {
	var none T
	if ctx.Value(ctxKey{}) == nil {
		d.t.Errorf("%s %s: the request does not carry the context", verb, name)
	}
	if d.before != nil {
		if err := d.before(verb); err != nil {
			return none, err
		}
	}
	d.mu.Lock()
	d.requests = append(d.requests, verb+" "+name)
	o, exists := d.objects[name]
	var answer T
	err := error(nil)
	if !exists && verb != "create" {
		err = apierrors.NewNotFound(resource, name)
	} else if answer, err = f(o, exists); err == nil {
		if verb != "get" {
			d.store(answer)
		}
		answer = clone(answer)
	}
	d.mu.Unlock()
	if err == nil && d.after != nil {
		err = d.after(verb)
	}
	if err != nil {
		return none, err
	}
	return answer, nil
}

func (d *desk[T]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	return d.serve(ctx, "get", name, func(o T, _ bool) (T, error) { return o, nil })
}

func (d *desk[T]) Create(ctx context.Context, n T, _ metav1.CreateOptions) (T, error) {
	return d.serve(ctx, "create", n.GetName(), func(_ T, exists bool) (T, error) {
		if exists {
			return n, apierrors.NewAlreadyExists(resource, n.GetName())
		}
		n = clone(n)
		n.SetUID(types.UID("uid of " + n.GetName()))
		return n, nil
	})
}

func (d *desk[T]) UpdateStatus(ctx context.Context, n T, _ metav1.UpdateOptions) (T, error) {
	return d.serve(ctx, "update", n.GetName(), func(o T, _ bool) (T, error) {
		if n.GetResourceVersion() != o.GetResourceVersion() || n.GetUID() != o.GetUID() {
			return n, apierrors.NewConflict(resource, n.GetName(), fmt.Errorf("it has changed"))
		}
		return clone(n), nil
	})
}

func (d *desk[T]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions,
	_ ...string) (T, error) {
	return d.serve(ctx, "patch", name, func(o T, _ bool) (T, error) {
		require.Equal(d.t, types.JSONPatchType, pt)
		var ops []struct {
			Op, Path string
			Value    any
		}
		require.NoError(d.t, json.Unmarshal(data, &ops))
		raw, err := json.Marshal(o)
		require.NoError(d.t, err)
		var fields map[string]any
		require.NoError(d.t, json.Unmarshal(raw, &fields))
		meta := fields["metadata"].(map[string]any)
		for _, op := range ops {
			field := strings.TrimPrefix(op.Path, "/metadata/")
			switch op.Op {
			case "test":
				if !reflect.DeepEqual(meta[field], op.Value) {
					return o, apierrors.NewGenericServerResponse(422, "patch", resource, name,
						"testing value "+op.Path+" failed", 0, false)
				}
			case "add":
				meta[field] = op.Value
				if list, ok := op.Value.([]any); ok && len(list) == 0 {
					delete(meta, field) // a server leaves an empty list out
				}
			default:
				d.t.Errorf("no such operation: %s", op.Op)
			}
		}
		raw, err = json.Marshal(fields)
		require.NoError(d.t, err)
		n := reflect.New(reflect.TypeOf(o).Elem()).Interface().(T)
		require.NoError(d.t, json.Unmarshal(raw, n))
		return n, nil
	})
}

func newSet(name string, uid types.UID) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, Generation: 1}}
}

func newPod(name string, uid types.UID, owners ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid,
		OwnerReferences: owners}}
}

var setKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
