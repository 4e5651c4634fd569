package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// unmended lets the rows run of which the loop does not wait for the write as it should.
const unmended = false

// ownWrite is a row of the table: a kind of write.
type ownWrite struct {
	name     string
	unmended bool
	kinds    []string                                // nil: all
	of       func(o *unstructured.Unstructured) bool // nil: the row needs no object
	do       func(c *ownCall, o *unstructured.Unstructured) error
}

// ownCall is a call of Reconcile that writes to objects of one kind.
type ownCall struct {
	ctx       context.Context
	random    *rand.Rand
	key       string
	namespace string
	kind      *ownKind
	client    writer
	typed     kubernetes.Interface
}

const ownFinalizer = "example.com/own"

func live(o *unstructured.Unstructured) bool        { return o.GetDeletionTimestamp() == nil }
func terminating(o *unstructured.Unstructured) bool { return !live(o) }
func kept(o *unstructured.Unstructured) bool        { return len(o.GetFinalizers()) > 0 }

// inGrace reports whether a pod is terminating on its node.
func inGrace(o *unstructured.Unstructured) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return terminating(o) && grace != nil && *grace > 0
}

func all(conditions ...func(*unstructured.Unstructured) bool) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		return !slices.ContainsFunc(conditions, func(is func(*unstructured.Unstructured) bool) bool { return !is(o) })
	}
}

func not(is func(*unstructured.Unstructured) bool) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return !is(o) }
}

func unbound(o *unstructured.Unstructured) bool {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	return node == "" && live(o)
}

// goesAtOnce reports whether a live object is a pod that does not run: the server deletes it in two steps, of which the
// first makes it terminating.
func goesAtOnce(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Pod" && unbound(o) && !kept(o)
}

// deletable reports whether a deletion is a step by itself.
func deletable(o *unstructured.Unstructured) bool { return live(o) && !kept(o) && !goesAtOnce(o) }

// last reports whether the next removal of a finalizer takes a terminating object away.
func last(o *unstructured.Unstructured) bool {
	return terminating(o) && !inGrace(o) && len(o.GetFinalizers()) == 1
}

var (
	pods    = []string{"pods"}
	notPods = []string{"configmaps", "things", "deployments"}
	scaled  = []string{"deployments", "things"}
	status  = []string{"deployments", "things", "pods"}
	zero    = int64(0)
)

// ownWrites is the table.
var ownWrites = slices.Concat([]ownWrite{
	{name: "create", do: (*ownCall).create},
	{name: "create under a generated name", do: func(c *ownCall, _ *unstructured.Unstructured) error {
		o := c.object("")
		o.SetGenerateName(c.key + "-")
		return c.client.create(c.ctx, o)
	}},
	{name: "PUT", of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.update(c.ctx, labelled(o, "x", c.text()))
	}},
	{name: "PUT that changes nothing", of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.update(c.ctx, o)
	}},
	{name: "PUT at an older version", of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		o = labelled(o, "x", c.text())
		o.SetResourceVersion("1")
		return c.client.update(c.ctx, o)
	}},
	{name: "merge patch", of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.merge(o, `{"metadata":{"labels":{"x":"`+c.text()+`"}}}`)
	}},
	{name: "merge patch that changes nothing", of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.merge(o, `{}`)
	}},
	{name: "dry run of a merge patch", of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.patch(c.ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}},
	{name: "JSON patch", of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.jsonPatch(o, `[{"op":"add","path":"/metadata/labels/x","value":"`+c.text()+`"}]`)
	}},
	{name: "apply", of: live, do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.patch(c.ctx, o.GetName(), types.ApplyPatchType,
			fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"x":%q}}}`,
				o.GetAPIVersion(), o.GetKind(), o.GetName(), c.text()),
			metav1.PatchOptions{FieldManager: "own", Force: new(true)})
	}},
	{name: "apply what does not exist", do: func(c *ownCall, _ *unstructured.Unstructured) error {
		o := c.object(c.key + "-" + c.text())
		data, err := json.Marshal(o)
		if err != nil {
			return err
		}
		return c.client.patch(c.ctx, o.GetName(), types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: "own", Force: new(true)})
	}},
	{name: "status", kinds: status, of: all(), do: func(c *ownCall, o *unstructured.Unstructured) error {
		body := map[string]string{"deployments": `{"replicas":%d}`, "things": `{"replicas":%d}`,
			"pods": `{"message":"%d"}`}[c.kind.name]
		return c.client.patch(c.ctx, o.GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"status":`+body+`}`, c.random.IntN(1000)), metav1.PatchOptions{}, "status")
	}},
	{name: "into the selector", of: func(o *unstructured.Unstructured) bool { return o.GetLabels()["in"] == "" },
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.merge(o, `{"metadata":{"labels":{"in":"yes"}}}`)
		}},
	{name: "out of the selector", of: func(o *unstructured.Unstructured) bool { return o.GetLabels()["in"] != "" },
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.merge(o, `{"metadata":{"labels":{"in":null}}}`)
		}},
	{name: "into the selector and out of it in one call", unmended: true,
		of: func(o *unstructured.Unstructured) bool { return o.GetLabels()["in"] == "" },
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			if err := c.merge(o, `{"metadata":{"labels":{"in":"yes"}}}`); err != nil {
				return err
			}
			return c.merge(o, `{"metadata":{"labels":{"in":null}}}`)
		}},
}, deletions, finalizers, subresources)

var deletions = []ownWrite{
	{name: "DELETE", of: deletable, do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{})
	}},
	{name: "DELETE of one UID", of: deletable, do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.remove(c.ctx, o.GetName(), *metav1.NewPreconditionDeleteOptions(string(o.GetUID())))
	}},
	{name: "DELETE of another UID", of: live, do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.remove(c.ctx, o.GetName(), *metav1.NewPreconditionDeleteOptions("other"))
	}},
	{name: "DELETE with a policy", of: deletable, do: func(c *ownCall, o *unstructured.Unstructured) error {
		policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
			metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
		return c.client.remove(c.ctx, o.GetName(),
			metav1.DeleteOptions{PropagationPolicy: &policies[c.random.IntN(len(policies))]})
	}},
	{name: "DELETE without a grace period", kinds: notPods, of: deletable, do: (*ownCall).removeNow},
	{name: "DELETE of what a finalizer keeps", of: all(live, kept), do: (*ownCall).removeNow},
	{name: "DELETE once more", of: all(terminating, kept), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{})
	}},
	{name: "DELETE of a pod that does not run", unmended: true, kinds: pods, of: goesAtOnce,
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{})
		}},
	{name: "DELETE without a grace period of a live pod", unmended: true, kinds: pods, of: all(live, not(kept)),
		do: (*ownCall).removeNow},
	{name: "DELETE without a grace period of a terminating pod", unmended: true, kinds: pods,
		of: all(inGrace, not(kept)), do: (*ownCall).removeNow},
	{name: "DELETE and create under the same name", kinds: notPods, of: deletable, do: (*ownCall).replace},
	{name: "DELETE of a pod, and create under the same name", unmended: true, kinds: pods, of: all(not(kept)),
		do: (*ownCall).replace},
	{name: "delete the collection", kinds: notPods, of: deletable,
		do: func(c *ownCall, _ *unstructured.Unstructured) error {
			return c.client.removeAll(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "key=" + c.key})
		}},
	{name: "delete the collection of pods", unmended: true, kinds: pods, of: all(live, not(kept)),
		do: func(c *ownCall, _ *unstructured.Unstructured) error {
			return c.client.removeAll(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "key=" + c.key})
		}},
	{name: "delete the collection of terminating pods without a grace period", unmended: true, kinds: pods,
		of: all(inGrace, not(kept)), do: func(c *ownCall, _ *unstructured.Unstructured) error {
			return c.client.removeAll(c.ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero},
				metav1.ListOptions{LabelSelector: "key=" + c.key})
		}},
}

func (c *ownCall) removeNow(o *unstructured.Unstructured) error {
	return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &zero})
}

func (c *ownCall) replace(o *unstructured.Unstructured) error {
	if err := c.removeNow(o); err != nil {
		return err
	}
	return c.client.create(c.ctx, c.object(o.GetName()))
}

var finalizers = []ownWrite{
	{name: "finalizer added", of: all(live, not(kept)), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.merge(o, `{"metadata":{"finalizers":["`+ownFinalizer+`"]}}`)
	}},
	{name: "two finalizers added", of: all(live, not(kept)), do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.merge(o, `{"metadata":{"finalizers":["`+ownFinalizer+`","`+ownFinalizer+`2"]}}`)
	}},
	{name: "finalizers of a live object removed", of: all(live, kept),
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.merge(o, `{"metadata":{"finalizers":null}}`)
		}},
	{name: "finalizer removed, not the last", of: func(o *unstructured.Unstructured) bool {
		return terminating(o) && len(o.GetFinalizers()) > 1
	}, do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.jsonPatch(o, `[{"op":"remove","path":"/metadata/finalizers/0"}]`)
	}},
	{name: "last finalizer removed in the grace period", kinds: pods, of: all(inGrace, kept),
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.merge(o, `{"metadata":{"finalizers":null}}`)
		}},
	{name: "last finalizer removed by PUT", unmended: true, of: last,
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			o = o.DeepCopy()
			o.SetFinalizers(nil)
			return c.client.update(c.ctx, o)
		}},
	{name: "last finalizer removed by a merge patch", unmended: true, of: last,
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.merge(o, `{"metadata":{"finalizers":null}}`)
		}},
	{name: "last finalizer removed by a JSON patch", unmended: true, of: last,
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.jsonPatch(o, `[{"op":"remove","path":"/metadata/finalizers/0"}]`)
		}},
	{name: "last finalizer removed, and created under the same name", unmended: true, of: last,
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			if err := c.merge(o, `{"metadata":{"finalizers":null}}`); err != nil {
				return err
			}
			return c.client.create(c.ctx, c.object(o.GetName()))
		}},
}

var subresources = []ownWrite{
	{name: "scale by a merge patch", unmended: true, kinds: scaled, of: all(),
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			return c.kind.dynamic.patch(c.ctx, o.GetName(), types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, c.random.IntN(1000)), metav1.PatchOptions{}, "scale")
		}},
	{name: "scale by PUT", unmended: true, kinds: []string{"deployments"}, of: all(),
		do: func(c *ownCall, o *unstructured.Unstructured) error {
			_, err := c.typed.AppsV1().Deployments(c.namespace).UpdateScale(c.ctx, o.GetName(), &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: o.GetName()},
				Spec:       autoscalingv1.ScaleSpec{Replicas: int32(c.random.IntN(1000))},
			}, metav1.UpdateOptions{})
			return err
		}},
	{name: "binding", unmended: true, kinds: pods, of: unbound, do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.typed.CoreV1().Pods(c.namespace).Bind(c.ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: o.GetName()},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
		}, metav1.CreateOptions{})
	}},
	{name: "eviction", unmended: true, kinds: pods, of: live, do: func(c *ownCall, o *unstructured.Unstructured) error {
		return c.typed.CoreV1().Pods(c.namespace).EvictV1(c.ctx,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: o.GetName()}})
	}},
}

func (c *ownCall) create(*unstructured.Unstructured) error {
	return c.client.create(c.ctx, c.object(c.key+"-"+c.text()))
}

// text is a label or a part of a name that has most likely not been there before.
func (c *ownCall) text() string { return fmt.Sprintf("%08x", c.random.Uint32()) }

// object makes an object of the kind. Some pods have a node, and some objects are in the selector.
func (c *ownCall) object(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(c.kind.manifest), o); err != nil {
		panic(err)
	}
	o.SetName(name)
	o.SetNamespace(c.namespace)
	o.SetLabels(map[string]string{"key": c.key})
	if c.random.IntN(2) == 0 {
		o.SetLabels(map[string]string{"key": c.key, "in": "yes"})
	}
	if c.kind.name == "pods" && c.random.IntN(2) == 0 {
		_ = unstructured.SetNestedField(o.Object, "n", "spec", "nodeName")
	}
	return o
}

func labelled(o *unstructured.Unstructured, name, value string) *unstructured.Unstructured {
	o = o.DeepCopy()
	labels := o.GetLabels()
	labels[name] = value
	o.SetLabels(labels)
	return o
}

func (c *ownCall) merge(o *unstructured.Unstructured, body string) error {
	return c.client.patch(c.ctx, o.GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{})
}

func (c *ownCall) jsonPatch(o *unstructured.Unstructured, body string) error {
	return c.client.patch(c.ctx, o.GetName(), types.JSONPatchType, []byte(body), metav1.PatchOptions{})
}

// writer is a client for the objects of one kind in one namespace, whatever their Go type.
type writer interface {
	create(ctx context.Context, o *unstructured.Unstructured) error
	update(ctx context.Context, o *unstructured.Unstructured) error
	patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) error
	remove(ctx context.Context, name string, opts metav1.DeleteOptions) error
	removeAll(ctx context.Context, opts metav1.DeleteOptions, of metav1.ListOptions) error
}

// typedClient has the methods that typed clients of client-go and informer.Resource share.
type typedClient[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
}

// writerOf makes a writer of a typed client.
func writerOf[T any](client typedClient[T]) writer { return typedWriter[T]{client} }

type typedWriter[T any] struct{ client typedClient[T] }

func (w typedWriter[T]) typed(o *unstructured.Unstructured) (typed T, err error) {
	data, err := json.Marshal(o)
	return typed, cmp.Or(err, json.Unmarshal(data, &typed))
}

func (w typedWriter[T]) create(ctx context.Context, o *unstructured.Unstructured) error {
	typed, err := w.typed(o)
	if err == nil {
		_, err = w.client.Create(ctx, typed, metav1.CreateOptions{})
	}
	return err
}

func (w typedWriter[T]) update(ctx context.Context, o *unstructured.Unstructured) error {
	typed, err := w.typed(o)
	if err == nil {
		_, err = w.client.Update(ctx, typed, metav1.UpdateOptions{})
	}
	return err
}

func (w typedWriter[T]) patch(ctx context.Context, name string, pt types.PatchType, data []byte,
	opts metav1.PatchOptions, subresources ...string) error {
	_, err := w.client.Patch(ctx, name, pt, data, opts, subresources...)
	return err
}

func (w typedWriter[T]) remove(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return w.client.Delete(ctx, name, opts)
}

func (w typedWriter[T]) removeAll(ctx context.Context, opts metav1.DeleteOptions, of metav1.ListOptions) error {
	return w.client.DeleteCollection(ctx, opts, of)
}
