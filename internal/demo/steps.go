package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/internal/testcluster"
)

// demo is the state that one step leaves to the next.
type demo struct {
	narrator  *narrator
	cluster   *testcluster.Cluster
	client    kubernetes.Interface
	namespace string
	replicas  map[string]*testcluster.Process // the two processes of the controller, by name

	most, fewestReady int // pods, and Ready pods, at any look since these were set
}

type step struct {
	title string
	do    func(context.Context) (result string, err error)
}

func (d *demo) steps() []step {
	return []step{
		{"A control plane on this machine: etcd, kube-apiserver, kube-controller-manager without its ReplicaSet controller, and a stand-in for a node.", d.startControlPlane},
		{"Our ReplicaSet controller takes the empty place: two processes, of which one leads and one stands by.", d.startController},
		{"A Deployment of 3. Kubernetes' own Deployment controller makes a ReplicaSet of it, and ours makes the pods.", d.createDeployment},
		{"Drift: a pod is deleted by hand.", d.deletePod},
		{"A pod gets another label, so it is none of ours any more: it is released, not deleted, and replaced.", d.relabelPod},
		{"A new image. The Deployment controller rolls over from one ReplicaSet to the next, and ours follows both.", d.changeImage},
		{"Scale to 10.", d.scaleUp},
		{"Scale to 0.", d.scaleDown},
		{fmt.Sprintf("Scale to %d, and kill -9 the leader half-way.", crowd), d.killLeader},
		{"Clean up: scale to 0, and SIGTERM for the one that is left.", d.cleanUp},
	}
}

// The lease is shorter than by default (15 s, 10 s, 2 s), so that nobody has to wait that long for the standby.
const leaseDuration, renewDeadline, retryPeriod = 8 * time.Second, 4 * time.Second, time.Second

// crowd is more than the controller's rate limit (a burst of 30, then 20 requests a second) lets it create at once.
const crowd = 100

const (
	leaseNamespace = "kube-system"
	leaseName      = "thermostat-replicaset"
	oldImage       = "web:1"
	newImage       = "web:2"
)

func (d *demo) startControlPlane(ctx context.Context) (string, error) {
	began := time.Now()
	var err error
	if d.cluster, err = testcluster.Start(ctx, testcluster.Options{Log: d.narrator}); err != nil {
		return "", err
	}
	d.client = d.cluster.Client()
	version, err := d.client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	d.namespace, err = d.cluster.CreateNamespace(ctx, "demo")
	return fmt.Sprintf("Kubernetes %s is ready after %s.", version.GitVersion, seconds(time.Since(began))), err
}

func (d *demo) startController(ctx context.Context) (string, error) {
	began := time.Now()
	d.narrator.count("compiling examples/replicaset")
	binary := filepath.Join(d.cluster.Dir(), "replicaset")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/thermostat-go/thermostat/examples/replicaset")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build examples/replicaset: %w\n%s", err, output)
	}
	built := time.Since(began)
	d.replicas = map[string]*testcluster.Process{}
	for _, name := range []string{"replica-a", "replica-b"} {
		process, err := d.cluster.Run(ctx, testcluster.Command{Name: name, Path: binary, Args: []string{
			"--kubeconfig", d.cluster.Kubeconfig(), "--leader-elect-resource-namespace", leaseNamespace, "--leader-elect-resource-name", leaseName,
			"--leader-elect-lease-duration", leaseDuration.String(), "--leader-elect-renew-deadline", renewDeadline.String(),
			"--leader-elect-retry-period", retryPeriod.String(), "-v", "1",
		}})
		if err != nil {
			return "", err
		}
		d.replicas[name] = process
		if len(d.replicas) == 1 { // the first one is to lead, so that the story has one order
			d.narrator.count(fmt.Sprintf("waiting for the lease: a new one is not taken before %v, in case somebody still leads by an old one", leaseDuration))
			if _, err := d.awaitLeader(ctx, ""); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("built in %s; replica-a leads after %s, replica-b stands by.", seconds(built), seconds(time.Since(began)-built)), nil
}

// awaitLeader waits until somebody other than the holder before holds the lease.
func (d *demo) awaitLeader(ctx context.Context, before string) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		lease, err := d.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName, metav1.GetOptions{})
		if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != before {
			return *lease.Spec.HolderIdentity, nil
		}
		if err := d.allRun(); err != nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("nobody took the lease %s/%s within %s", leaseNamespace, leaseName, patience)
		case <-time.After(pollTime):
		}
	}
}

// allRun finds a controller that has ended though nobody asked it to.
func (d *demo) allRun() error {
	for name, process := range d.replicas {
		select {
		case <-process.Ended():
			return fmt.Errorf("%s has ended by itself", name)
		default:
		}
	}
	return nil
}

func (d *demo) createDeployment(ctx context.Context) (string, error) {
	replicas, grace := int32(3), int64(1)
	labels := map[string]string{"app": app}
	_, err := d.client.AppsV1().Deployments(d.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: app, Image: oldImage}}},
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

// statusSays checks the Deployment's status, which its controller adds up from the status that ours reports on ReplicaSets.
func (d *demo) statusSays(ctx context.Context, available int32) error {
	var status appsv1.DeploymentStatus
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(pollTime) {
		deployment, err := d.client.AppsV1().Deployments(d.namespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("look at the Deployment: %w", err)
		}
		status = deployment.Status
		if status.ObservedGeneration == deployment.Generation && status.Replicas == available && status.AvailableReplicas == available {
			return nil
		}
	}
	return fmt.Errorf("the Deployment's status should report %d available replicas: it says %d of %d", available, status.AvailableReplicas, status.Replicas)
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
	replaced, err := d.until(ctx, "a replacement of "+victim, func(l look) bool { return len(l.owned) == 3 && !l.has(victim) })
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
	return fmt.Sprintf("%s is replaced after %s; 3 are Ready after %s.", victim, seconds(replaced), seconds(replaced+more)), nil
}

func (d *demo) relabelPod(ctx context.Context) (string, error) {
	l, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	name := l.owned[0].Name
	pods := d.client.CoreV1().Pods(d.namespace)
	if _, err := pods.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"debug"}}}`), metav1.PatchOptions{}); err != nil {
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
	return fmt.Sprintf("%s runs on without an owner, and a new pod is Ready in its place, after %s.", name, seconds(took)), err
}

func (d *demo) changeImage(ctx context.Context) (string, error) {
	d.most, d.fewestReady = 0, math.MaxInt
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, app, newImage)
	if _, err := d.client.AppsV1().Deployments(d.namespace).Patch(ctx, app, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("change the image: %w", err)
	}
	took, err := d.until(ctx, "3 Ready pods of "+newImage, func(l look) bool { return settled(3)(l) && l.allRun(newImage) })
	switch {
	case err != nil:
		return "", err
	case d.most > 4:
		return "", fmt.Errorf("there were %d pods at once; the Deployment allows for 4 (maxSurge 25%%)", d.most)
	case d.fewestReady < 3:
		return "", fmt.Errorf("there were only %d Ready pods at a time; the Deployment wants 3 always (maxUnavailable 25%%, rounded down)", d.fewestReady)
	}
	return fmt.Sprintf("all 3 run %s after %s, with never fewer than %d Ready and never more than %d in all.", newImage, seconds(took), d.fewestReady, d.most), d.statusSays(ctx, 3)
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

func (d *demo) killLeader(ctx context.Context) (string, error) {
	holder, err := d.awaitLeader(ctx, "")
	if err != nil {
		return "", err
	}
	if err := d.scale(ctx, crowd); err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := d.until(ctx, "the leader to be half-way", func(l look) bool { return len(l.owned) >= crowd/3 }); err != nil {
		return "", err
	}
	leader := d.replicas["replica-a"]
	if err := leader.Kill(ctx); err != nil {
		return "", err
	}
	delete(d.replicas, leader.Name)
	killed := time.Now()
	atDeath, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	if len(atDeath.owned) >= crowd {
		return "", fmt.Errorf("the leader was done before it could be killed: there are %s", atDeath)
	}
	d.narrator.line(fmt.Sprintf("      kill -9 %d: replica-a is dead, and left %s; its lease lasts up to %v yet", leader.PID, atDeath, leaseDuration))
	if _, err := d.awaitLeader(ctx, holder); err != nil {
		return "", err
	}
	tookOver := time.Since(killed)
	if _, err := d.until(ctx, "the standby to finish", settled(crowd)); err != nil {
		return "", err
	}
	switch {
	case d.most > crowd:
		return "", fmt.Errorf("there were %d pods at a time, and %d were asked for", d.most, crowd)
	case tookOver > leaseDuration+2*retryPeriod:
		return "", fmt.Errorf("the standby took the lease after %s; the lease lasts %s", seconds(tookOver), leaseDuration)
	}
	return fmt.Sprintf("killed with %d pods; replica-b took over %s later (the lease lasts %v) and made it %d, %s after the start, and at no time more than that.",
		len(atDeath.owned), seconds(tookOver), leaseDuration, crowd, seconds(time.Since(began))), d.statusSays(ctx, crowd)
}

func (d *demo) cleanUp(ctx context.Context) (string, error) {
	if err := d.scale(ctx, 0); err != nil {
		return "", err
	}
	took, err := d.until(ctx, "no pods", settled(0))
	if err != nil {
		return "", err
	}
	left := d.replicas["replica-b"]
	began := time.Now()
	if err := left.Terminate(ctx); err != nil {
		return "", err
	}
	delete(d.replicas, left.Name)
	status, err := left.Wait(ctx)
	if err != nil {
		return "", err
	}
	if !strings.Contains(status, "exit status 0") {
		return "", fmt.Errorf("replica-b was asked to end and did so with %s", status)
	}
	return fmt.Sprintf("no pods after %s; replica-b ended cleanly within %s.", seconds(took), seconds(time.Since(began))), nil
}

// stay keeps it all running for somebody who wants to play.
func (d *demo) stay(ctx context.Context) error {
	d.narrator.text("Starting both controllers again ...")
	started, err := d.startController(ctx)
	if err != nil {
		return err
	}
	d.narrator.result(started)
	if err := d.scale(ctx, 3); err != nil {
		return err
	}
	d.narrator.text(`It all keeps running, two controllers included, until Ctrl-C. In another terminal:

  export KUBECONFIG=%s
  kubectl config set-context --current --namespace %s
  kubectl get deployments,replicasets,pods
  kubectl scale deployment %s --replicas 7
  kubectl delete pod --all --wait=false
  kubectl get events --field-selector reason=SuccessfulCreate

The logs of the controllers, the API server and all others are in %s`, d.cluster.Kubeconfig(), d.namespace, app, d.cluster.Dir())
	<-ctx.Done()
	return nil
}

// showLogs gives the last words of the controllers, as their files go with the cluster.
func (d *demo) showLogs() {
	if d.cluster == nil {
		return
	}
	for _, name := range []string{"replica-a", "replica-b"} {
		content, err := os.ReadFile(filepath.Join(d.cluster.Dir(), name+".log"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		d.narrator.text("The end of the log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

func (d *demo) close() error {
	if d.cluster == nil {
		return nil
	}
	return d.cluster.Close()
}
