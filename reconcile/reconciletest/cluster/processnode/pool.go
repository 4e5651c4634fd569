package processnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
)

// Options say what a pool of nodes runs. The zero value is one node without images.
type Options struct {
	// Images are what pods may name as the image of a container. With any other name the container waits with the
	// reason ErrImagePull, and then ImagePullBackOff.
	Images map[string]Image
	// Nodes is the number of nodes. Default: 1.
	Nodes int
	// Name begins the names of the nodes: NAME-0, NAME-1. Default: "process-" and five random characters. A cluster
	// can have only one pool of a name at a time.
	Name string
	// AllPods has the nodes take every pod that has no node yet. Use it in a cluster that was started with
	// [cluster.Options.DisableNode]: [Start] returns an error if there is another node, which would take these pods as
	// well. Without AllPods a pod must name its node: see the package documentation.
	AllPods bool
	// RestartBackOff is the delay before the second restart of a container. Each restart doubles it, up to 30 times
	// its value; the first restart has none. Default: 10 seconds, as the kubelet has it.
	RestartBackOff time.Duration
	// Network lets a test cut pods off: each is the end [network.Pod]. It carries the TCP ports that the containers
	// name in their ports, and the processes must listen on 0.0.0.0. The pool has to be closed before it. Default: pods
	// are reached without one.
	Network *network.Network
	// Log takes a line when a request to the API server failed and is tried again, at most 30 a minute. Default:
	// standard error.
	Log io.Writer
}

// Image is what a container's image stands for: programs on this machine.
type Image struct {
	// Programs are the paths of the programs by name. The last element of a command's path is the name:
	// /usr/local/bin/etcd is Programs["etcd"].
	Programs map[string]string
	// Entrypoint is the command of a container that has none. Default: the program, if there is only one.
	Entrypoint []string
}

// Pool is a set of nodes in this process, which run the containers of pods as processes on this machine. Its methods
// may be called by several goroutines at the same time.
type Pool struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	o       Options
	dir     string
	nodes   []*Node
	kubelet *kubelet

	// The end of ctx ends all goroutines of the group. Close waits for them.
	ctx    context.Context
	cancel context.CancelFunc
	group  lifecycle.Group
	close  func() error

	events   chan *corev1.Event
	schedule chan struct{} // a pod may have become schedulable
	calm     lifecycle.LogLimit
	execs    atomic.Int64 // numbers the calls of Exec

	// disks is held for reading while a container starts, and for writing while LoseDisk swaps a folder: a process
	// never starts with half of a disk.
	disks sync.RWMutex

	// Guarded by mu, which is never held during a request to the API server.
	mu        sync.Mutex
	pods      map[types.NamespacedName]*corev1.Pod // as the watch delivered them; not changed
	workers   map[types.UID]*podWorker
	addresses addresses
}

// New starts a pool that ends with the test. A failure to start is fatal to the test.
func New(t testing.TB, c *cluster.Cluster, o Options) *Pool {
	t.Helper()
	p, err := Start(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

// Start registers the nodes in the cluster and returns when they are Ready. When ctx ends before that, Start takes back
// what it did and returns an error; after that ctx has no meaning for the pool. On systems other than Linux the error
// is [errors.ErrUnsupported].
func Start(ctx context.Context, c *cluster.Cluster, o Options) (*Pool, error) {
	if err := errors.Join(givesAddresses(), o.complete()); err != nil {
		return nil, fmt.Errorf("start a pool of nodes: %w", err)
	}
	p := &Pool{
		cluster: c, client: c.Client(), o: o, dir: filepath.Join(c.Dir(), o.Name),
		events: make(chan *corev1.Event, 1000), schedule: make(chan struct{}, 1),
		pods: map[types.NamespacedName]*corev1.Pod{}, workers: map[types.UID]*podWorker{},
		addresses: addresses{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.close = sync.OnceValue(p.end)
	for i := range o.Nodes {
		p.nodes = append(p.nodes, &Node{Name: fmt.Sprintf("%s-%d", o.Name, i), pool: p})
	}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a pool of nodes: %w", err), p.Close())
	}
	return p, nil
}

// complete sets the defaults and checks the rest.
func (o *Options) complete() error {
	if o.Name == "" {
		o.Name = "process-" + rand.String(5)
	}
	if !nodeName.MatchString(o.Name) {
		return fmt.Errorf("name %q does not match %s", o.Name, nodeName)
	}
	if o.Nodes < 0 || o.RestartBackOff < 0 {
		return errors.New("neither Nodes nor RestartBackOff can be negative")
	}
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.RestartBackOff == 0 {
		o.RestartBackOff = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = os.Stderr
	}
	for name, image := range o.Images {
		if err := image.check(); err != nil {
			return fmt.Errorf("image %q: %w", name, err)
		}
	}
	return nil
}

func (p *Pool) start(ctx context.Context) error {
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the pool: %w", err)
	}
	if err := (scheduler{p}).alone(ctx); err != nil {
		return err
	}
	if err := (storage{p}).ensureStorageClass(ctx); err != nil {
		return err
	}
	var err error
	if p.kubelet, err = startKubelet(logs{p}, &p.group); err != nil {
		return err
	}
	for _, n := range p.nodes {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	p.group.Go("pods", watcher{p}.run)
	p.group.Go("schedule", scheduler{p}.run)
	p.group.Go("volumes", storage{p}.run)
	p.group.Go("events", recorder{p}.run)
	return nil
}

// Nodes returns the nodes of the pool in the order of their names.
func (p *Pool) Nodes() []*Node { return append([]*Node(nil), p.nodes...) }

// Close kills all processes of the pool, and removes its nodes with their pods, its disks and its files. A second call
// does nothing. In a cluster that has ended or whose API server does not answer within 5 seconds the objects stay.
func (p *Pool) Close() error { return p.close() }

func (p *Pool) end() error {
	p.cancel()
	for _, n := range p.nodes {
		n.kill()
	}
	if p.kubelet != nil {
		p.kubelet.close()
	}
	err := p.group.Wait(time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p.removeObjects(ctx)
	return errors.Join(err, os.RemoveAll(p.dir))
}

// complain logs what failed and is tried again. What fails after the end of ctx fails because of it.
func (p *Pool) complain(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	if _, ok := p.calm.Allow(30); ok {
		fmt.Fprintf(p.o.Log, "%s %s: %v\n", time.Now().Format("15:04:05.000"), p.o.Name, err)
	}
}
