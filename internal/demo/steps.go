package main

import (
	"context"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// demo is the state that one step leaves to the next.
type demo struct {
	narrator  *narrator
	stage     stage
	client    kubernetes.Interface
	namespace string

	// The extremes of all looks since they were reset: pods, pods of one ReplicaSet, Ready pods.
	most, mostOfOne, fewestReady int
}

type step struct {
	title string
	do    func(context.Context) (result string, err error)
}

func (d *demo) steps() []step {
	return []step{
		{d.stage.what(), d.startControlPlane},
		{"Start our ReplicaSet controller in its place: " + d.stage.replicas() +
			", of which one leads and one stands by.", d.startController},
		{"Create a Deployment of 3. Kubernetes' Deployment controller creates a ReplicaSet, and ours creates the pods.",
			d.createDeployment},
		{"Delete a pod by hand.", d.deletePod},
		{"Change a pod's label, so that its ReplicaSet does not match it: it is released, not deleted, and replaced.",
			d.relabelPod},
		{"Change the image. The Deployment controller moves from one ReplicaSet to the next, and ours scales both.",
			d.changeImage},
		{"Scale to 10.", d.scaleUp},
		{"Scale to 0.", d.scaleDown},
		{fmt.Sprintf("Scale to %d, and %s half-way.", d.stage.crowd(), d.stage.howItEnds()), d.endLeader},
		{"Clean up: scale to 0, and end.", d.cleanUp},
	}
}

// stage is the environment of the demo: the cluster, and how the controller runs there.
type stage interface {
	// Words for the titles of steps.
	what() string
	replicas() string
	howItEnds() string
	// images are what the pods run before and after the rollout; crowd is more pods than the leader can make before it
	// ends.
	images() (older, newer string)
	crowd() int

	// open finds or starts the control plane. The namespace is the demo's own.
	open(context.Context) (client kubernetes.Interface, namespace, result string, err error)
	// start starts two replicas of the controller, and waits until one leads.
	start(context.Context) (result string, err error)
	// lease names the lease. running returns an error if a replica does not run.
	lease() (namespace, name string)
	running(context.Context) error
	// endLeader ends the replica that leads. The other one should lead within the time that it returns.
	endLeader(ctx context.Context, holder string) (result string, within time.Duration, err error)
	// end ends the remaining replicas.
	end(context.Context) (result string, err error)
	// showLogs prints the end of their logs, and close removes what open and start have created.
	showLogs()
	close() error
	// hint tells how to use the cluster with kubectl.
	hint(namespace string) string
}

func (d *demo) startControlPlane(ctx context.Context) (result string, err error) {
	d.client, d.namespace, result, err = d.stage.open(ctx)
	return result, err
}

func (d *demo) startController(ctx context.Context) (string, error) { return d.stage.start(ctx) }

// awaitLeader waits until the lease of the stage has another holder than before.
func awaitLeader(ctx context.Context, client kubernetes.Interface, s stage, before string) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	namespace, name := s.lease()
	for {
		lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" &&
			*lease.Spec.HolderIdentity != before {
			return *lease.Spec.HolderIdentity, nil
		}
		if err := s.running(ctx); err != nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no replica acquired the lease %s/%s within %s", namespace, name, timeout)
		case <-time.After(pollTime):
		}
	}
}

func (d *demo) createDeployment(ctx context.Context) (string, error) {
	replicas, grace := int32(3), int64(1)
	older, _ := d.stage.images()
	labels := map[string]string{"app": app}
	_, err := d.client.AppsV1().Deployments(d.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{{Name: app, Image: older}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create the Deployment: %w", err)
	}
	took, err := d.until(ctx, "3 Ready pods", settled(3))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("3 pods Ready %s after the Deployment was created.", seconds(took)), d.statusSays(ctx, 3)
}

// statusSays checks the Deployment's status, which the Deployment controller sums up from the statuses that ours writes
// for ReplicaSets.
func (d *demo) statusSays(ctx context.Context, available int32) error {
	var status appsv1.DeploymentStatus
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(pollTime) {
		deployment, err := d.client.AppsV1().Deployments(d.namespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get the Deployment: %w", err)
		}
		status = deployment.Status
		if status.ObservedGeneration == deployment.Generation && status.Replicas == available &&
			status.AvailableReplicas == available {
			return nil
		}
	}
	return fmt.Errorf("the Deployment's status should report %d available replicas: it says %d of %d", available,
		status.AvailableReplicas, status.Replicas)
}

func (d *demo) deletePod(ctx context.Context) (string, error) {
	l, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	victim := l.owned[0].Name
	if err := d.client.CoreV1().Pods(d.namespace).Delete(ctx, victim, metav1.DeleteOptions{}); err != nil {
		return "", fmt.Errorf("delete pod %s: %w", victim, err)
	}
	replaced, err := d.until(ctx, "a replacement of "+victim,
		func(l look) bool { return len(l.owned) == 3 && !l.has(victim) })
	if err != nil {
		return "", err
	}
	more, err := d.until(ctx, "3 Ready pods", settled(3))
	if err != nil {
		return "", err
	}
	if replaced > time.Second {
		return "", fmt.Errorf("pod %s was replaced after %s: more than a second", victim, seconds(replaced))
	}
	return fmt.Sprintf("%s is replaced after %s; 3 are Ready after %s.", victim, seconds(replaced),
		seconds(replaced+more)), nil
}

func (d *demo) relabelPod(ctx context.Context) (string, error) {
	l, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	name := l.owned[0].Name
	pods := d.client.CoreV1().Pods(d.namespace)
	if _, err := pods.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"debug"}}}`),
		metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("label pod %s: %w", name, err)
	}
	took, err := d.until(ctx, name+" to be released and replaced", func(l look) bool {
		return settled(3)(l) && len(l.released) == 1 && l.released[0].Name == name && isReady(l.released[0])
	})
	if err != nil {
		return "", err
	}
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return "", fmt.Errorf("delete the released pod %s: %w", name, err)
	}
	_, err = d.until(ctx, "the released pod to go", func(l look) bool { return len(l.released) == 0 && settled(3)(l) })
	return fmt.Sprintf("%s runs on without an owner, and a new pod is Ready in its place, after %s.", name,
		seconds(took)), err
}

func (d *demo) changeImage(ctx context.Context) (string, error) {
	d.most, d.mostOfOne, d.fewestReady = 0, 0, math.MaxInt
	_, newer := d.stage.images()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, app, newer)
	if _, err := d.client.AppsV1().Deployments(d.namespace).Patch(ctx, app, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("change the image: %w", err)
	}
	took, err := d.until(ctx, "3 Ready pods of "+newer, func(l look) bool { return settled(3)(l) && l.allRun(newer) })
	switch {
	case err != nil:
		return "", err
	// Both together may exceed the 4 that maxSurge allows for a moment: the Deployment controller counts the replicas
	// that it has asked the ReplicaSets for, and one of these may scale up before the other one has scaled down.
	case d.mostOfOne > 3:
		return "", fmt.Errorf("a ReplicaSet had %d pods at once, and no more than 3 were asked for", d.mostOfOne)
	case d.fewestReady < 3:
		return "", fmt.Errorf("there were only %d Ready pods at a time; the Deployment always wants 3 "+
			"(maxUnavailable 25%%, rounded down)", d.fewestReady)
	}
	return fmt.Sprintf("all 3 run %s after %s, with never fewer than %d Ready and never more than %d in all.", newer,
		seconds(took), d.fewestReady, d.most), d.statusSays(ctx, 3)
}

func (d *demo) scale(ctx context.Context, replicas int32) error {
	d.most = 0
	_, err := d.client.AppsV1().Deployments(d.namespace).UpdateScale(ctx, app, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: d.namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas},
	}, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("scale to %d: %w", replicas, err)
	}
	return nil
}

func (d *demo) scaleUp(ctx context.Context) (string, error) {
	if err := d.scale(ctx, 10); err != nil {
		return "", err
	}
	took, err := d.until(ctx, "10 Ready pods", settled(10))
	if err != nil {
		return "", err
	}
	if d.most > 10 {
		return "", fmt.Errorf("there were %d pods at a time, and 10 were asked for", d.most)
	}
	return fmt.Sprintf("10 pods Ready after %s, and never more than 10.", seconds(took)), d.statusSays(ctx, 10)
}

func (d *demo) scaleDown(ctx context.Context) (string, error) {
	if err := d.scale(ctx, 0); err != nil {
		return "", err
	}
	took, err := d.until(ctx, "no pods", settled(0))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("no pods after %s.", seconds(took)), d.statusSays(ctx, 0)
}

func (d *demo) endLeader(ctx context.Context) (string, error) {
	holder, err := awaitLeader(ctx, d.client, d.stage, "")
	if err != nil {
		return "", err
	}
	crowd := d.stage.crowd()
	if err := d.scale(ctx, int32(crowd)); err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := d.until(ctx, "the leader to be half-way",
		func(l look) bool { return len(l.owned) >= crowd/3 }); err != nil {
		return "", err
	}
	ended, within, err := d.stage.endLeader(ctx, holder)
	if err != nil {
		return "", err
	}
	atEnd := time.Now()
	last, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	if len(last.owned) >= crowd {
		return "", fmt.Errorf("the leader was done before it could be ended: there are %s", last)
	}
	d.narrator.line(fmt.Sprintf("      %s; there are %s", ended, last))
	if _, err := awaitLeader(ctx, d.client, d.stage, holder); err != nil {
		return "", err
	}
	tookOver := time.Since(atEnd)
	if _, err := d.until(ctx, "the standby to finish", settled(crowd)); err != nil {
		return "", err
	}
	switch {
	case d.most > crowd:
		return "", fmt.Errorf("there were %d pods at a time, and %d were asked for", d.most, crowd)
	case tookOver > within:
		return "", fmt.Errorf("the standby acquired the lease after %s; at most %s was expected", seconds(tookOver),
			seconds(within))
	}
	return fmt.Sprintf("the leader ended at %d of %d pods; the other one took over %s later and created the rest, %s "+
		"after the start, with never more than %d in all.",
		len(last.owned), crowd, seconds(tookOver), seconds(time.Since(began)), crowd), d.statusSays(ctx, int32(crowd))
}

func (d *demo) cleanUp(ctx context.Context) (string, error) {
	if err := d.scale(ctx, 0); err != nil {
		return "", err
	}
	took, err := d.until(ctx, "no pods", settled(0))
	if err != nil {
		return "", err
	}
	ended, err := d.stage.end(ctx)
	return fmt.Sprintf("no pods after %s; %s.", seconds(took), ended), err
}

// stay keeps everything running until ctx ends.
func (d *demo) stay(ctx context.Context) error {
	d.narrator.text("Starting both controllers again ...")
	started, err := d.stage.start(ctx)
	if err != nil {
		return err
	}
	d.narrator.result(started)
	if err := d.scale(ctx, 3); err != nil {
		return err
	}
	d.narrator.text("%s", d.stage.hint(d.namespace))
	<-ctx.Done()
	return nil
}
