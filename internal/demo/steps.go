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

	most, mostOfOne, fewestReady int // pods, those of one ReplicaSet, and Ready ones, at any look since these were set
}

type step struct {
	title string
	do    func(context.Context) (result string, err error)
}

func (d *demo) steps() []step {
	return []step{
		{d.stage.what(), d.startControlPlane},
		{"Our ReplicaSet controller takes the empty place: " + d.stage.replicas() +
			", of which one leads and one stands by.", d.startController},
		{"A Deployment of 3. Kubernetes' own Deployment controller makes a ReplicaSet of it, and ours makes the pods.",
			d.createDeployment},
		{"Drift: a pod is deleted by hand.", d.deletePod},
		{"A pod gets another label, so it is none of ours any more: it is released, not deleted, and replaced.",
			d.relabelPod},
		{"A new image. The Deployment controller rolls over from one ReplicaSet to the next, and ours follows both.",
			d.changeImage},
		{"Scale to 10.", d.scaleUp},
		{"Scale to 0.", d.scaleDown},
		{fmt.Sprintf("Scale to %d, and %s half-way.", d.stage.crowd(), d.stage.howItEnds()), d.endLeader},
		{"Clean up: scale to 0, and an end.", d.cleanUp},
	}
}

// stage is where the demo is given, and who plays the controller.
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
	// start sees to it that two replicas run, of which one leads.
	start(context.Context) (result string, err error)
	// lease is where the lease is, and running an error if a replica is not.
	lease() (namespace, name string)
	running(context.Context) error
	// endLeader ends the replica that leads. The other may be expected to lead within patience.
	endLeader(ctx context.Context, holder string) (result string, patience time.Duration, err error)
	// end ends what is left of the replicas.
	end(context.Context) (result string, err error)
	// showLogs gives their last words, and close removes what open and start have brought.
	showLogs()
	close() error
	// hint says how to play with it all.
	hint(namespace string) string
}

func (d *demo) startControlPlane(ctx context.Context) (result string, err error) {
	d.client, d.namespace, result, err = d.stage.open(ctx)
	return result, err
}

func (d *demo) startController(ctx context.Context) (string, error) { return d.stage.start(ctx) }

// awaitLeader waits until somebody other than the holder before holds the lease of the stage.
func awaitLeader(ctx context.Context, client kubernetes.Interface, s stage, before string) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
			return "", fmt.Errorf("nobody took the lease %s/%s within %s", namespace, name, patience)
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

// statusSays checks the Deployment's status, which its controller adds up from the status that ours reports on
// ReplicaSets.
func (d *demo) statusSays(ctx context.Context, available int32) error {
	var status appsv1.DeploymentStatus
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(pollTime) {
		deployment, err := d.client.AppsV1().Deployments(d.namespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("look at the Deployment: %w", err)
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
	// In all there may be more than the 4 that maxSurge allows for, for a moment: the Deployment controller goes by
	// what it has asked the ReplicaSets for, and the one that is to have fewer may be slower than the other one.
	case d.mostOfOne > 3:
		return "", fmt.Errorf("a ReplicaSet had %d pods at once, and none was asked for more than 3", d.mostOfOne)
	case d.fewestReady < 3:
		return "", fmt.Errorf("there were only %d Ready pods at a time; the Deployment wants 3 always "+
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
	return fmt.Sprintf("10 pods Ready after %s, and at no time more than that.", seconds(took)), d.statusSays(ctx, 10)
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
	left, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	if len(left.owned) >= crowd {
		return "", fmt.Errorf("the leader was done before it could be ended: there are %s", left)
	}
	d.narrator.line(fmt.Sprintf("      %s; it leaves %s", ended, left))
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
		return "", fmt.Errorf("the standby took the lease after %s; %s was to be expected", seconds(tookOver),
			seconds(within))
	}
	return fmt.Sprintf("the leader ended at %d of %d pods; the other one took over %s later and made the rest, %s "+
		"after the start, with never more than %d in all.",
		len(left.owned), crowd, seconds(tookOver), seconds(time.Since(began)), crowd), d.statusSays(ctx, int32(crowd))
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

// stay keeps it all running for somebody who wants to play.
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
