package world

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Object is an object of a typed client.
type Object interface {
	metav1.Object
	runtime.Object
}

// Health is what a world makes of an object.
type Health int

const (
	// Well: a pod gets ready, a Job succeeds, a claim is bound, a load balancer has an address.
	Well Health = iota
	// Ailing: for now a pod is not ready, a pod of a Job has failed and another one runs, a claim is pending, a load
	// balancer has no address yet.
	Ailing
	// Failing is Ailing for good. A Job fails.
	Failing
)

// Options may be left zero.
type Options struct {
	// AtOnce carries everything out in one go: see [World.CarryOut]. What is wanted counts as there, and as ready.
	AtOnce bool
	// Takes is how long a pod takes to get ready and to end, a Job to end, a claim to be bound, a node to get ready,
	// and a load balancer to get an address, from when the world first looks at it. Nil: no time.
	Takes func(Object) time.Duration
	// Health is that of a pod, a Job, a claim, a node or the load balancer of a Service, each time when the world looks
	// at it. Nil: all are well.
	Health func(Object) Health
	// Drew is told of hashes of templates, which the controllers of Kubernetes make otherwise. Nil: it is not.
	Drew func(hash string)
	// Trim takes out of a status what the server has no room for. Nil: nothing.
	Trim func(Object)
}

// World makes writes as a cluster's controllers and nodes do. It starts no goroutine.
type World struct {
	Options
	client clients

	// mu is held by CarryOut: what follows one write is done before what follows the next. React alone is for one
	// caller. What is below belongs to the one or the other.
	mu    sync.Mutex
	ips   int                        // of pods
	doors int                        // addresses of load balancers
	kinds map[string]map[string]bool // what the cluster serves, by version
	begun map[types.UID]time.Time    // when the world first looked at an object
	ended map[types.UID]time.Time    // and at one that is being deleted
}

// New makes a world that writes to a server.
func New(cfg *rest.Config, o Options) (*World, error) {
	client, err := newClients(cfg)
	return &World{Options: o, client: client, kinds: make(map[string]map[string]bool),
		begun: make(map[types.UID]time.Time), ended: make(map[types.UID]time.Time)}, err
}

// The resources that a world does something about.
const (
	Pods         = "pods"
	ReplicaSets  = "replicasets"
	Deployments  = "deployments"
	StatefulSets = "statefulsets"
	DaemonSets   = "daemonsets"
	Jobs         = "jobs"
	Claims       = "persistentvolumeclaims"
	Nodes        = "nodes"
	// Services are those of the type LoadBalancer: each has an address.
	Services = "services"
	// Endpoints are those of all Services of a namespace, and their EndpointSlices.
	Endpoints = "endpoints"
)

// Resources are all of them.
var Resources = []string{Pods, ReplicaSets, Deployments, StatefulSets, DaemonSets, Jobs, Claims, Nodes, Services,
	Endpoints}

// Item is something to look at: an object, or all Endpoints of a namespace.
type Item struct {
	Resource, Namespace, Name string
	// Revised: the template may be another one than that of the status. Only a world that does all at once heeds that,
	// since its cluster has templates of which others have made the hash.
	Revised bool
}

// Versioned returns a resource of [Resources] with its group and version.
func Versioned(resource string) schema.GroupVersionResource {
	switch resource {
	case Pods, Claims, Nodes, Services, Endpoints:
		return corev1.SchemeGroupVersion.WithResource(resource)
	case Jobs:
		return batchv1.SchemeGroupVersion.WithResource(resource)
	}
	return appsv1.SchemeGroupVersion.WithResource(resource)
}

// ResourceOf returns the resource of an object; empty: the world does nothing about it.
func ResourceOf(o Object) string {
	switch o.(type) {
	case *corev1.Pod:
		return Pods
	case *appsv1.ReplicaSet:
		return ReplicaSets
	case *appsv1.Deployment:
		return Deployments
	case *appsv1.StatefulSet:
		return StatefulSets
	case *appsv1.DaemonSet:
		return DaemonSets
	case *batchv1.Job:
		return Jobs
	case *corev1.PersistentVolumeClaim:
		return Claims
	case *corev1.Node:
		return Nodes
	case *corev1.Service:
		return Services
	}
	return ""
}

// Affected returns what a write is to be followed by: was is nil for a creation, is for a deletion.
func (w *World) Affected(was, is Object) (items []Item) {
	o := is
	if o == nil {
		o = was
	}
	namespace := o.GetNamespace()
	going := is == nil || is.GetDeletionTimestamp() != nil
	resource := ResourceOf(o)
	if (resource == Nodes || resource == Services) && w.AtOnce {
		return nil // nodes of a cluster get ready by themselves, and its load balancers are its cloud's
	}
	if resource == Pods && is != nil || resource != "" && !going {
		items = append(items, Item{resource, namespace, o.GetName(), revised(was, is)})
	}
	for _, owner := range ownersOf(was, is, w.AtOnce) {
		if !(resource == Pods && (going || !w.AtOnce) || resource == ReplicaSets && !w.AtOnce) {
			continue
		}
		if of := resourceOfOwner[owner.Kind]; of != "" {
			items = append(items, Item{Resource: of, Namespace: namespace, Name: owner.Name})
		}
	}
	if _, volume := o.(*corev1.PersistentVolume); volume && was == nil && !w.AtOnce {
		items = append(items, Item{Resource: Claims, Name: o.GetName()}) // see claims.bindTo
	}
	if node, ok := was.(*corev1.Node); ok && isSilent(node) && (is == nil || !isSilent(is.(*corev1.Node))) {
		items = append(items, Item{Resource: Pods, Name: o.GetName()}) // see nodes.pods
	}
	if (resource == Pods || resource == Services) && !w.AtOnce {
		items = append(items, Item{Resource: Endpoints, Namespace: namespace})
	}
	return items
}

// ownersOf returns the controllers of an object: the one that it has, and before it the one that it had, which needs
// another one if it was released.
func ownersOf(was, is Object, atOnce bool) (all []*metav1.OwnerReference) {
	for _, o := range []Object{was, is} {
		if o == nil || o == was && is != nil && atOnce {
			continue
		}
		if owner := metav1.GetControllerOf(o); owner != nil && (len(all) == 0 || all[0].UID != owner.UID) {
			all = append(all, owner)
		}
	}
	return all
}

var resourceOfOwner = map[string]string{"ReplicaSet": ReplicaSets, "Deployment": Deployments,
	"StatefulSet": StatefulSets, "DaemonSet": DaemonSets}

// Writes reports whether a world writes the condition of a type into a status.
func Writes(condition string) bool {
	switch condition {
	case string(corev1.PodScheduled), string(corev1.PodInitialized), string(corev1.ContainersReady),
		string(corev1.PodReady), string(appsv1.DeploymentAvailable), string(appsv1.DeploymentProgressing),
		string(batchv1.JobSuspended), string(batchv1.JobComplete), string(batchv1.JobFailed),
		string(batchv1.JobSuccessCriteriaMet), string(batchv1.JobFailureTarget):
		return true
	}
	return false
}

// React does about an item what is to be done now. It returns how long to wait until the item has to be looked at
// again, even if nothing changes; zero: it has not.
func (w *World) React(ctx context.Context, i Item) (again time.Duration, err error) {
	switch i.Resource {
	case Deployments:
		again, err = rollout{w}.deployment(ctx, i.Namespace, i.Name)
	case ReplicaSets:
		again, err = w.replicaSet(ctx, i.Namespace, i.Name)
	case StatefulSets:
		again, err = w.statefulSet(ctx, i)
	case DaemonSets:
		again, err = nodes{w}.daemonSet(ctx, i)
	case Jobs:
		again, err = w.job(ctx, i.Namespace, i.Name)
	case Claims:
		if i.Namespace == "" {
			again, err = claims{w}.bindTo(ctx, i.Name)
		} else {
			again, err = claims{w}.bind(ctx, i.Namespace, i.Name)
		}
	case Pods:
		if i.Namespace == "" {
			again, err = nodes{w}.pods(ctx, i.Name)
		} else {
			again, err = w.pod(ctx, i.Namespace, i.Name)
		}
	case Nodes:
		again, err = nodes{w}.taint(ctx, i.Name)
	case Services:
		again, err = services{w}.balance(ctx, i.Namespace, i.Name)
	case Endpoints:
		err = services{w}.endpoints(ctx, i.Namespace)
	}
	if apierrors.IsNotFound(err) { // it is gone, and so is what was to be done
		return 0, nil
	}
	return again, err
}

// attempts is how often CarryOut tries what fails since others write to the same object meanwhile.
const attempts = 5

// CarryOut does about items what is to be done, and about what that affects, until nothing is left. It looks at the
// cluster as it is now, and begins anew if somebody else writes at the same time.
func (w *World) CarryOut(ctx context.Context, items []Item) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range items {
		for attempt := 1; ; attempt++ {
			_, err := w.React(ctx, i)
			if err == nil {
				break
			}
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) || attempt == attempts {
				return err
			}
			if !lifecycle.Sleep(ctx, 20*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// left returns how long an object still takes; zero: it is done.
func (w *World) left(since map[types.UID]time.Time, o Object) time.Duration {
	begin, ok := since[o.GetUID()]
	if !ok {
		begin = time.Now()
		since[o.GetUID()] = begin
	}
	if w.Takes == nil {
		return 0
	}
	return max(0, time.Until(begin.Add(w.Takes(o))))
}

func (w *World) health(o Object) Health {
	if w.Health == nil {
		return Well
	}
	return w.Health(o)
}

// carried writes the status that finish makes, unless the object has it.
func carried[T interface {
	Object
	DeepCopy() T
}](ctx context.Context, w *World, is T, update func(context.Context, T, metav1.UpdateOptions) (T, error),
	finish func(T)) error {
	done := is.DeepCopy()
	if finish(done); w.Trim != nil {
		w.Trim(done)
	}
	if apiequality.Semantic.DeepEqual(is, done) {
		return nil
	}
	_, err := update(ctx, done, metav1.UpdateOptions{})
	return err
}

// now is the time as objects have it, in seconds.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// serves reports whether the cluster has a resource in a version, such as "apps/v1".
func (w *World) serves(ctx context.Context, version, resource string) (bool, error) {
	known, ok := w.kinds[version]
	if !ok {
		served, err := w.client.resources(ctx, version)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		known = map[string]bool{}
		if err == nil {
			for _, r := range served.APIResources {
				known[r.Name] = true
			}
		}
		w.kinds[version] = known
	}
	return known[resource], nil
}
