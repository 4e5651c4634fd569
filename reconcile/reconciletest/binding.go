package reconciletest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// bindings is the resource by whose rules a Binding is decoded. It is never stored.
var bindings = &Resource{
	GroupVersionResource: corev1.SchemeGroupVersion.WithResource("bindings"), Kind: "Binding",
	builtin: &rules{new: func() object { return &corev1.Binding{} }},
}

// bind answers a POST to the binding subresource of a pod, which is how a scheduler gives a pod to a node.
func (c *call) bind(s *Server) (*http.Response, error) {
	resource := c.resource
	c.resource = bindings
	decoded, err := s.decode(c, c.media, c.body, bindings.cannotHandle)
	c.resource = resource
	if err != nil {
		return nil, err
	}
	binding := decoded.(*corev1.Binding)
	if err := sameNamespace(c, binding); err != nil {
		return nil, err
	}
	target := binding.Target
	switch {
	case binding.Name != c.Name:
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	case target.Kind != "" && target.Kind != "Node":
		return nil, notModelled("a Binding to a %s", target.Kind)
	case len(validation.IsDNS1123Subdomain(target.Name)) > 0:
		return nil, notModelled("the node name %q of a Binding", target.Name)
	case len(binding.Labels)+len(binding.Annotations) > 0:
		return nil, notModelled("labels and annotations of a Binding")
	}
	a := newAdmission(s, c, binding, nil)
	if err := a.unasked(slices.Concat(a.hooks(mutatingConfigurations), a.hooks(validatingConfigurations))); err != nil {
		return nil, err
	}
	if s.fork != nil {
		s.fork.unasked(a)
	}
	for {
		live := s.lookup(c.resource, c.key())
		if live == nil {
			return nil, c.notFound()
		}
		bound, err := c.bound(live.(*corev1.Pod), binding)
		if err != nil {
			return nil, err
		}
		if !c.DryRun {
			var written object
			if written, err = s.store.write(c.resource.GroupResource(), c.key(), live, bound); err == nil {
				s.fork.wrote(c, live, written, false)
			}
		}
		switch {
		case errors.Is(err, errRaced):
		case err != nil:
			return nil, err
		default:
			return answerObject(http.StatusCreated, c.format, &metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
				Code: http.StatusCreated}), nil
		}
	}
}

// bound returns the pod as the Binding makes it. The subresource has no field manager, and a pod that is given to a
// node has no new generation.
func (c *call) bound(live *corev1.Pod, binding *corev1.Binding) (*corev1.Pod, error) {
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(corev1.Resource("pods/binding"), c.Name, fmt.Errorf(format, args...))
	}
	switch {
	case binding.UID != "" && binding.UID != live.UID:
		//lint:ignore ST1005 it is the real server's text
		return nil, apierrors.NewConflict(c.Resource.GroupResource(), c.Name, fmt.Errorf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", binding.UID, live.UID))
	case binding.ResourceVersion != "":
		return nil, notModelled("the resourceVersion of a Binding")
	case live.DeletionTimestamp != nil:
		return nil, refuse("pod %s is being deleted, cannot be assigned to a host", live.Name)
	case live.Spec.NodeName != "":
		return nil, refuse("pod %v is already assigned to node %q", live.Name, live.Spec.NodeName)
	case len(live.Spec.SchedulingGates) > 0:
		return nil, refuse("pod %v has non-empty .spec.schedulingGates", live.Name)
	}
	pod := live.DeepCopy()
	pod.Spec.NodeName, pod.Status.NominatedNodeName = binding.Target.Name, ""
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now())}
	for i, condition := range pod.Status.Conditions {
		if condition.Type != corev1.PodScheduled {
			continue
		}
		if condition.Status == scheduled.Status {
			scheduled.LastTransitionTime = condition.LastTransitionTime
		}
		pod.Status.Conditions[i] = scheduled
		return pod, nil
	}
	pod.Status.Conditions = append(pod.Status.Conditions, scheduled)
	return pod, nil
}
