package story

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

type act struct {
	title string
	do    func(context.Context) (result string, err error)
}

func (d *demo) acts() []act {
	about := d.stage.About()
	all := []act{
		{about.Cluster, d.open},
		{about.Controllers, d.startControllers},
		{"Apply a Deployment of 3 pods of " + about.Older + ". " + about.Deployments +
			" Deployment controller creates a ReplicaSet, and our ReplicaSet controller creates the pods.",
			d.applyDeployment},
		{"Delete a pod by hand.", d.deletePod},
		{"Change a pod's label, so that its ReplicaSet does not match it: it is released, not deleted, and replaced.",
			d.relabelPod},
		{"Scale to 5 by hand, look at the drift from what was applied, and apply that again.", d.scaleByHand},
		{"Change the image to " + about.Newer + ". One ReplicaSet hands over to the next.", d.changeImage},
		{"Change the image to " + about.Broken + ", which no node can run, with a deadline of 5 s. Then roll back.",
			d.breakImage},
		{fmt.Sprintf("Add an HPA: %d to %d pods, at %d %% of the CPU that they ask for. The load doubles, and falls "+
			"again.", fewest, busiest, target), d.autoscale},
		{fmt.Sprintf("Scale to %d, and %s half-way.", about.Crowd, about.Ending), d.endLeaders},
		{"Clean up: scale to 0, and end.", d.cleanUp},
	}
	if !about.Autoscaler {
		all = slices.Delete(all, 8, 9)
	}
	return all
}

func (d *demo) open(ctx context.Context) (string, error) {
	cfg, namespace, result, err := d.stage.Open(ctx)
	if err != nil {
		return "", err
	}
	d.namespace = namespace
	d.client, err = NewClient(cfg)
	return result, err
}

func (d *demo) startControllers(ctx context.Context) (string, error) {
	return d.stage.Start(ctx, d.client)
}

// apply applies the Deployment, and takes over what others have set.
func (d *demo) apply(ctx context.Context, config *appsv1ac.DeploymentApplyConfiguration) error {
	_, err := objects.Apply(ctx, d.client.Apps.Deployments(d.namespace).Apply, config,
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

func (d *demo) applyDeployment(ctx context.Context) (string, error) {
	config, err := web(d.stage.About().Older)
	if err != nil {
		return "", err
	}
	if err := d.apply(ctx, config); err != nil {
		return "", err
	}
	first, err := d.until(ctx, "a pod", func(l look) bool { return len(l.owned) > 0 })
	if err != nil {
		return "", err
	}
	more, err := d.until(ctx, "3 Ready pods", settled(3))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the first pod was there after %s, and 3 were Ready after %s.", Seconds(first),
		Seconds(first+more)), d.statusSays(ctx, 3)
}

// statusSays checks the Deployment's status, which the Deployment controller sums up from the statuses that ours writes
// for ReplicaSets.
func (d *demo) statusSays(ctx context.Context, available int32) error {
	status, err := d.awaitStatus(ctx, func(s appsv1.DeploymentStatus) bool {
		return s.Replicas == available && s.AvailableReplicas == available
	})
	if err != nil {
		return fmt.Errorf("the Deployment's status should report %d available replicas: it says %d of %d: %w",
			available,
			status.AvailableReplicas, status.Replicas, err)
	}
	return nil
}

// awaitStatus waits until the Deployment's status is up to date and as it should be.
func (d *demo) awaitStatus(ctx context.Context,
	good func(appsv1.DeploymentStatus) bool) (status appsv1.DeploymentStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		deployment, err := d.client.Apps.Deployments(d.namespace).Get(ctx, app, metav1.GetOptions{})
		if err == nil {
			if status = deployment.Status; status.ObservedGeneration == deployment.Generation && good(status) {
				return status, nil
			}
		}
		if err := sleep(ctx); err != nil {
			return status, err
		}
	}
}

func (d *demo) deletePod(ctx context.Context) (string, error) {
	l, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	victim := l.owned[0].Name
	if err := d.client.Core.Pods(d.namespace).Delete(ctx, victim, metav1.DeleteOptions{}); err != nil {
		return "", fmt.Errorf("delete pod %s: %w", victim, err)
	}
	replaced, err := d.until(ctx, "a replacement of "+victim,
		func(l look) bool { return len(l.owned) == 3 && !slices.Contains(l.names(), victim) })
	if err != nil {
		return "", err
	}
	more, err := d.until(ctx, "3 Ready pods", settled(3))
	if err != nil {
		return "", err
	}
	if replaced > prompt {
		return "", fmt.Errorf("pod %s was replaced after %s: more than %s", victim, Seconds(replaced), prompt)
	}
	return fmt.Sprintf("%s is replaced after %s; 3 are Ready after %s.", victim, Seconds(replaced),
		Seconds(replaced+more)), nil
}

func (d *demo) relabelPod(ctx context.Context) (string, error) {
	l, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	name := l.owned[0].Name
	pods := d.client.Core.Pods(d.namespace)
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
		Seconds(took)), err
}

// scale does what kubectl scale does.
func (d *demo) scale(ctx context.Context, replicas int32) error {
	d.seen = extremes{fewestReady: math.MaxInt}
	_, err := d.client.Apps.Deployments(d.namespace).UpdateScale(ctx, app, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: d.namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas},
	}, metav1.UpdateOptions{FieldManager: "kubectl"})
	if err != nil {
		return fmt.Errorf("scale to %d: %w", replicas, err)
	}
	return nil
}

// drift shows the fields of the Deployment that are not as they were applied.
func (d *demo) drift(ctx context.Context, config *appsv1ac.DeploymentApplyConfiguration) ([]objects.Difference, error) {
	deployments := d.client.Apps.Deployments(d.namespace)
	found, err := objects.Drift(ctx, deployments, deployments.Apply, config,
		metav1.ApplyOptions{FieldManager: manager})
	if err == nil && len(found) == 0 {
		d.narrator.Line("      drift: none")
	}
	for _, difference := range found {
		d.narrator.Line(fmt.Sprintf("      drift: %s is %v and should be %v; it %s", difference.Field, difference.Is,
			difference.Desired, difference.Cause()))
	}
	return found, err
}

func (d *demo) scaleByHand(ctx context.Context) (string, error) {
	config, err := web(d.stage.About().Older)
	if err != nil {
		return "", err
	}
	if err := d.scale(ctx, 5); err != nil {
		return "", err
	}
	found, err := d.drift(ctx, config)
	switch {
	case err != nil:
		return "", err
	case len(found) != 1 || found[0].Field != ".spec.replicas":
		return "", fmt.Errorf("the drift should be in .spec.replicas: it is in %v", found)
	}
	if _, err := d.until(ctx, "5 Ready pods", settled(5)); err != nil {
		return "", err
	}
	if err := d.apply(ctx, config); err != nil {
		return "", err
	}
	if found, err = d.drift(ctx, config); err != nil || len(found) > 0 {
		return "", fmt.Errorf("there is drift after the apply: %v, %w", found, err)
	}
	took, err := d.until(ctx, "3 Ready pods", settled(3))
	if err != nil {
		return "", err
	}
	if d.seen.most > 5 {
		return "", fmt.Errorf("there were %d pods at a time, and 5 were asked for", d.seen.most)
	}
	return fmt.Sprintf("3 pods again %s after the apply.", Seconds(took)), d.statusSays(ctx, 3)
}

func (d *demo) endLeaders(ctx context.Context) (string, error) {
	holders, err := AwaitLeaders(ctx, d.client, d.stage, nil)
	if err != nil {
		return "", err
	}
	crowd := d.stage.About().Crowd
	if err := d.scale(ctx, int32(crowd)); err != nil {
		return "", err
	}
	began := time.Now()
	var half look
	if _, err := d.until(ctx, "the work to be half-way", func(l look) bool {
		half = l
		return len(l.owned) >= crowd/3
	}); err != nil {
		return "", err
	}
	ended, within, err := d.stage.EndLeaders(ctx, holders, types.NamespacedName{Namespace: d.namespace,
		Name: half.largest()})
	if err != nil {
		return "", err
	}
	atEnd := time.Now()
	last, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	if len(last.owned) >= crowd {
		return "", fmt.Errorf("all was done before anybody could be ended: there are %s", last)
	}
	d.narrator.Line(fmt.Sprintf("      %s; there are %s", ended, last))
	// One that was there is not: another one that joins only now is no take-over.
	without := func(i int, now string) bool {
		return slices.ContainsFunc(strings.Fields(holders[i]), func(name string) bool {
			return !slices.Contains(strings.Fields(now), name)
		})
	}
	if _, err := AwaitLeaders(ctx, d.client, d.stage, without); err != nil {
		return "", err
	}
	tookOver := time.Since(atEnd)
	if _, err := d.until(ctx, "the others to finish", settled(crowd)); err != nil {
		return "", err
	}
	switch {
	case d.seen.most > crowd:
		return "", fmt.Errorf("there were %d pods at a time, and %d were asked for", d.seen.most, crowd)
	case tookOver > within+prompt:
		return "", fmt.Errorf("the others took over after %s; at most %s was expected", Seconds(tookOver),
			Seconds(within))
	}
	return fmt.Sprintf("%d of %d pods were there when these ended; the others took over %s later and created the "+
		"rest, %s after the start, with never more than %d in all.",
		len(last.owned), crowd, Seconds(tookOver), Seconds(time.Since(began)), crowd), d.statusSays(ctx, int32(crowd))
}

func (d *demo) cleanUp(ctx context.Context) (string, error) {
	if err := d.scale(ctx, 0); err != nil {
		return "", err
	}
	took, err := d.until(ctx, "no pods", settled(0))
	if err != nil {
		return "", err
	}
	ended, err := d.stage.End(ctx)
	return fmt.Sprintf("no pods after %s; %s.", Seconds(took), ended), err
}
