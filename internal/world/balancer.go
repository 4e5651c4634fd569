package world

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// balance gives a Service of the type LoadBalancer an address when its time is over, as the cloud does that takes those
// without a class. The server takes it away from one that gets another type.
func (s services) balance(ctx context.Context, namespace, name string) (again time.Duration, err error) {
	c := s.client.CoreV1().Services(namespace)
	service, err := c.Get(ctx, name, metav1.GetOptions{})
	if err != nil || service.DeletionTimestamp != nil {
		return 0, err
	}
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.Spec.LoadBalancerClass != nil {
		delete(s.begun, service.UID) // if it gets the type again, it takes as long again
		return 0, nil
	}
	if len(service.Status.LoadBalancer.Ingress) > 0 {
		return 0, nil
	}
	if again = s.left(s.begun, service); again > 0 || s.health(service) != Well {
		return again, nil
	}
	return 0, carried(ctx, s.World, service, c.UpdateStatus, func(service *corev1.Service) {
		mode := corev1.LoadBalancerIPModeVIP
		ip := fmt.Sprintf("198.19.%d.%d", s.doors/254%256, 1+s.doors%254) // next to those of pods
		s.doors++
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: &mode}}
	})
}
