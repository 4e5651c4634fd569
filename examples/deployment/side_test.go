package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// A side is a namespace in which one Deployment controller works, with caches of what is in it.
type side struct {
	name      string
	namespace string
	client    kubernetes.Interface

	deployments *informer.SharedIndexInformer[*appsv1.Deployment]
	sets        *informer.SharedIndexInformer[*appsv1.ReplicaSet]
	pods        *informer.SharedIndexInformer[*corev1.Pod]
	setsByApp   *informer.Index[string, *appsv1.ReplicaSet]
	podsByApp   *informer.Index[string, *corev1.Pod]

	mu       sync.Mutex
	changed  map[string]time.Time // guarded by mu; by app, when its Deployment, ReplicaSets or pods changed last
	promises map[string]promise   // guarded by mu; by app
	broken   []string             // guarded by mu
}

// promise is what a rolling update keeps.
type promise struct {
	step                   string
	minAvailable, maxPods  int
	leastReady, mostWanted int // what was seen
}

func newSide(t testing.TB, cluster *testcluster.Cluster, name string) *side {
	t.Helper()
	s := &side{name: name, client: cluster.Client(), namespace: cluster.Namespace(t),
		changed: map[string]time.Time{}, promises: map[string]promise{}}
	var errs [8]error
	apps := s.client.AppsV1()
	s.deployments, errs[0] = informer.New[*appsv1.Deployment](apps.Deployments(s.namespace),
		informer.Options[*appsv1.Deployment]{})
	s.sets, errs[1] = informer.New[*appsv1.ReplicaSet](apps.ReplicaSets(s.namespace),
		informer.Options[*appsv1.ReplicaSet]{})
	s.pods, errs[2] = informer.New[*corev1.Pod](s.client.CoreV1().Pods(s.namespace), informer.Options[*corev1.Pod]{})
	s.setsByApp, errs[3] = informer.AddIndex(s.sets, appOf)
	s.podsByApp, errs[4] = informer.AddIndex(s.pods, appOf)
	_, errs[5] = s.deployments.AddHandler(func(e informer.Event[*appsv1.Deployment]) { s.note(e.Key.Name) },
		informer.HandlerOptions{})
	_, errs[6] = s.sets.AddHandler(func(e informer.Event[*appsv1.ReplicaSet]) { s.watchOver(appOfEvent(e)) },
		informer.HandlerOptions{})
	_, errs[7] = s.pods.AddHandler(func(e informer.Event[*corev1.Pod]) { s.watchOver(appOfEvent(e)) },
		informer.HandlerOptions{})
	for _, err := range errs {
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{s.deployments.Run, s.sets.Run, s.pods.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func appOf[T metav1.Object](o T, add func(string)) { add(o.GetLabels()["app"]) }

func appOfEvent[T metav1.Object](e informer.Event[T]) string {
	if e.Type == informer.Deleted {
		return e.Old.GetLabels()["app"]
	}
	return e.New.GetLabels()["app"]
}

func (s *side) note(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed[app] = time.Now()
}

// watchOver looks at what there is of an app, after each change.
func (s *side) watchOver(app string) {
	s.note(app)
	ready, wanted := 0, 0
	for pod := range s.podsByApp.Get(app) {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning &&
			slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
			ready++
		}
	}
	for set := range s.setsByApp.Get(app) {
		wanted += size(set)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.promises[app]; ok {
		p.leastReady, p.mostWanted = min(p.leastReady, ready), max(p.mostWanted, wanted)
		s.promises[app] = p
	}
}

// promise begins to watch over the promises of a rollout that begins, and keep ends it.
func (s *side) promise(app, what string, d *appsv1.Deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promises[app] = promise{step: what, minAvailable: minAvailable(d), maxPods: maxPods(d), leastReady: wanted(d)}
}

func (s *side) keep(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.promises[app]
	delete(s.promises, app)
	if ok && (p.leastReady < p.minAvailable || p.mostWanted > p.maxPods) {
		s.broken = append(s.broken, fmt.Sprintf("%s, %s: %s: %d pods were ready, and %d promised; %d were wanted, and "+
			"at most %d promised", s.name, app, p.step, p.leastReady, p.minAvailable, p.mostWanted, p.maxPods))
	}
}

// settled waits until nothing more happens to an app, and returns its Deployment and ReplicaSets.
func (s *side) settled(ctx context.Context, app string, patience time.Duration) (*appsv1.Deployment,
	[]*appsv1.ReplicaSet, error) {
	began := time.Now()
	for ; time.Since(began) < 3*time.Minute; time.Sleep(50 * time.Millisecond) {
		d, ok := s.deployments.Get(informer.Key{Namespace: s.namespace, Name: app})
		sets := slices.Collect(s.setsByApp.Get(app))
		s.mu.Lock()
		changed := s.changed[app]
		s.mu.Unlock()
		// A second at least: creation times have whole seconds, and ReplicaSets are ordered by them.
		if ok && time.Since(began) > 1100*time.Millisecond && s.reported(d, sets) &&
			time.Since(changed) > min(patience*quietTime(d), 100*time.Second) {
			return d, sets, ctx.Err()
		}
	}
	return nil, nil, fmt.Errorf("%s, %s: it does not settle", s.name, app)
}

// reported reports whether all controllers have reported what there is.
func (s *side) reported(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) bool {
	if d.Status.ObservedGeneration < d.Generation || d.DeletionTimestamp != nil || terminating(sets) == nil ||
		d.Status.TerminatingReplicas == nil || *d.Status.TerminatingReplicas > 0 || *terminating(sets) > 0 {
		return false
	}
	if complete(d, d.Status) && len(surplus(d, newRollout(d, slices.Clone(sets), time.Now()).old)) > 0 {
		return false
	}
	pods := map[types.UID]int{} // active ones, by their controller
	for pod := range s.podsByApp.Get(d.Name) {
		if owner := metav1.GetControllerOf(pod); owner != nil && pod.DeletionTimestamp == nil &&
			pod.Status.Phase != corev1.PodFailed {
			pods[owner.UID]++
		}
	}
	available := int32(0)
	for _, set := range sets {
		if set.Status.ObservedGeneration < set.Generation || int(set.Status.Replicas) != size(set) ||
			pods[set.UID] != size(set) || set.Status.AvailableReplicas != set.Status.ReadyReplicas ||
			set.Status.ReadyReplicas != set.Status.Replicas && strings.HasPrefix(imageOf(set), "good") {
			return false
		}
		available += set.Status.AvailableReplicas
	}
	return d.Status.AvailableReplicas == available && int(d.Status.Replicas) == sum(sets, size)
}

// quietTime is for how long nothing has to happen until nothing more will. A rollout that makes no progress comes to
// its deadline. The built-in controller may report that late: in the last second it tries again and again, at the
// expense of its rate limit for all failures.
func quietTime(d *appsv1.Deployment) time.Duration {
	progress := find(d.Status.Conditions, appsv1.DeploymentProgressing)
	switch {
	case complete(d, d.Status) && progress != nil && progress.Reason == reasonAvailable:
		return 600 * time.Millisecond
	case *d.Spec.ProgressDeadlineSeconds < 10 && !d.Spec.Paused &&
		(progress == nil || progress.Reason != reasonTimedOut):
		return time.Minute
	default:
		return 1500 * time.Millisecond
	}
}

// picture is what two controllers have to agree on: a Deployment and its ReplicaSets, without times, and with the
// images in place of the hashes.
type picture struct {
	text, withoutProgress string
	stale                 bool // the condition Progressing tells of an earlier rollout, or of no progress
}

func pictureOf(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) picture {
	bare := d.DeepCopy()
	bare.Status.Conditions = slices.DeleteFunc(bare.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing
	})
	progress, new := find(d.Status.Conditions, appsv1.DeploymentProgressing),
		newRollout(d, slices.Clone(sets), time.Now()).new
	return picture{text: textOf(d, sets), withoutProgress: textOf(bare, sets),
		stale: progress != nil && (progress.Reason == reasonAvailable && new != nil &&
			!strings.Contains(progress.Message, new.Name) ||
			progress.Reason == "NewReplicaSetCreated" && d.Status.UpdatedReplicas > 0)}
}

func textOf(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) string {
	d = d.DeepCopy()
	d.ObjectMeta = metav1.ObjectMeta{Name: d.Name, Generation: d.Generation, Labels: d.Labels,
		Annotations: d.Annotations}
	for i := range d.Status.Conditions {
		c := &d.Status.Conditions[i]
		c.LastTransitionTime, c.LastUpdateTime = metav1.Time{}, metav1.Time{}
	}
	slices.SortFunc(d.Status.Conditions, func(a, b appsv1.DeploymentCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	parts := []any{d}
	var hashes []string
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int { return strings.Compare(imageOf(a), imageOf(b)) })
	for _, set := range sets {
		hash := set.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		hashes = append(hashes, hash, "hash-of-"+imageOf(set))
		set = set.DeepCopy()
		owner := metav1.GetControllerOf(set)
		owner.UID = "uid"
		set.ObjectMeta = metav1.ObjectMeta{Name: set.Name, Labels: set.Labels, Annotations: set.Annotations,
			OwnerReferences: []metav1.OwnerReference{*owner}}
		set.Status.ObservedGeneration = 0
		parts = append(parts, set)
	}
	text, err := json.MarshalIndent(parts, "", "  ")
	if err != nil {
		return err.Error()
	}
	return strings.NewReplacer(hashes...).Replace(string(text))
}

func imageOf(set *appsv1.ReplicaSet) string { return set.Spec.Template.Spec.Containers[0].Image }

// play does all steps of a script to a Deployment of that name, and returns the picture after each.
func (s *side) play(ctx context.Context, app string, script script, patience time.Duration) (pictures []picture,
	err error) {
	d := s.first(app, script)
	if _, err := s.client.AppsV1().Deployments(s.namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		d, sets, err := s.settled(ctx, app, patience)
		s.keep(app)
		if err != nil {
			return pictures, err
		}
		pictures = append(pictures, pictureOf(d, sets))
		if i == len(script.steps) {
			break
		}
		if err := s.do(ctx, d, sets, script, script.steps[i]); err != nil {
			return pictures, fmt.Errorf("%s, %s: %v: %w", s.name, app, script.steps[i], err)
		}
	}
	background := metav1.DeletePropagationBackground
	return pictures, s.client.AppsV1().Deployments(s.namespace).Delete(ctx, app,
		metav1.DeleteOptions{PropagationPolicy: &background})
}

// first is the Deployment that a script begins with.
func (s *side) first(app string, script script) *appsv1.Deployment {
	change := []func(*appsv1.Deployment){func(d *appsv1.Deployment) {
		grace := int64(1)
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
		d.Annotations = map[string]string{"note": "first"}
	}}
	if script.first == (strategy{}) {
		change = append(change, recreating)
	} else {
		change = append(change, rolling(script.first.surge, script.first.unavailable))
	}
	if script.quick {
		seconds := int32(3)
		change = append(change, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &seconds })
	}
	return deployment(app, int32(script.replica), "good-0", change...)
}

// do makes the requests of one step.
func (s *side) do(ctx context.Context, d *appsv1.Deployment, sets []*appsv1.ReplicaSet, script script,
	step step) error {
	ro := newRollout(d, slices.Clone(sets), time.Now())
	if calm := complete(d, d.Status) && len(active(sets)) <= 1; calm && (step.do == "image" || step.do == "undo") &&
		d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType && !d.Spec.Paused {
		s.promise(d.Name, step.String(), d)
	}
	switch step.do {
	case "image":
		ready := "0s"
		if strings.HasPrefix(step.image, "bad") {
			ready = "never"
		}
		return s.patch(ctx, d, `{"spec":{"template":{"metadata":{"annotations":{"standin/ready-after":%q}},`+
			`"spec":{"containers":[{"name":"c","image":%q}]}}}}`, ready, step.image)
	case "scale":
		return s.patch(ctx, d, `{"spec":{"replicas":%d}}`, step.n)
	case "pause or resume":
		return s.patch(ctx, d, `{"spec":{"paused":%t}}`, !d.Spec.Paused)
	case "strategy":
		return s.patch(ctx, d, `{"spec":{"strategy":%s}}`, step.strategy.patch())
	case "annotate":
		return s.patch(ctx, d, `{"metadata":{"annotations":{"note":"%d"}}}`, step.n)
	case "minReadySeconds", "revisionHistoryLimit":
		return s.patch(ctx, d, `{"spec":{%q:%d}}`, step.do, step.n)
	case "undo":
		return s.undo(ctx, d, sets)
	case "delete pods", "fail pods":
		return s.hurt(ctx, d, step)
	case "delete the new ReplicaSet":
		if ro.new == nil {
			return nil
		}
		return s.client.AppsV1().ReplicaSets(s.namespace).Delete(ctx, ro.new.Name, metav1.DeleteOptions{})
	default:
		return s.createAgain(ctx, d, script)
	}
}

func (s *side) patch(ctx context.Context, d *appsv1.Deployment, patch string, args ...any) error {
	_, err := s.client.AppsV1().Deployments(s.namespace).Patch(ctx, d.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, patch, args...), metav1.PatchOptions{})
	return err
}

// undo does what kubectl rollout undo does: it gives the Deployment the template and the annotations of the ReplicaSet
// with the second highest revision. It refuses if the Deployment is paused.
func (s *side) undo(ctx context.Context, d *appsv1.Deployment, sets []*appsv1.ReplicaSet) error {
	if d.Spec.Paused || len(sets) < 2 {
		return nil
	}
	slices.SortFunc(sets, func(a, b *appsv1.ReplicaSet) int { return int(revisionOf(b) - revisionOf(a)) })
	annotations := map[string]string{}
	for key, value := range d.Annotations {
		if notCopied[key] {
			annotations[key] = value
		}
	}
	for key, value := range sets[1].Annotations {
		if !notCopied[key] {
			annotations[key] = value
		}
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/spec/template", "value": withoutHash(&sets[1].Spec.Template)},
		{"op": "replace", "path": "/metadata/annotations", "value": annotations},
	})
	if err != nil {
		return err
	}
	_, err = s.client.AppsV1().Deployments(s.namespace).Patch(ctx, d.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{})
	return err
}

// hurt deletes pods, or makes them fail: those of the new ReplicaSet first, or what there is.
func (s *side) hurt(ctx context.Context, d *appsv1.Deployment, step step) error {
	pods := slices.DeleteFunc(slices.Collect(s.podsByApp.Get(d.Name)), func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed
	})
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Spec.Containers[0].Image+a.Name, b.Spec.Containers[0].Image+b.Name)
	})
	for _, pod := range pods[:min(step.n, len(pods))] {
		var err error
		if step.do == "delete pods" {
			err = s.client.CoreV1().Pods(s.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		} else {
			_, err = s.client.CoreV1().Pods(s.namespace).Patch(ctx, pod.Name, types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"standin/outcome":"Failed"}}}`), metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// createAgain deletes the Deployment, leaves its ReplicaSets, and creates it again as it was at first: it adopts them.
func (s *side) createAgain(ctx context.Context, d *appsv1.Deployment, script script) error {
	orphan, zero := metav1.DeletePropagationOrphan, int64(0)
	deployments := s.client.AppsV1().Deployments(s.namespace)
	if err := deployments.Delete(ctx, d.Name, metav1.DeleteOptions{PropagationPolicy: &orphan,
		GracePeriodSeconds: &zero}); err != nil {
		return err
	}
	again := s.first(d.Name, script)
	again.Spec = *d.Spec.DeepCopy()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, err := deployments.Create(ctx, again, metav1.CreateOptions{})
		if err == nil || !apierrors.IsAlreadyExists(err) || time.Since(began) > time.Minute {
			return err
		}
	}
}
