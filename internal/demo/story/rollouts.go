package story

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kept checks what the Deployment promises during a rollout of 3.
func (d *demo) kept() error {
	switch {
	// Both together may exceed the 4 that maxSurge allows for a moment: the Deployment controller counts the replicas
	// that it has asked the ReplicaSets for, and one of these may scale up before the other one has scaled down.
	case d.seen.mostOfOne > 3:
		return fmt.Errorf("a ReplicaSet had %d pods at once, and no more than 3 were asked for", d.seen.mostOfOne)
	case d.seen.fewestReady < 3:
		return fmt.Errorf("there were only %d Ready pods at a time; the Deployment always wants 3 "+
			"(maxUnavailable 25%%, rounded down)", d.seen.fewestReady)
	}
	return nil
}

func (d *demo) changeImage(ctx context.Context) (string, error) {
	d.seen = extremes{fewestReady: math.MaxInt}
	newer := d.stage.About().Newer
	config, err := web(newer)
	if err != nil {
		return "", err
	}
	if err := d.apply(ctx, config); err != nil {
		return "", err
	}
	took, err := d.until(ctx, "3 Ready pods of "+newer, func(l look) bool { return settled(3)(l) && l.allRun(newer) })
	if err != nil {
		return "", err
	}
	if err := d.kept(); err != nil {
		return "", err
	}
	return fmt.Sprintf("all 3 run %s after %s, with never fewer than %d Ready and never more than %d in all.", newer,
		Seconds(took), d.seen.fewestReady, d.seen.most), d.statusSays(ctx, 3)
}

// progressDeadline is long enough for a pod that starts, and short enough to watch one that does not.
const progressDeadline = 5 * time.Second

func (d *demo) breakImage(ctx context.Context) (string, error) {
	d.seen = extremes{fewestReady: math.MaxInt}
	broken := d.stage.About().Broken
	before, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	config, err := web(broken)
	if err != nil {
		return "", err
	}
	config.Spec.WithProgressDeadlineSeconds(int32(progressDeadline.Seconds()))
	// The node stand-in pulls no images, so it has to be told.
	config.Spec.Template.WithAnnotations(map[string]string{"standin/ready-after": "never"})
	if err := d.apply(ctx, config); err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := d.until(ctx, "a pod of "+broken, func(l look) bool { return l.run(broken) == 1 }); err != nil {
		return "", err
	}
	if _, err := d.awaitStatus(ctx, stopped); err != nil {
		return "", fmt.Errorf("the rollout should stop at its deadline of %s: %w", progressDeadline, err)
	}
	stoppedAfter := time.Since(began)
	l, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	d.narrator.Line(fmt.Sprintf("      ProgressDeadlineExceeded after %s: %d pods are Ready, and %d of %s is not",
		Seconds(stoppedAfter), l.ready, l.run(broken), broken))
	if l.run(broken) != 1 {
		return "", fmt.Errorf("a rollout that makes no progress should have 1 pod of %s: there are %s", broken,
			l.replicaSets())
	}
	undone := time.Now()
	if err := d.undo(ctx); err != nil {
		return "", err
	}
	if _, err := d.until(ctx, "the 3 pods of before", func(l look) bool {
		return settled(3)(l) && slices.Equal(l.names(), before.names())
	}); err != nil {
		return "", err
	}
	if err := d.kept(); err != nil {
		return "", err
	}
	return fmt.Sprintf("rolled back after %s. The 3 pods of %s are the same as before, and were Ready all the time.",
		Seconds(time.Since(undone)), d.stage.About().Newer), d.statusSays(ctx, 3)
}

// stopped reports a rollout that has made no progress until its deadline.
func stopped(status appsv1.DeploymentStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse &&
			c.Reason == "ProgressDeadlineExceeded"
	})
}

// undo does what kubectl rollout undo does: it gives the Deployment the template of the revision before.
func (d *demo) undo(ctx context.Context) error {
	list, err := d.client.Apps.ReplicaSets(d.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return fmt.Errorf("list the ReplicaSets: %w", err)
	}
	revision := func(rs appsv1.ReplicaSet) int {
		n, _ := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/revision"])
		return n
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ReplicaSet) int { return revision(b) - revision(a) })
	if len(list.Items) < 2 {
		return fmt.Errorf("there are %d ReplicaSets, and a rollback needs 2", len(list.Items))
	}
	template := list.Items[1].Spec.Template
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template", "value": template}})
	if err != nil {
		return err
	}
	_, err = d.client.Apps.Deployments(d.namespace).Patch(ctx, app, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl"})
	if err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}
