package zoo

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// badImage is one that does not start.
const badImage = "bad"

const kubeletFinalizer = "zoo.example.com/kubelet"

// beside stands in for the kubelet and for the controller of stateful sets: a Set gets Members, a Member becomes ready
// after a second, unless its image is bad, and takes a second to go.
func beside(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	w := &world{client: client}
	for ctx.Err() == nil {
		version, worked := "", false
		for _, name := range []string{sets, members} {
			list, err := client.Resource(resource(name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				break
			}
			if version == "" { // of the first list, so that nothing passes between the two
				version = list.GetResourceVersion()
			}
			for _, o := range list.Items {
				if name == sets {
					worked = w.fill(ctx, &o) || worked
				} else {
					worked = w.tend(ctx, &o) || worked
				}
			}
		}
		if worked {
			pause(ctx, time.Second)
			continue
		}
		wait(ctx, client, version)
	}
	return nil
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// wait returns when a Set or a Member has changed since a version, or ctx has ended.
func wait(ctx context.Context, client dynamic.Interface, version string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := client.Resource(resource(sets)).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		pause(ctx, time.Second)
		return
	}
	defer s.Stop()
	m, err := client.Resource(resource(members)).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		pause(ctx, time.Second)
		return
	}
	defer m.Stop()
	select {
	case <-s.ResultChan():
	case <-m.ResultChan():
	case <-ctx.Done():
	}
}

// fill makes a Set have as many Members as it asks for, and reports whether it had something to do.
func (w *world) fill(ctx context.Context, of *object) bool {
	list, err := w.client.Resource(resource(members)).Namespace(of.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: "set=" + of.GetName()})
	if err != nil {
		return true
	}
	var there []string
	worked := false
	for _, m := range list.Items {
		there = append(there, m.GetName())
		if m.GetLabels()["ordinal"] >= fmt.Sprint(number(of, "spec", "count")) && m.GetDeletionTimestamp() == nil {
			worked = true
			_ = w.delete(ctx, members, m.GetNamespace(), m.GetName(), m.GetUID()) // the next round looks again
		}
	}
	for i := range number(of, "spec", "count") {
		name := ordinal(of.GetName(), i)
		if slices.Contains(there, name) || of.GetDeletionTimestamp() != nil {
			continue
		}
		worked = true
		m := child(of, members, name, spec{"image": text(of, "spec", "image")})
		m.SetLabels(map[string]string{"cluster": of.GetLabels()["cluster"], "set": of.GetName(),
			"ordinal": fmt.Sprint(i)})
		m.SetFinalizers([]string{kubeletFinalizer})
		_ = w.create(ctx, members, m)
	}
	return worked
}

// tend does for a Member what is due, and reports whether there was something.
func (w *world) tend(ctx context.Context, m *object) bool {
	switch ready, _ := m.Object["status"].(map[string]any); {
	case m.GetDeletionTimestamp() != nil && slices.Contains(m.GetFinalizers(), kubeletFinalizer):
		pause(ctx, time.Second)
		m.SetFinalizers(nil)
		_ = w.update(ctx, members, m)
	case m.GetDeletionTimestamp() == nil && (ready["image"] != text(m, "spec", "image")):
		pause(ctx, time.Second)
		set(m, map[string]any{"image": text(m, "spec", "image"), "ready": text(m, "spec", "image") != badImage},
			"status")
		_ = w.updateStatus(ctx, members, m)
	default:
		return false
	}
	return true
}

// replacing is what the controller of stateful sets does when a Set has another image: it deletes the Members with the
// old one. ordered: not those that are not ready, for which it waits.
func replacing(ordered bool) func(ctx context.Context, cfg *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		w := &world{client: client}
		for ctx.Err() == nil {
			list, err := client.Resource(resource(sets)).List(ctx, metav1.ListOptions{})
			if err != nil {
				pause(ctx, time.Second)
				continue
			}
			for i := range list.Items {
				w.replace(ctx, &list.Items[i], ordered)
			}
			wait(ctx, client, list.GetResourceVersion())
		}
		return nil
	}
}

// replace deletes the Members of a Set that have another image.
func (w *world) replace(ctx context.Context, of *object, ordered bool) {
	list, err := w.client.Resource(resource(members)).Namespace(of.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: "set=" + of.GetName()})
	if err != nil {
		return
	}
	for i := range list.Items {
		m := &list.Items[i]
		if text(m, "spec", "image") == text(of, "spec", "image") || m.GetDeletionTimestamp() != nil ||
			ordered && !isReady(m) {
			continue
		}
		_ = w.delete(ctx, members, m.GetNamespace(), m.GetName(), m.GetUID()) // the next round looks again
	}
}

// isReady reports whether a Member runs the image that it is to run.
func isReady(m *object) bool {
	status, _ := m.Object["status"].(map[string]any)
	return m.GetDeletionTimestamp() == nil && status["ready"] == true && status["image"] == text(m, "spec", "image")
}

// sizing is a controller of somebody else's that gives each Set a size, as an autoscaler of pods does.
func sizing(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	w := &world{client: client}
	for ctx.Err() == nil {
		list, err := client.Resource(resource(sets)).List(ctx, metav1.ListOptions{})
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		for _, s := range list.Items {
			if text(&s, "spec", "size") == "" {
				set(&s, "large", "spec", "size")
				_ = w.update(ctx, sets, &s)
			}
		}
		wait(ctx, client, list.GetResourceVersion())
	}
	return nil
}
