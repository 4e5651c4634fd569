// Package zoo holds published bugs of real controllers, each as a small reconciler in two versions: with the mistake
// and without it. reconciletest.Check has to find each mistake within seconds, and must find nothing in the others.
//
//	make zoo
//
// prints a table of that. A second table says on which library a mistake can do harm at all: the same reconcilers run
// on client-go's informers, on controller-runtime and on this library. A third one is about mistakes that are planted
// into examples/replicaset.
//
// The reconcilers are written from the texts of the issues, for kinds that this package defines: a Cluster has Members
// (pods), Volumes (claims) and Sets (stateful sets). What is not needed for the mistake is left out.
//
//	zoo.go                                     what a reconciler is, and what it can do
//	thermostat.go clientgo.go ctrlruntime.go   the three libraries
//	beside.go                                  what makes and runs Members, in place of Kubernetes
//	earlier.go downup.go crash.go unseen.go    the bugs, by class
//	writes.go irreversible.go leftover.go hotloop.go rights.go deletion.go refused.go order.go
//	zoo_test.go planted_test.go                the tables, and what they cost
//
// README.md has the tables as they were measured.
package zoo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// object is an object of a kind of this package, read-only if it comes from a cache.
type object = unstructured.Unstructured

// The resources, with their kinds.
const (
	clusters = "clusters"
	members  = "members"
	volumes  = "volumes"
	sets     = "sets"
)

var kinds = map[string]string{clusters: "Cluster", members: "Member", volumes: "Volume", sets: "Set"}

var group = schema.GroupVersion{Group: "zoo.example.com", Version: "v1"}

func resource(name string) schema.GroupVersionResource { return group.WithResource(name) }

// resources are what the server serves beside Kubernetes' own kinds.
func resources() []reconciletest.Resource {
	var all []reconciletest.Resource
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		all = append(all, reconciletest.Resource{GroupVersionResource: resource(name), Kind: kinds[name], Status: true})
	}
	return all
}

// A bug is a published one.
type bug struct {
	published string // where, as owner/repository#number
	class     string
	mistake   string // in a sentence
	// reconciler is what has the mistake, or not.
	reconciler func(fixed bool) reconciler
	// scenario is what is to be checked, without Run.
	scenario reconciletest.Scenario
	// heldBack says that the bug was written when Check was done, and that nothing was changed for it before it had
	// been looked for once.
	heldBack bool
	// rightOf is the bug of which this one's version without the mistake, and its scenario, are those of, but for
	// names; empty: of none. Only make zoo looks at both.
	rightOf string
	// long says that the version without the mistake takes long, and does what others do as well: TestZoo runs three
	// seconds of its schedules, and make zoo all.
	long bool
}

// reconciler is the part that the libraries have in common. It is called with the key of a Cluster, when that or one of
// the objects that carry its name in the label "cluster" has changed.
type reconciler func(ctx context.Context, w *world, key types.NamespacedName) error

// call calls a reconciler, and returns how soon it is to be called again without an event; zero: not at all.
func (r reconciler) call(ctx context.Context, w *world, key types.NamespacedName) (again time.Duration, err error) {
	err = r(context.WithValue(ctx, againKey{}, &again), w, key)
	return again, err
}

type againKey struct{}

// again asks for another call of the reconciler that has ctx, after a while.
func again(ctx context.Context, after time.Duration) { *ctx.Value(againKey{}).(*time.Duration) = after }

// zoo returns all bugs.
func zoo() []bug {
	return slices.Concat(earlier, downUp, crash, unseen, writes, irreversible, leftOver, hotLoop, rights, deletion,
		refused, order)
}

// world is what a reconciler sees and does.
type world struct {
	// get and list read from the cache of the library. list returns the objects that carry the label "cluster" of the
	// name.
	get    func(resource, namespace, name string) *object
	list   func(resource, namespace, cluster string) []*object
	client dynamic.Interface
}

// live reads from the server, past the cache; nil: there is none.
func (w *world) live(ctx context.Context, name, namespace, of string) (*object, error) {
	o, err := w.client.Resource(resource(name)).Namespace(namespace).Get(ctx, of, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// listLive lists what carries the name of a Cluster from the server, past the cache.
func (w *world) listLive(ctx context.Context, name, namespace, cluster string) ([]*object, error) {
	list, err := w.client.Resource(resource(name)).Namespace(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "cluster=" + cluster})
	if err != nil {
		return nil, err
	}
	var all []*object
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// cluster returns a Cluster from the cache, or, if what follows needs to know how it is now, from the server.
func (w *world) cluster(ctx context.Context, key types.NamespacedName, now bool) (*object, error) {
	if now {
		return w.live(ctx, clusters, key.Namespace, key.Name)
	}
	return w.get(clusters, key.Namespace, key.Name), nil
}

func (w *world) create(ctx context.Context, name string, o *object) error {
	_, err := w.client.Resource(resource(name)).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
	return err
}

func (w *world) update(ctx context.Context, name string, o *object) error {
	_, err := w.client.Resource(resource(name)).Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{})
	return err
}

func (w *world) updateStatus(ctx context.Context, name string, o *object) error {
	_, err := w.client.Resource(resource(name)).Namespace(o.GetNamespace()).UpdateStatus(ctx, o,
		metav1.UpdateOptions{})
	return err
}

// delete deletes an object, the one of that UID if uid is set. That it is gone is no error.
func (w *world) delete(ctx context.Context, name, namespace, of string, uid types.UID) error {
	options := metav1.DeleteOptions{}
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := w.client.Resource(resource(name)).Namespace(namespace).Delete(ctx, of, options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// child makes an object of a Cluster, with its owner reference unless it is a Volume: like the claims of a stateful
// set, these outlive it.
func child(of *object, name, as string, spec map[string]any) *object {
	o := &object{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(group.WithKind(kinds[name]))
	o.SetNamespace(of.GetNamespace())
	o.SetName(as)
	o.SetLabels(map[string]string{"cluster": of.GetName()})
	if name != volumes {
		yes := true
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: of.GetAPIVersion(), Kind: of.GetKind(),
			Name: of.GetName(), UID: of.GetUID(), Controller: &yes}})
	}
	return o
}

// number, text and status read a field of the spec or the status.
func number(o *object, path ...string) int64 {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

func text(o *object, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func set(o *object, value any, path ...string) {
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(err)
	}
}

const finalizer = "zoo.example.com/cleanup"

func ordinal(name string, i int64) string { return fmt.Sprintf("%s-%d", name, i) }

// cluster is the manifest of the Cluster a.
func cluster(spec map[string]any) string {
	data, err := json.Marshal(map[string]any{"apiVersion": group.String(), "kind": "Cluster",
		"metadata": map[string]any{"name": "a", "namespace": "default"}, "spec": spec})
	if err != nil {
		panic(err)
	}
	return string(data)
}

type spec = map[string]any

// scenario is one whose steps apply these specs of the Cluster a.
func scenario(specs ...spec) reconciletest.Scenario {
	var texts []string
	for _, s := range specs {
		texts = append(texts, cluster(s))
	}
	return reconciletest.Scenario{Server: reconciletest.Options{Resources: resources()},
		Steps: reconciletest.ApplyYAML(texts...), Budget: 2 * time.Second}
}

// held returns an object as the server has it, or nil.
func held(s *reconciletest.Server, name, of string) *object {
	o, ok := reconciletest.Get[*object](s, name+"."+group.Group, "default", of)
	if !ok {
		return nil
	}
	return o
}

func all(s *reconciletest.Server, name string) []*object {
	return reconciletest.List[*object](s, name+"."+group.Group, "default")
}
