package check

import (
	"context"
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// cloud is a provider whose API has the records of package outside: /balancers, /instances and /routes.
type cloud struct{}

// balancer, instance and routeTo are the records.
type balancer struct {
	Ports []int32
	Hosts []string
}

type instance struct {
	Address string
	Off     bool
}

type routeTo struct {
	Node string
	CIDR string
}

func (cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                { return c, true }
func (cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                  { return c, true }
func (cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (c cloud) Routes() (cloudprovider.Routes, bool)                            { return c, true }
func (cloud) ProviderName() string                                              { return "example" }
func (cloud) HasClusterID() bool                                                { return true }

func (cloud) GetLoadBalancerName(_ context.Context, _ string, service *corev1.Service) string {
	return service.Namespace + "-" + service.Name
}

// path is that of the load balancer of a service.
func (c cloud) path(ctx context.Context, cluster string, service *corev1.Service) string {
	return "/balancers/" + c.GetLoadBalancerName(ctx, cluster, service)
}

var address = &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}}

func (c cloud) GetLoadBalancer(ctx context.Context, cluster string, service *corev1.Service) (
	*corev1.LoadBalancerStatus, bool, error) {
	err := ask(ctx, http.MethodGet, c.path(ctx, cluster, service), nil, nil)
	if errors.Is(err, errNone) {
		return nil, false, nil
	}
	return address, err == nil, err
}

func (c cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *corev1.Service,
	nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	return address, c.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

func (c cloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *corev1.Service,
	nodes []*corev1.Node) error {
	is := balancer{Hosts: sorted(nodes, func(n *corev1.Node) string { return n.Name })}
	for _, port := range service.Spec.Ports {
		is.Ports = append(is.Ports, port.Port)
	}
	return ask(ctx, http.MethodPut, c.path(ctx, cluster, service), is, nil)
}

func (c cloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *corev1.Service) error {
	return ask(ctx, http.MethodDelete, c.path(ctx, cluster, service), nil, nil)
}

func (cloud) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	err := ask(ctx, http.MethodGet, "/instances/"+node.Name, nil, nil)
	if errors.Is(err, errNone) {
		return false, nil
	}
	return err == nil, err
}

func (cloud) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	var is instance
	err := ask(ctx, http.MethodGet, "/instances/"+node.Name, nil, &is)
	return is.Off, err
}

func (cloud) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	var is instance
	err := ask(ctx, http.MethodGet, "/instances/"+node.Name, nil, &is)
	if errors.Is(err, errNone) {
		err = cloudprovider.InstanceNotFound
	}
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{ProviderID: "example://" + node.Name, InstanceType: "small",
		Zone: "a", Region: "here", NodeAddresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: is.Address}}}, nil
}

func (cloud) ListRoutes(ctx context.Context, _ string) (all []*cloudprovider.Route, err error) {
	at := map[string]routeTo{}
	err = ask(ctx, http.MethodGet, "/routes/", nil, &at)
	for name, r := range at {
		all = append(all, &cloudprovider.Route{Name: name, TargetNode: types.NodeName(r.Node),
			DestinationCIDR: r.CIDR})
	}
	return all, err
}

func (cloud) CreateRoute(ctx context.Context, _, _ string, r *cloudprovider.Route) error {
	to := string(r.TargetNode)
	return ask(ctx, http.MethodPut, "/routes/"+to, routeTo{to, r.DestinationCIDR}, nil)
}

func (cloud) DeleteRoute(ctx context.Context, _ string, r *cloudprovider.Route) error {
	return ask(ctx, http.MethodDelete, "/routes/"+string(r.TargetNode), nil, nil)
}
