package reconciletest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/internal/world"
)

// World is the cluster around a program, for [Scenario.World]: what its controllers and nodes do about the objects that
// are written.
//
//   - Pods are bound to the first node that their nodeSelector selects, that their node affinity requires and that is
//     neither cordoned nor reported not to be ready, when their claims are bound; they run when the Secrets and
//     ConfigMaps are there that they need, get ready when their readiness gates are true as well, and go when they are
//     deleted. There is a node, unless [Options.Manifests] has others. Pods with a scheduler of their own wait for it.
//     Nothing becomes of pods on a node that is reported not to be ready, until it is, or is gone.
//   - Deployments are rolled out by ReplicaSets, within maxSurge and maxUnavailable; ReplicaSets have pods.
//   - StatefulSets have pods and claims, in order; DaemonSets have a pod on each node that their nodeSelector selects
//     and their node affinity requires.
//   - Jobs run and end, without pods, and wait while they are suspended. Claims are bound, to the volume that they name
//     or to none. Of two that name one volume both are bound.
//   - Services of the type LoadBalancer get an address, unless they have a loadBalancerClass: whoever has that class
//     gives them one.
//   - The pods behind a Service are in its Endpoints and one EndpointSlice. That takes Endpoints, EndpointSlices and
//     pods with addresses: [Options.Kinds] of package reconciletest/builtin. So do DaemonSets.
//
// It does not do all that a cluster does:
//
//   - Taints, other affinity and resources hold no pod back, and neither does a key that a Secret or ConfigMap lacks.
//     Nodes have no status. Pods never end by themselves, whatever their restartPolicy.
//   - A Deployment has no ProgressDeadlineExceeded, and keeps its size while it is paused. Neither it nor a ReplicaSet
//     says that a pod could not be made. A template that comes back gets its old revision, and old ReplicaSets stay.
//   - Orphans that a selector matches are adopted when the workload is looked at for another reason.
//   - DaemonSets replace one pod after the other, whatever maxUnavailable and maxSurge say.
//   - Jobs ignore activeDeadlineSeconds, ttlSecondsAfterFinished, managedBy, and the indexes of their pods.
//   - A pod takes as long to go as to get ready, whatever its terminationGracePeriodSeconds.
//
// A status has the fields that the server has room for. Namespaces end as on each [Server].
//
// The world is no part of the program: its writes are neither disturbed nor judged, and the timeline names it. Nor is
// the status of what it carries out compared (of a Service the address that it gives), and its Endpoints are not. The
// same seed is the same run. It can be slow or fail for a while, by the schedule: see the disturbances of [Check] in
// the doc of the package. What the server refuses it tries again, and the timeline says so; what the server has no
// model of fails the run.
type World struct {
	// Takes is how long a pod takes to get ready, and to go, a Job to end, a claim to be bound, a node to get ready,
	// and a Service of the type LoadBalancer to get an address. Check waits for two hours after a step until the world
	// is done, and says if that was not enough. Nil: a second.
	Takes func(o Object) time.Duration
	// Fails reports of a pod, a Job, a claim, a node or a Service that it never works: the pod runs and does not get
	// ready, the Job fails, the claim stays pending, the node stays tainted, the load balancer gets no address. Nil:
	// all work.
	Fails func(o Object) bool
	// Except are the resources that the world leaves alone, such as "deployments" when the program rolls those out
	// itself: of pods, replicasets, deployments, statefulsets, daemonsets, jobs, persistentvolumeclaims, nodes,
	// services (their load balancers), endpoints. Empty: none.
	Except []string
}

func (w *World) validate() error {
	if w == nil {
		return nil
	}
	for i, resource := range w.Except {
		if !slices.Contains(world.Resources, resource) {
			return fmt.Errorf("Scenario.World.Except[%d] is %q: it is one of %s", i, resource,
				strings.Join(world.Resources, ", "))
		}
	}
	return nil
}

// does reports whether the world carries a resource out.
func (w *World) does(resource string) bool {
	return w != nil && slices.Contains(world.Resources, resource) && !slices.Contains(w.Except, resource)
}

// mask removes what is the world's from an object of a snapshot: two programs that do the same may see it do
// something else.
func (w *World) mask(o *unstructured.Unstructured) {
	kind := o.GroupVersionKind()
	resource := strings.ToLower(kind.Kind) + "s"
	switch {
	case o.GetLabels()[discoveryv1.LabelManagedBy] == world.ManagedBy && w.does(world.Endpoints):
		o.Object = nil
		return
	case !w.does(resource) || resource == world.Nodes ||
		world.Versioned(resource).GroupVersion() != kind.GroupVersion():
		return
	}
	if size, ok, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); ok && size == 0 &&
		resource == world.ReplicaSets && ofDeployment(o) && w.does(world.Deployments) {
		o.Object = nil // it is left of an earlier template, if the world has seen that
		return
	}
	if resource == world.Services {
		maskBalancer(o)
		return
	}
	maskStatus(o)
	unstructured.RemoveNestedField(o.Object, "metadata", "labels", world.TemplateGenerationLabel)
	if w.does(world.Deployments) && o.GetAnnotations()[world.Revision] != "" {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", world.Revision)
		if len(o.GetAnnotations()) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		}
	}
}

// ofDeployment reports whether a Deployment has made an object, and not a kind of the program's own.
func ofDeployment(o *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.Kind == "Deployment" && strings.HasPrefix(owner.APIVersion, "apps/")
}

// maskBalancer removes the address of a load balancer that the world gives.
func maskBalancer(o *unstructured.Unstructured) {
	if class, _, _ := unstructured.NestedString(o.Object, "spec", "loadBalancerClass"); class == "" {
		unstructured.RemoveNestedField(o.Object, "status", "loadBalancer")
	}
}

// maskStatus removes a status, but for the conditions that are not the world's, such as those of readiness gates.
func maskStatus(o *unstructured.Unstructured) {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	delete(o.Object, "status")
	all = slices.DeleteFunc(all, func(c any) bool {
		fields, _ := c.(map[string]any)
		kind, _ := fields["type"].(string)
		return world.Writes(kind)
	})
	if len(all) > 0 {
		o.Object["status"] = map[string]any{"conditions": all}
	}
}

// trim takes out of the status of an object what the server has no model of.
func trim(s *Server, o object) {
	resource := world.ResourceOf(o)
	r := s.resources.of(world.Versioned(resource))
	if s.fork != nil || r == nil || registered(r) != nil {
		return
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // it is one of Kubernetes' own
	}
	if tree["status"] = modelledFields[resource].within("status", tree["status"]); tree["status"] == nil {
		delete(tree, "status")
	}
	trimmed := reflect.New(reflect.TypeOf(o).Elem()).Interface().(object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, trimmed); err != nil {
		panic(err)
	}
	assign(o, trimmed)
}
