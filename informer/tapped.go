package informer

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/tap"
	"github.com/thermostat-go/thermostat/informer/internal/wire"
)

// tappedSource is the source of a Client of package clientgo, whose answers package tap may read. If it does not, this
// is a plainSource.
type tappedSource[L runtime.Object] struct {
	plainSource[L]
	tap *tap.Tap
}

func (s tappedSource[L]) list(ctx context.Context, opts metav1.ListOptions) (response, error) {
	tapped, list, err := s.tap.List(ctx, func(ctx context.Context) (runtime.Object, error) {
		return s.client.List(ctx, opts)
	})
	switch {
	case err != nil:
		return response{}, discreetList(err)
	case tapped == nil:
		return listed(list)
	}
	each := func(visit func(*metav1.ListMeta, []wire.Event) error) (metav1.ListMeta, error) {
		var visited error
		head, err := tapped.Each(func(events []wire.Event) error {
			visited = visit(nil, events) // the client makes one request at a time, so the next one has to wait
			return visited
		})
		if err != nil && visited == nil {
			err = discreetList(err)
		}
		return head, err
	}
	return response{each: each, stop: tapped.Stop}, nil
}

func (s tappedSource[L]) watch(ctx context.Context, opts metav1.ListOptions) (stream, error) {
	tapped, client, err := s.tap.Watch(ctx, func(ctx context.Context) (watch.Interface, error) {
		return s.client.Watch(ctx, opts)
	})
	switch {
	case err != nil:
		return stream{}, discreet(err)
	case tapped == nil:
		return stream{events: client.ResultChan(), stop: client.Stop}, nil
	}
	return stream{events: tapped.Client.ResultChan(), reader: tapped.Reader, batches: tapped.Reader.Batches,
		stop: tapped.Stop}, nil
}
