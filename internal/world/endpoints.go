package world

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by of the EndpointSlices that a world makes.
const ManagedBy = "endpointslice-controller.k8s.io"

// services is the part of a world that says what is behind a Service.
type services struct{ *World }

// endpoints writes for each Service of a namespace that selects pods which of them are behind it: into its Endpoints
// and one EndpointSlice, as far as the cluster has them.
func (w services) endpoints(ctx context.Context, namespace string) error {
	sliced, err := w.serves(ctx, discoveryv1.SchemeGroupVersion.String(), "endpointslices")
	if err != nil {
		return err
	}
	plain, err := w.serves(ctx, "v1", "endpoints")
	if err != nil || !sliced && !plain {
		return err
	}
	all, err := w.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		s := &all.Items[i]
		if s.DeletionTimestamp != nil || len(s.Spec.Selector) == 0 {
			continue
		}
		behind := behind(s, pods.Items)
		if sliced {
			if err := w.slice(ctx, s, behind); err != nil {
				return err
			}
		}
		if plain {
			if err := w.plain(ctx, s, behind); err != nil {
				return err
			}
		}
	}
	return nil
}

// behind returns the pods of a Service that have an address.
func behind(s *corev1.Service, all []corev1.Pod) (pods []*corev1.Pod) {
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for i := range all {
		if p := &all[i]; selector.Matches(labels.Set(p.Labels)) && p.Status.PodIP != "" && !isOver(p) {
			pods = append(pods, p)
		}
	}
	return pods
}

func toPod(p *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func ofService(s *corev1.Service) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(s, corev1.SchemeGroupVersion.WithKind("Service"))}
}

// slice writes the EndpointSlice of a Service.
func (w services) slice(ctx context.Context, s *corev1.Service, pods []*corev1.Pod) error {
	c := w.client.DiscoveryV1().EndpointSlices(s.Namespace)
	want := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-1", OwnerReferences: ofService(s), Labels: map[string]string{
			discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: ManagedBy}}}
	for _, p := range pods {
		_, ready := readySince(p)
		e := discoveryv1.Endpoint{Addresses: []string{p.Status.PodIP}, TargetRef: toPod(p),
			Conditions: discoveryv1.EndpointConditions{Ready: new(ready || s.Spec.PublishNotReadyAddresses),
				Serving: &ready, Terminating: new(p.DeletionTimestamp != nil)}}
		if p.Spec.NodeName != "" {
			e.NodeName = &p.Spec.NodeName
		}
		want.Endpoints = append(want.Endpoints, e)
	}
	for _, p := range s.Spec.Ports {
		want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol,
			Port: new(targetPort(p, pods))})
	}
	is, err := c.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.Create(ctx, want, metav1.CreateOptions{})
		return err
	case err != nil || apiequality.Semantic.DeepEqual(is.Endpoints, want.Endpoints) &&
		apiequality.Semantic.DeepEqual(is.Ports, want.Ports):
		return err
	}
	is.Endpoints, is.Ports = want.Endpoints, want.Ports
	_, err = c.Update(ctx, is, metav1.UpdateOptions{})
	return err
}

// plain writes the Endpoints of a Service.
func (w services) plain(ctx context.Context, s *corev1.Service, pods []*corev1.Pod) error {
	c := w.client.CoreV1().Endpoints(s.Namespace)
	var subset corev1.EndpointSubset
	for _, p := range pods {
		address := corev1.EndpointAddress{IP: p.Status.PodIP, TargetRef: toPod(p)}
		if _, ready := readySince(p); ready || s.Spec.PublishNotReadyAddresses {
			subset.Addresses = append(subset.Addresses, address)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	for _, p := range s.Spec.Ports {
		subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: p.Name, Protocol: p.Protocol,
			Port: targetPort(p, pods)})
	}
	var want []corev1.EndpointSubset
	if len(pods) > 0 {
		want = append(want, subset)
	}
	is, err := c.Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.Create(ctx, &corev1.Endpoints{Subsets: want, ObjectMeta: metav1.ObjectMeta{Name: s.Name,
			OwnerReferences: ofService(s), Labels: map[string]string{discoveryv1.LabelManagedBy: ManagedBy}}},
			metav1.CreateOptions{})
		return err
	case err != nil || apiequality.Semantic.DeepEqual(is.Subsets, want):
		return err
	}
	is.Subsets = want
	_, err = c.Update(ctx, is, metav1.UpdateOptions{})
	return err
}

// targetPort is the port of the pods that a port of a Service leads to, by its number or by the name of a container's.
func targetPort(p corev1.ServicePort, pods []*corev1.Pod) int32 {
	if p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal != 0 {
		return p.TargetPort.IntVal
	}
	for _, pod := range pods {
		for _, c := range pod.Spec.Containers {
			i := slices.IndexFunc(c.Ports, func(named corev1.ContainerPort) bool {
				return named.Name == p.TargetPort.StrVal
			})
			if i >= 0 && p.TargetPort.StrVal != "" {
				return c.Ports[i].ContainerPort
			}
		}
	}
	return p.Port
}
