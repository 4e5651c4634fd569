package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options change what [Start] starts.
type Options struct {
	// DisableNode leaves out the node stand-in: pods then stay Pending.
	DisableNode bool
	// NodeArgs are given to the node stand-in, after --kubeconfig.
	NodeArgs []string
	// Log takes progress while binaries are built, and the ends of processes that nobody asked for. Default: standard
	// error.
	Log io.Writer
}

// Cluster is a running control plane.
type Cluster struct {
	supervisor *supervisor
	exits      *exits
	binary     string // of the control plane
	dir        string
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	private    bool // of one test, which takes the whole cluster away at its end

	close func() error
}

// Start builds what is missing, starts a control plane and waits until it is ready. It ends with Close, or with this
// process.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Log == nil {
		o.Log = os.Stderr
	}
	binary, err := BuildControlPlane(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	node := ""
	if !o.DisableNode {
		if node, err = BuildNode(ctx, o.Log); err != nil {
			return nil, err
		}
	}
	c := &Cluster{binary: binary, exits: &exits{known: map[exitKey]*exit{}}}
	c.supervisor, err = startSupervisor(binary, func(m message) {
		e := c.exits.of(m.Name, m.PID)
		e.status = m.Status
		close(e.ended)
		if !m.Asked && isComponent(m.Name) {
			fmt.Fprintf(o.Log, "testcluster: %s (pid %d) ended and nobody had asked it to: %s; its log was %s\n",
				m.Name, m.PID, m.Status, m.Log)
		}
	})
	if err != nil {
		return nil, err
	}
	c.close = sync.OnceValue(c.supervisor.close)
	if err := c.start(ctx, node, o.NodeArgs); err != nil {
		return nil, errors.Join(fmt.Errorf("start a test cluster: %w", err), c.Close())
	}
	return c, nil
}

func isComponent(name string) bool {
	switch Component(name) {
	case Etcd, APIServer, ControllerManager, Node:
		return true
	default:
		return false
	}
}

// start brings up the control plane and, unless its binary is "", the node.
func (c *Cluster) start(ctx context.Context, node string, nodeArgs []string) error {
	up, err := c.supervisor.call(ctx, request{Op: "up"})
	if err != nil {
		return err
	}
	c.dir, c.kubeconfig = up.Dir, up.Kubeconfig
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return err
	}
	c.config.QPS = unlimited
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	if node == "" {
		return nil
	}
	_, err = c.Run(ctx, Command{
		Name: string(Node),
		Path: node,
		Args: append([]string{"--kubeconfig", c.kubeconfig}, nodeArgs...),
	})
	if err != nil {
		return err
	}
	return c.nodeReady(ctx)
}

// nodeReady waits until a node is ready.
func (c *Cluster) nodeReady(ctx context.Context) error {
	return eventually(ctx, "a node is ready", func(ctx context.Context) (bool, error) {
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					return true, nil
				}
			}
		}
		return false, nil
	})
}

// Close ends the control plane and every command that runs in it, and removes its files.
func (c *Cluster) Close() error { return c.close() }

// Config is the configuration of an administrator without a client-side rate limit. It is a copy: change it freely.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client is an administrator's clientset.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Kubeconfig is the path of an administrator's kubeconfig. The file goes with the cluster.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir is a folder that goes with the cluster: the logs of all processes are in it.
func (c *Cluster) Dir() string { return c.dir }

// LogFile is the path of the file that takes the output of a component.
func (c *Cluster) LogFile(component Component) string {
	return filepath.Join(c.dir, string(component)+".log")
}

const (
	// unlimited takes the client-side rate limit out of a rest.Config.
	unlimited = -1

	patience = time.Minute
	pollTime = 20 * time.Millisecond
)

// eventually asks until the answer is yes.
func eventually(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		yes, err := ask(ctx)
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait until %s: %w", what, ctx.Err()), err)
		case <-time.After(pollTime):
		}
	}
}
