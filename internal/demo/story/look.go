package story

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// look is the state of the demo's pods at one moment.
type look struct {
	owned       []*corev1.Pod // by a ReplicaSet, and not being deleted
	ready       int           // of these
	terminating int
	released    []*corev1.Pod // without a controller
}

// extremes are those of all looks since they were reset.
type extremes struct{ most, mostOfOne, fewestReady int }

func (d *demo) look(ctx context.Context) (look, error) {
	list, err := d.client.Core.Pods(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return look{}, fmt.Errorf("list the pods: %w", err)
	}
	var l look
	for i := range list.Items {
		pod := &list.Items[i]
		switch owner := metav1.GetControllerOf(pod); {
		case pod.DeletionTimestamp != nil:
			l.terminating++
		case owner == nil:
			l.released = append(l.released, pod)
		default:
			l.owned = append(l.owned, pod)
			if isReady(pod) {
				l.ready++
			}
		}
	}
	d.seen.most, d.seen.fewestReady = max(d.seen.most, len(l.owned)), min(d.seen.fewestReady, l.ready)
	for _, pods := range l.byReplicaSet() {
		d.seen.mostOfOne = max(d.seen.mostOfOne, len(pods))
	}
	return l, nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (l look) String() string {
	text := fmt.Sprintf("%d pods, %d Ready", len(l.owned), l.ready)
	if l.terminating > 0 {
		text += fmt.Sprintf(", %d ending", l.terminating)
	}
	if len(l.released) > 0 {
		text += fmt.Sprintf(", %d released", len(l.released))
	}
	return text
}

// byReplicaSet returns the pods by the names of their ReplicaSets.
func (l look) byReplicaSet() map[string][]*corev1.Pod {
	sets := map[string][]*corev1.Pod{}
	for _, pod := range l.owned {
		name := metav1.GetControllerOf(pod).Name
		sets[name] = append(sets[name], pod)
	}
	return sets
}

// largest returns the name of the ReplicaSet that has the most pods.
func (l look) largest() (name string) {
	most := 0
	for set, pods := range l.byReplicaSet() {
		if len(pods) > most {
			name, most = set, len(pods)
		}
	}
	return name
}

// replicaSets counts the pods of each ReplicaSet, with the image of one of them.
func (l look) replicaSets() string {
	sets := l.byReplicaSet()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		parts = append(parts, fmt.Sprintf("%s: %d of %s", name, len(sets[name]),
			sets[name][0].Spec.Containers[0].Image))
	}
	return strings.Join(parts, ", ")
}

func (l look) names() (names []string) {
	for _, pod := range l.owned {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

func (l look) allRun(image string) bool { return l.run(image) == len(l.owned) }

// run counts the pods of an image.
func (l look) run(image string) (n int) {
	for _, pod := range l.owned {
		if pod.Spec.Containers[0].Image == image {
			n++
		}
	}
	return n
}

// until looks at the pods and shows the counts until there returns true, and returns how long that took.
func (d *demo) until(ctx context.Context, wanted string, there func(look) bool) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last look
	for {
		l, err := d.look(ctx)
		if err == nil {
			last = l
			err = d.spread(ctx, l)
		}
		if err == nil {
			d.narrator.Count(fmt.Sprintf("%-30s %s", l, l.replicaSets()))
			if there(l) {
				return time.Since(began), nil
			}
		}
		if sleep(ctx) != nil {
			return 0, fmt.Errorf("waited %s for %s; there are %s", Seconds(time.Since(began)), wanted, last)
		}
	}
}

// settled reports n pods, all Ready, and none being deleted.
func settled(n int) func(look) bool {
	return func(l look) bool { return len(l.owned) == n && l.ready == n && l.terminating == 0 }
}
