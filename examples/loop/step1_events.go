package main

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Step 1: a list and a watch. The program does what each event suggests.
func step1(ctx context.Context, c cluster) error {
	events := make(chan watch.Event)
	happened := func(e watch.Event) { send(ctx, events, e) }
	listed := func(objects []runtime.Object, _ string) {
		for _, o := range objects {
			happened(watch.Event{Type: watch.Added, Object: o})
		}
	}
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() { follow(ctx, c.configMaps, listed, happened) })
	g.Go(func() { follow(ctx, c.pods, listed, happened) })

	started := map[string]bool{} // the ConfigMaps that have got their pods
	for {
		select {
		case e := <-events:
			if err := c.react(ctx, e, started); err != nil {
				log.Print(err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// react gives a new ConfigMap its pods, and replaces a pod that was deleted.
func (c cluster) react(ctx context.Context, e watch.Event, started map[string]bool) error {
	create := 0
	switch o := e.Object.(type) {
	case *corev1.ConfigMap:
		if e.Type == watch.Added && !started[o.Name] {
			started[o.Name] = true
			create, _ = numberOfPods(o)
		}
	case *corev1.Pod:
		if e.Type == watch.Deleted {
			create = 1
		}
	}
	for range create {
		if _, err := c.createPod(ctx, keyOf(e.Object)); err != nil {
			return err
		}
	}
	return nil
}

// keyOf is the name of the ConfigMap that an object is about.
func keyOf(o any) string {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return o.Name
	case *corev1.Pod:
		return o.Labels[label]
	}
	return ""
}

// follow lists the objects of one kind, and then watches what happens to them. When a watch ends, as each does sooner
// or later, follow begins again, with a list. It returns when ctx ends.
func follow[L runtime.Object](ctx context.Context, c client[L],
	listed func(objects []runtime.Object, version string), happened func(watch.Event)) {
	for {
		err := listAndWatch(ctx, c, listed, happened)
		if !sleep(ctx, time.Second) {
			return
		}
		log.Printf("list again: %v", err)
	}
}

// client is the part of a client that reads. L is a *ConfigMapList or a *PodList.
type client[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// listAndWatch tells listed what there is, and of which version of the cluster that is true. Then it tells happened
// each change after that version, in order and without a gap, until the watch ends. It returns why it has ended.
func listAndWatch[L runtime.Object](ctx context.Context, c client[L],
	listed func(objects []runtime.Object, version string), happened func(watch.Event)) error {
	list, err := c.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	at, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	listed(objects, at.GetResourceVersion())
	w, err := c.Watch(ctx, metav1.ListOptions{LabelSelector: label, ResourceVersion: at.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		happened(e)
	}
	return errors.New("the watch has ended")
}
