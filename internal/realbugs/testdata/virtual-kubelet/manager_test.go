// Package check runs the controller of nodes of Virtual Kubelet, with the options that its own constructor of nodes
// sets, and makes the node anew if it is deleted. The controller of pods is left out.
package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/virtual-kubelet/virtual-kubelet/node"
)

const (
	name       = "virtual"
	capacityOf = "capacity"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, time.Minute, informers.WithNamespace("default"))
	p := &provider{maps: factory.Core().V1().ConfigMaps().Lister(), changed: make(chan struct{}, 1)}
	changes := func(any) {
		select {
		case p.changed <- struct{}{}:
		default: // it has not looked since the last change
		}
	}
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changes, UpdateFunc: func(_, o any) { changes(o) }, DeleteFunc: changes}); err != nil {
		return err
	}
	defer factory.Shutdown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also where the node could not register
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	again := func(ctx context.Context, err error) error {
		if !apierrors.IsNotFound(err) {
			return err
		}
		_, err = client.CoreV1().Nodes().Create(ctx, p.node(), metav1.CreateOptions{})
		return err
	}
	controller, err := node.NewNodeController(p, p.node(), client.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(client.CoordinationV1().Leases(corev1.NamespaceNodeLease),
			node.DefaultLeaseDuration),
		node.WithNodeStatusUpdateErrorHandler(again))
	if err != nil {
		return err
	}
	return controller.Run(ctx)
}

// provider is what a node stands for. Its capacity is that of a ConfigMap.
type provider struct {
	maps    corelisters.ConfigMapLister
	changed chan struct{}
}

func (p *provider) node() *corev1.Node {
	cpu := resource.MustParse("0")
	if m, err := p.maps.ConfigMaps("default").Get(capacityOf); err == nil {
		if is, err := resource.ParseQuantity(m.Data["cpu"]); err == nil {
			cpu = is
		}
	}
	resources := corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourcePods: resource.MustParse("20")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"type": "virtual-kubelet",
			"kubernetes.io/role": "agent", "kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.0", Architecture: "amd64", OperatingSystem: "linux"},
			Capacity: resources, Allocatable: resources.DeepCopy(),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				Reason: "KubeletReady", Message: "kubelet is ready."}},
		},
	}
}

func (p *provider) Ping(ctx context.Context) error { return ctx.Err() }

func (p *provider) NotifyNodeStatus(ctx context.Context, notify func(*corev1.Node)) {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.changed:
				if ctx.Err() == nil {
					notify(p.node())
				}
			}
		}
	}()
}
