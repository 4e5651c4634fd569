package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options change what [Start] and [New] start. The zero value is a whole cluster.
type Options struct {
	// Version is the minor version of Kubernetes, such as "1.34": see the package's documentation. Default: that of the
	// variable THERMOSTAT_KUBERNETES, and without it the newest.
	Version string
	// Controllers are the controllers of kube-controller-manager that run, as its flag --controllers takes them: "*"
	// for all that are on by default, a name, or "-" and a name to leave one out. Default: "*". Two run in every case,
	// because no pod can be created without them: serviceaccount-controller and
	// root-ca-certificate-publisher-controller.
	Controllers []string
	// DisableNode leaves out the node stand-in: pods then stay Pending.
	DisableNode bool
	// Metrics has the node stand-in serve metrics.k8s.io, with the usage that annotations of pods give: see the
	// package's documentation. While the node is stopped or killed nothing serves it, and the API server says so in
	// discovery: the controllers that delete namespaces and collect garbage wait for its return.
	Metrics bool
	// Log takes progress while the control plane is built, and a line when a component ends that no test has ended.
	// Default: standard error.
	Log io.Writer
}

// Cluster is a running control plane. Its methods may be called by several goroutines at the same time.
type Cluster struct {
	supervisor *supervisor
	exits      *exits
	binary     string // of the control plane
	dir        string
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	private    bool // of one test, which takes the whole cluster away at its end
	metrics    bool // the node serves metrics.k8s.io

	close func() error
}

// shared starts the cluster that all tests of this process use. It ends when the process does.
var shared = sync.OnceValues(func() (*Cluster, error) { return Start(context.Background(), Options{}) })

// Shared returns the cluster of this test process, and starts it on the first call, with all controllers and a node.
// Tests keep out of each other's way with [Cluster.Namespace] and leave the components alone. A failure to start is
// fatal to each test that asks for it.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// New starts a cluster that is the test's own, for tests that stop or kill components. It ends with the test. A failure
// to start is fatal to the test.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c.private = true
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Start builds the control plane if this machine has none (see [Assets]), starts it and waits until it is ready, which
// takes seconds. The cluster ends with [Cluster.Close], or with this process. When ctx ends before the cluster is
// ready, Start ends what it has started and returns an error; after that ctx has no meaning for the cluster.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Metrics && o.DisableNode {
		return nil, errors.New("start a cluster: Options.Metrics needs the node that Options.DisableNode leaves out")
	}
	if o.Log == nil {
		o.Log = os.Stderr
	}
	dir, err := assets(ctx, o.Log, o.Version)
	if err != nil {
		return nil, err
	}
	c := &Cluster{binary: filepath.Join(dir, binaryName), exits: &exits{known: map[exitKey]*exit{}}}
	c.supervisor, err = startSupervisor(c.binary, func(m message) {
		e := c.exits.of(m.Name, m.PID)
		e.status = m.Status
		close(e.ended)
		if !m.Asked && isComponent(m.Name) {
			fmt.Fprintf(o.Log, "cluster: %s (pid %d) ended by itself: %s; its log was %s\n", m.Name, m.PID, m.Status,
				m.Log)
		}
	})
	if err != nil {
		return nil, err
	}
	c.close = sync.OnceValue(c.supervisor.close)
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster: %w", err), c.Close())
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

// start brings up the control plane and the node.
func (c *Cluster) start(ctx context.Context, o Options) error {
	up, err := c.supervisor.call(ctx, request{Op: "up", Controllers: o.Controllers})
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
	if o.DisableNode {
		return nil
	}
	node := Command{Name: string(Node), Path: c.binary, Args: []string{"node", "--kubeconfig", c.kubeconfig}}
	if c.metrics = o.Metrics; c.metrics {
		node.Args = append(node.Args, "--metrics")
	}
	if _, err = c.Run(ctx, node); err != nil {
		return err
	}
	return c.nodeReady(ctx)
}

// nodeReady waits until a node is ready, and serves metrics if it is to.
func (c *Cluster) nodeReady(ctx context.Context) error {
	if c.metrics {
		err := eventually(ctx, "metrics.k8s.io answers", func(ctx context.Context) (bool, error) {
			const path = "/apis/metrics.k8s.io/v1beta1/pods"
			err := c.client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
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

// Close ends the control plane and every process that runs in the cluster, and removes its files. A second call does
// nothing.
func (c *Cluster) Close() error { return c.close() }

// Config returns the configuration of an administrator without a client-side rate limit. It is a copy: change it
// freely. An administrator may impersonate every user. So a controller runs with the rights of its own manifests, once
// [Cluster.Apply] has applied them, if it gets the account that they bind:
//
//	cfg := c.Config()
//	cfg.Impersonate.UserName = reconciletest.ServiceAccount("operators", "mine") // namespace and name
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client returns an administrator's clientset.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Kubeconfig returns the path of an administrator's kubeconfig, which is removed with the cluster.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir returns a folder that is removed with the cluster. The logs of all processes are in it.
func (c *Cluster) Dir() string { return c.dir }

// LogFile returns the path of the file that takes the output of a component.
func (c *Cluster) LogFile(component Component) string {
	return filepath.Join(c.dir, string(component)+".log")
}

const (
	// unlimited takes the client-side rate limit out of a rest.Config.
	unlimited = -1

	patience = 2 * time.Minute // a machine that compiles at the same time is slow
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
