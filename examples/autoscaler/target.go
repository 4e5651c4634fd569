package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	cached "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/thermostat-go/thermostat/informer"
)

// What is scaled, and how?
//
// The target may be of any kind that has the scale subresource. It is read anew in each look: that is one request, and
// a cache of every kind that may be a target would cost more.

// target is what an HPA scales.
type target struct {
	scale  *autoscalingv1.Scale
	client *informer.Subresource[*autoscalingv1.Scale]
}

// targets knows the clients of all kinds that were targets.
type targets struct {
	cfg       *rest.Config
	directory *directory

	mu      sync.Mutex
	clients map[schema.GroupVersionResource]*informer.Subresource[*autoscalingv1.Scale] // guarded by mu
}

// get reads the scale of the target of an HPA. If a kind has several resources, the first that has the object counts.
func (t *targets) get(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler) (*target, error) {
	ref := hpa.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("invalid API version in scale target reference: %w", err)
	}
	resources, err := t.directory.resources(ctx, schema.GroupKind{Group: gv.Group, Kind: ref.Kind})
	if err != nil {
		return nil, err
	}
	var first error
	for _, resource := range resources {
		client, err := t.client(resource)
		if err != nil {
			return nil, err
		}
		found := &target{client: client.In(hpa.Namespace)}
		if found.scale, err = found.client.Get(ctx, ref.Name, metav1.GetOptions{}); err == nil {
			return found, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// client returns the client for the scales of a resource.
func (t *targets) client(of schema.GroupVersionResource) (*informer.Subresource[*autoscalingv1.Scale], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if client := t.clients[of]; client != nil {
		return client, nil
	}
	resource, err := informer.NewResource[*metav1.PartialObjectMetadata](t.cfg, of, informer.ResourceOptions{})
	if err != nil {
		return nil, err
	}
	client, err := informer.NewSubresource[*autoscalingv1.Scale](resource, "scale")
	if err == nil {
		t.clients[of] = client
	}
	return client, err
}

// resize sets the number of replicas. Each change of the object, such as a status, is a conflict; then resize tries
// again, unless the number itself was changed: that calls for another decision.
func (t *target) resize(ctx context.Context, n int32) error {
	seen := t.scale
	for try := 1; ; try++ {
		changed := t.scale.DeepCopy()
		changed.Spec.Replicas = n
		_, err := t.client.Update(ctx, changed.Name, changed, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) || try == 5 {
			return err
		}
		newest, readErr := t.client.Get(ctx, seen.Name, metav1.GetOptions{})
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		if newest.UID != seen.UID || newest.Spec.Replicas != seen.Spec.Replicas {
			return fmt.Errorf("the number of replicas was changed meanwhile: %w", err)
		}
		t.scale = newest
	}
}

// directory knows which resources a kind has, by discovery. What it has learned holds for some time.
type directory struct {
	client discovery.DiscoveryInterface
	mapper *restmapper.DeferredDiscoveryRESTMapper

	mu     sync.Mutex
	readAt time.Time // guarded by mu
	custom string    // the version of custom.metrics.k8s.io, or empty; guarded by mu
}

// directoryAge is how long it may take until a kind that is new, or gone, is noticed.
const directoryAge = 30 * time.Second

func newDirectory(client discovery.DiscoveryInterface) *directory {
	return &directory{client: client,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(cached.NewMemCacheClient(client))}
}

// refresh forgets what has become too old. The caller holds d.mu.
func (d *directory) refresh(ctx context.Context) {
	if now := time.Now(); now.Sub(d.readAt) >= directoryAge {
		d.mapper.ResetWithContext(ctx)
		d.readAt, d.custom = now, ""
	}
}

// resources returns the resources of a kind, at least one.
func (d *directory) resources(ctx context.Context, kind schema.GroupKind) ([]schema.GroupVersionResource, error) {
	d.mu.Lock()
	d.refresh(ctx)
	d.mu.Unlock()
	mappings, err := d.mapper.RESTMappingsWithContext(ctx, kind)
	if err != nil {
		return nil, err
	}
	if len(mappings) == 0 {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	var found []schema.GroupVersionResource
	for _, m := range mappings {
		found = append(found, m.Resource)
	}
	return found, nil
}
