package zoo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// badImage is one that does not start.
const badImage = "bad"

const kubeletFinalizer = "zoo.example.com/kubelet"

// beside stands in for the kubelet and for the controller of stateful sets: a Set gets Members, a Member becomes ready
// after a second, unless its image is bad, and takes a second to go.
var beside = standIn(fill, tend)

// A duty is what a stand-in does about the Sets and Members that there are. It reports whether there was something.
type duty func(ctx context.Context, w *world, v *view) bool

// standIn does its duties at first, and when a Set or a Member has changed.
func standIn(duties ...duty) func(ctx context.Context, cfg *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		w := &world{client: client}
		for ctx.Err() == nil {
			v, err := w.look(ctx)
			if err != nil {
				pause(ctx, time.Second)
				continue
			}
			for !v.ended && ctx.Err() == nil {
				worked := false
				for _, do := range duties {
					worked = do(ctx, w, v) || worked
				}
				v.next(ctx, worked)
			}
			v.stop()
		}
		return nil
	}
}

// view is what a stand-in sees: the Sets and Members, by their names, read-only.
type view struct {
	sets, members               map[string]*object
	changedSets, changedMembers watch.Interface
	ended                       bool // a watch has
}

// look lists what there is, and watches it.
func (w *world) look(ctx context.Context) (*view, error) {
	v := &view{}
	for _, name := range []string{sets, members} {
		list, err := w.client.Resource(resource(name)).List(ctx, metav1.ListOptions{})
		if err != nil {
			v.stop()
			return nil, err
		}
		there := map[string]*object{}
		for i := range list.Items {
			there[list.Items[i].GetName()] = &list.Items[i]
		}
		changed, err := w.client.Resource(resource(name)).Watch(ctx, metav1.ListOptions{
			ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			v.stop()
			return nil, err
		}
		if name == sets {
			v.sets, v.changedSets = there, changed
		} else {
			v.members, v.changedMembers = there, changed
		}
	}
	return v, nil
}

func (v *view) stop() {
	for _, w := range []watch.Interface{v.changedSets, v.changedMembers} {
		if w != nil {
			w.Stop()
		}
	}
}

// next waits for a change, or for a second after work, in which what that has changed is seen.
func (v *view) next(ctx context.Context, worked bool) {
	var second, seen <-chan time.Time
	if worked {
		second = time.After(time.Second)
	}
	for !v.ended {
		select {
		case e, ok := <-v.changedSets.ResultChan():
			v.ended = !ok || !apply(v.sets, e)
		case e, ok := <-v.changedMembers.ResultChan():
			v.ended = !ok || !apply(v.members, e)
		case <-second:
			return
		case <-seen:
			return
		case <-ctx.Done():
			return
		}
		if !worked && seen == nil {
			seen = time.After(time.Microsecond) // in which everything that happens now has come
		}
	}
}

// apply reports whether an event is a change.
func apply(to map[string]*object, e watch.Event) bool {
	o, ok := e.Object.(*object)
	switch {
	case !ok || e.Type == watch.Error:
		return false
	case e.Type == watch.Deleted:
		delete(to, o.GetName())
	default:
		to[o.GetName()] = o
	}
	return true
}

// inOrder returns objects in the order of their names.
func inOrder(of map[string]*object) (all []*object) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[name])
	}
	return all
}

// of returns the Members of a Set.
func (v *view) of(s *object) []*object {
	return slices.DeleteFunc(inOrder(v.members), func(m *object) bool { return m.GetLabels()["set"] != s.GetName() })
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// fill makes each Set have as many Members as it asks for.
func fill(ctx context.Context, w *world, v *view) (worked bool) {
	for _, s := range inOrder(v.sets) {
		for _, m := range v.of(s) {
			if m.GetLabels()["ordinal"] >= fmt.Sprint(number(s, "spec", "count")) && m.GetDeletionTimestamp() == nil {
				worked = true
				_ = w.delete(ctx, members, m.GetNamespace(), m.GetName(), m.GetUID()) // the next round looks again
			}
		}
		for i := range number(s, "spec", "count") {
			name := ordinal(s.GetName(), i)
			if v.members[name] != nil || s.GetDeletionTimestamp() != nil {
				continue
			}
			worked = true
			m := child(s, members, name, spec{"image": text(s, "spec", "image")})
			m.SetLabels(map[string]string{"cluster": s.GetLabels()["cluster"], "set": s.GetName(),
				"ordinal": fmt.Sprint(i)})
			m.SetFinalizers([]string{kubeletFinalizer})
			_ = w.create(ctx, members, m)
		}
	}
	return worked
}

// tend does for each Member what is due.
func tend(ctx context.Context, w *world, v *view) (worked bool) {
	for _, m := range inOrder(v.members) {
		m = m.DeepCopy()
		switch ready, _ := m.Object["status"].(map[string]any); {
		case m.GetDeletionTimestamp() != nil && slices.Contains(m.GetFinalizers(), kubeletFinalizer):
			pause(ctx, time.Second)
			m.SetFinalizers(nil)
			_ = w.update(ctx, members, m)
			worked = true
		case m.GetDeletionTimestamp() == nil && (ready["image"] != text(m, "spec", "image")):
			pause(ctx, time.Second)
			set(m, map[string]any{"image": text(m, "spec", "image"), "ready": text(m, "spec", "image") != badImage},
				"status")
			_ = w.updateStatus(ctx, members, m)
			worked = true
		}
	}
	return worked
}

// replacing is what the controller of stateful sets does when a Set has another image: it deletes the Members with the
// old one. ordered: not those that are not ready, for which it waits.
func replacing(ordered bool) duty {
	return func(ctx context.Context, w *world, v *view) (worked bool) {
		for _, s := range inOrder(v.sets) {
			for _, m := range v.of(s) {
				if text(m, "spec", "image") == text(s, "spec", "image") || m.GetDeletionTimestamp() != nil ||
					ordered && !isReady(m) {
					continue
				}
				worked = true
				_ = w.delete(ctx, members, m.GetNamespace(), m.GetName(), m.GetUID()) // the next round looks again
			}
		}
		return worked
	}
}

// isReady reports whether a Member runs the image that it is to run.
func isReady(m *object) bool {
	status, _ := m.Object["status"].(map[string]any)
	return m.GetDeletionTimestamp() == nil && status["ready"] == true && status["image"] == text(m, "spec", "image")
}

// sizing is a controller of somebody else's that gives each Set a size, as an autoscaler of pods does.
var sizing = standIn(func(ctx context.Context, w *world, v *view) (worked bool) {
	for _, s := range inOrder(v.sets) {
		if text(s, "spec", "size") == "" {
			worked = true
			pause(ctx, 10*time.Millisecond)
			s = s.DeepCopy()
			set(s, "large", "spec", "size")
			_ = w.update(ctx, sets, s)
		}
	}
	return worked
})
