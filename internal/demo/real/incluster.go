package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/internal/demo/story"
)

// inCluster is the stage in an existing cluster, to which examples/replicaset/deploy has been applied: the controller
// is a Deployment, and creates its own pods.
type inCluster struct {
	narrator   *story.Narrator
	kubeconfig string
	client     kubernetes.Interface
	namespace  string // of the demo's own pods
}

// The names are those of examples/replicaset/deploy.
const deployed, deployedIn, bootstrap = "thermostat-replicaset", "thermostat", "thermostat-replicaset-bootstrap"

func (c *inCluster) About() story.About {
	return story.About{
		Cluster: "A cluster whose kube-controller-manager runs without its ReplicaSet controller.",
		Controllers: "Our ReplicaSet controller in its place: a Deployment of three pods, all at work, each on its " +
			"share.",
		Deployments: "Kubernetes'", Ending: "delete one of the controller's own pods",
		// The images are small, and do nothing. There is no tag broken.
		Older: "registry.k8s.io/pause:3.9", Newer: "registry.k8s.io/pause:3.10", Broken: "registry.k8s.io/pause:broken",
		Crowd: 80, // which leaves room for the other pods of a single node, which takes at most 110
	}
}

// Leases has the one with the table of the controller in examples/replicaset/deploy.
func (c *inCluster) Leases() []types.NamespacedName {
	return []types.NamespacedName{{Namespace: deployedIn, Name: deployed}}
}

func (c *inCluster) Open(ctx context.Context) (cfg *rest.Config, namespace, result string, err error) {
	cfg, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, "", "", err
	}
	cfg.QPS = -1
	if c.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, "", "", err
	}
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return nil, "", "", err
	}
	created, err := c.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "demo-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, "", "", fmt.Errorf("create a namespace: %w", err)
	}
	c.namespace = created.Name
	return cfg, c.namespace, fmt.Sprintf("Kubernetes %s at %s.", version.GitVersion, cfg.Host), nil
}

func (c *inCluster) Start(ctx context.Context, client *story.Client) (string, error) {
	began := time.Now()
	c.narrator.Count("waiting for the Deployment " + deployedIn + "/" + deployed)
	for deadline := began.Add(2 * timeout); ; {
		d, err := c.client.AppsV1().Deployments(deployedIn).Get(ctx, deployed, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "", fmt.Errorf("the controller is not deployed in this cluster: kubectl apply -k " +
				"examples/replicaset/deploy, and -f examples/replicaset/deploy/bootstrap.yaml")
		case err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == 3:
		case time.Now().After(deadline):
			return "", fmt.Errorf("the Deployment %s/%s has not three available pods after %s", deployedIn, deployed,
				story.Seconds(time.Since(began)))
		default:
			if err := sleep(ctx); err != nil {
				return "", err
			}
			continue
		}
		break
	}
	// The bootstrap pod, which has created the three, is not needed any more.
	err := c.client.CoreV1().Pods(deployedIn).Delete(ctx, bootstrap, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("delete the pod %s: %w", bootstrap, err)
	}
	holders, err := story.AwaitLeaders(ctx, client, c, func(_ int, all string) bool {
		return !strings.Contains(all, bootstrap) && len(strings.Fields(all)) >= 3
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the controller has created its own three pods; %s share the ReplicaSets after %s.",
		strings.ReplaceAll(holders[0], " ", ", "), story.Seconds(time.Since(began))), nil
}

const (
	timeout  = 90 * time.Second
	pollTime = 40 * time.Millisecond
)

func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pollTime):
		return nil
	}
}

// pods returns the pods of the controller that are not being deleted.
func (c *inCluster) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(deployedIn).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + deployed})
	if err != nil {
		return nil, fmt.Errorf("list the pods of the controller: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// running returns an error if a replica restarts again and again.
func (c *inCluster) Running(ctx context.Context) error {
	pods, err := c.pods(ctx)
	if err != nil {
		return nil // the next call finds out
	}
	for _, pod := range pods {
		for _, s := range pod.Status.ContainerStatuses {
			if s.RestartCount > 2 {
				return fmt.Errorf("the pod %s has ended %d times by itself", pod.Name, s.RestartCount)
			}
		}
	}
	return nil
}

// EndLeaders deletes one of the pods that share the work. Which of them has the ReplicaSet they say on their pages,
// which are not for others.
func (c *inCluster) EndLeaders(ctx context.Context, holders []string, _ types.NamespacedName) (result string,
	within time.Duration, err error) {
	pods, err := c.pods(ctx)
	if err != nil {
		return "", 0, err
	}
	for _, pod := range pods {
		if slices.Contains(strings.Fields(holders[0]), pod.Name) {
			// It finishes the runs that it is in, and gives its share to the others.
			return pod.Name + " is deleted", 45 * time.Second,
				c.client.CoreV1().Pods(deployedIn).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		}
	}
	return "", 0, fmt.Errorf("none of %s is one of the controller's pods", holders[0])
}

func (c *inCluster) End(ctx context.Context) (string, error) {
	for deadline := time.Now().Add(timeout); ; {
		pods, err := c.pods(ctx)
		if err == nil && len(pods) == 3 {
			return "the controller has created its third pod again", nil
		}
		if time.Now().After(deadline) {
			return "", errors.Join(fmt.Errorf("the controller has %d pods", len(pods)), err)
		}
		if err := sleep(ctx); err != nil {
			return "", err
		}
	}
}

func (c *inCluster) Hint(namespace string) string {
	return fmt.Sprintf("It keeps running until Ctrl-C. In another terminal: kubectl --kubeconfig %s --namespace %s "+
		"get deployments,replicasets,pods", c.kubeconfig, namespace)
}

func (c *inCluster) ShowLogs() {
	c.narrator.Text("The log of the controller: kubectl --kubeconfig %s --namespace %s logs deployment/%s",
		c.kubeconfig, deployedIn, deployed)
}

func (c *inCluster) Close() error {
	if c.namespace == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.client.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the namespace of the demo: %w", err)
	}
	return nil
}
