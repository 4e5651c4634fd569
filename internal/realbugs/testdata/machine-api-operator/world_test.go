package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var machines = machinev1.GroupVersion.WithResource("machines")

// actuator is that of a cloud, which has a record for each machine, by its name.
type actuator struct {
	client client.Client
}

// instance is the record of a machine.
type instance struct {
	Spec string `json:"spec"`
}

func path(m *machinev1.Machine) string { return "/machines/" + m.Name }

func (a actuator) Create(ctx context.Context, m *machinev1.Machine) error {
	return a.Update(ctx, m)
}

func (a actuator) Update(ctx context.Context, m *machinev1.Machine) error {
	var is instance
	should := instance{Spec: string(m.Spec.ProviderSpec.Value.Raw)}
	err := ask(ctx, http.MethodGet, path(m), nil, &is)
	if errors.Is(err, errNone) || err == nil && is != should {
		err = ask(ctx, http.MethodPut, path(m), should, nil)
	}
	if err != nil {
		return err
	}
	if id := "cloud:///" + m.Name; m.Spec.ProviderID == nil || *m.Spec.ProviderID != id {
		before := m.DeepCopy()
		m.Spec.ProviderID = &id
		if err := a.client.Patch(ctx, m, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	if len(m.Status.Addresses) > 0 {
		return nil
	}
	before := m.DeepCopy()
	m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: m.Name}}
	return a.client.Status().Patch(ctx, m, client.MergeFrom(before))
}

func (a actuator) Delete(ctx context.Context, m *machinev1.Machine) error {
	return ask(ctx, http.MethodDelete, path(m), nil, nil)
}

func (a actuator) Exists(ctx context.Context, m *machinev1.Machine) (bool, error) {
	err := ask(ctx, http.MethodGet, path(m), nil, nil)
	if errors.Is(err, errNone) {
		return false, nil
	}
	return err == nil, err
}

// hosts stands in for what joins the cluster when a machine is there: its node, which is ready, and the controller that
// links both. provided: only machines with an ID of a provider have one. The node goes with the machine.
func hosts(provided bool) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		of, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		nodes := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
		factory := dynamicinformer.NewDynamicSharedInformerFactory(of, 30*time.Second)
		handle := func(o any) {
			m := o.(*unstructured.Unstructured)
			id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID")
			linked, _, _ := unstructured.NestedMap(m.Object, "status", "nodeRef")
			if m.GetDeletionTimestamp() != nil || linked != nil || provided && id == "" {
				return
			}
			n, err := joins(ctx, cfg, m.GetName(), id)
			if err != nil {
				return // the next resync tries it again
			}
			patch := fmt.Sprintf(`{"status":{"nodeRef":{"kind":"Node","name":%q,"uid":%q}}}`, n.Name, n.UID)
			_, _ = of.Resource(machines).Namespace(m.GetNamespace()).Patch(ctx, m.GetName(), types.MergePatchType,
				[]byte(patch), metav1.PatchOptions{}, "status")
		}
		_, err = factory.ForResource(machines).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: handle, UpdateFunc: func(_, o any) { handle(o) },
			DeleteFunc: func(o any) {
				if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				_ = nodes.Delete(ctx, o.(*unstructured.Unstructured).GetName(), metav1.DeleteOptions{})
			}})
		if err != nil {
			return err
		}
		factory.Start(ctx.Done())
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}
}

// joins makes a node, and reports it ready, or returns the one that is there.
func joins(ctx context.Context, cfg *rest.Config, name, id string) (*corev1.Node, error) {
	nodes := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
	n, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		n, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{ProviderID: id}}, metav1.CreateOptions{})
	}
	if err != nil || len(n.Status.Conditions) > 0 {
		return n, err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}}
	return nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
}
