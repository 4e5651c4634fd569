package reconcile_test

import (
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

// ownWrite is a row of the table: a kind of write.
type ownWrite struct {
	name         string
	notWaitedFor bool                   // the answer does not tell the version, and TrackWrites promises nothing
	kinds        []string               // nil: all
	of           func(o ownObject) bool // nil: the row needs no object
	do           func(c *ownCall, o ownObject) error
}

type ownObject = *unstructured.Unstructured

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

func isLive(o ownObject) bool        { return o.GetDeletionTimestamp() == nil }
func isTerminating(o ownObject) bool { return !isLive(o) }
func isKept(o ownObject) bool        { return len(o.GetFinalizers()) > 0 }

// isInGrace reports whether a pod is terminating on its node.
func isInGrace(o ownObject) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return isTerminating(o) && grace != nil && *grace > 0
}

func allOf(conditions ...func(ownObject) bool) func(ownObject) bool {
	return func(o ownObject) bool {
		return !slices.ContainsFunc(conditions, func(is func(ownObject) bool) bool { return !is(o) })
	}
}

func isNot(is func(ownObject) bool) func(ownObject) bool {
	return func(o ownObject) bool { return !is(o) }
}

func isUnbound(o ownObject) bool {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	return node == "" && isLive(o)
}

// isPodGoneAtOnce reports whether a live object is a pod that does not run: the server deletes it in two steps, of
// which the first makes it terminating.
func isPodGoneAtOnce(o ownObject) bool { return o.GetKind() == "Pod" && isUnbound(o) && !isKept(o) }

// isDeletable reports whether a deletion is a step by itself.
func isDeletable(o ownObject) bool {
	return isLive(o) && !isKept(o) && !isPodGoneAtOnce(o)
}

// isKeptByOne reports whether the next removal of a finalizer takes a terminating object away.
func isKeptByOne(o ownObject) bool {
	return isTerminating(o) && !isInGrace(o) && len(o.GetFinalizers()) == 1
}

var (
	onlyPods   = []string{"pods"}
	notPods    = []string{"configmaps", "things", "deployments"}
	withScale  = []string{"deployments", "things"}
	withStatus = []string{"deployments", "things", "pods"}
	noGrace    = int64(0)
)

// ownWrites is the table.
var ownWrites = slices.Concat([]ownWrite{
	{name: "create", do: (*ownCall).create},
	{name: "create under a generated name", do: func(c *ownCall, _ ownObject) error {
		o := c.object("")
		o.SetGenerateName(c.key + "-")
		return c.client.create(c.ctx, o)
	}},
	{name: "PUT", of: allOf(), do: func(c *ownCall, o ownObject) error {
		return c.client.update(c.ctx, withLabel(o, "x", c.text()))
	}},
	{name: "PUT that changes nothing", of: allOf(), do: func(c *ownCall, o ownObject) error {
		return c.client.update(c.ctx, o)
	}},
	{name: "PUT at an older version", of: allOf(), do: func(c *ownCall, o ownObject) error {
		o = withLabel(o, "x", c.text())
		o.SetResourceVersion("1")
		return c.client.update(c.ctx, o)
	}},
	{name: "merge patch", of: allOf(), do: func(c *ownCall, o ownObject) error {
		return c.merge(o, `{"metadata":{"labels":{"x":"`+c.text()+`"}}}`)
	}},
	{name: "merge patch that changes nothing", of: allOf(), do: func(c *ownCall, o ownObject) error {
		return c.merge(o, `{}`)
	}},
	{name: "dry run of a merge patch", of: allOf(), do: func(c *ownCall, o ownObject) error {
		return c.client.patch(c.ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}},
	{name: "JSON patch", of: allOf(), do: func(c *ownCall, o ownObject) error {
		return c.jsonPatch(o, `[{"op":"add","path":"/metadata/labels/x","value":"`+c.text()+`"}]`)
	}},
	{name: "apply", of: isLive, do: func(c *ownCall, o ownObject) error {
		return c.client.patch(c.ctx, o.GetName(), types.ApplyPatchType,
			fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"x":%q}}}`,
				o.GetAPIVersion(), o.GetKind(), o.GetName(), c.text()),
			metav1.PatchOptions{FieldManager: "own", Force: new(true)})
	}},
	{name: "apply what does not exist", do: func(c *ownCall, _ ownObject) error {
		o := c.object(c.key + "-" + c.text())
		data, err := json.Marshal(o)
		if err != nil {
			return err
		}
		return c.client.patch(c.ctx, o.GetName(), types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: "own", Force: new(true)})
	}},
	{name: "status", kinds: withStatus, of: allOf(), do: func(c *ownCall, o ownObject) error {
		body := map[string]string{"deployments": `{"replicas":%d}`, "things": `{"replicas":%d}`,
			"pods": `{"message":"%d"}`}[c.kind.name]
		return c.client.patch(c.ctx, o.GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"status":`+body+`}`, c.random.IntN(1000)), metav1.PatchOptions{}, "status")
	}},
	{name: "into the selector", of: func(o ownObject) bool { return o.GetLabels()["in"] == "" },
		do: func(c *ownCall, o ownObject) error {
			return c.merge(o, `{"metadata":{"labels":{"in":"yes"}}}`)
		}},
	{name: "out of the selector", of: func(o ownObject) bool { return o.GetLabels()["in"] != "" },
		do: func(c *ownCall, o ownObject) error {
			return c.merge(o, `{"metadata":{"labels":{"in":null}}}`)
		}},
	{name: "into the selector and out of it in one call",
		of: func(o ownObject) bool { return o.GetLabels()["in"] == "" },
		do: func(c *ownCall, o ownObject) error {
			if err := c.merge(o, `{"metadata":{"labels":{"in":"yes"}}}`); err != nil {
				return err
			}
			return c.merge(o, `{"metadata":{"labels":{"in":null}}}`)
		}},
}, ownDeletions, ownFinalizers, ownSubresources)

var ownDeletions = []ownWrite{
	{name: "DELETE", of: isDeletable, do: func(c *ownCall, o ownObject) error {
		return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{})
	}},
	{name: "DELETE of one UID", of: isDeletable, do: func(c *ownCall, o ownObject) error {
		return c.client.remove(c.ctx, o.GetName(), *metav1.NewPreconditionDeleteOptions(string(o.GetUID())))
	}},
	{name: "DELETE of another UID", of: isLive, do: func(c *ownCall, o ownObject) error {
		return c.client.remove(c.ctx, o.GetName(), *metav1.NewPreconditionDeleteOptions("other"))
	}},
	{name: "DELETE with a policy", of: isDeletable, do: func(c *ownCall, o ownObject) error {
		policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
			metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
		return c.client.remove(c.ctx, o.GetName(),
			metav1.DeleteOptions{PropagationPolicy: &policies[c.random.IntN(len(policies))]})
	}},
	{name: "DELETE without a grace period", kinds: notPods, of: isDeletable, do: (*ownCall).removeNow},
	{name: "DELETE of what a finalizer keeps", of: allOf(isLive, isKept), do: (*ownCall).removeNow},
	{name: "DELETE once more", of: allOf(isTerminating, isKept), do: func(c *ownCall, o ownObject) error {
		return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{})
	}},
	{name: "DELETE of a pod that does not run", kinds: onlyPods, of: isPodGoneAtOnce,
		do: func(c *ownCall, o ownObject) error {
			return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{})
		}},
	{name: "DELETE without a grace period of a live pod", kinds: onlyPods,
		of: allOf(isLive, isNot(isKept)), do: (*ownCall).removeNow},
	{name: "DELETE without a grace period of a terminating pod", kinds: onlyPods,
		of: allOf(isInGrace, isNot(isKept)), do: (*ownCall).removeNow},
	{name: "DELETE and create under the same name", kinds: notPods, of: isDeletable, do: (*ownCall).replace},
	{name: "DELETE of a pod, and create under the same name", kinds: onlyPods, of: allOf(isNot(isKept)),
		do: (*ownCall).replace},
	{name: "delete the collection", kinds: notPods, of: isDeletable,
		do: func(c *ownCall, _ ownObject) error {
			return c.client.removeAll(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "key=" + c.key})
		}},
	{name: "delete the collection of pods", kinds: onlyPods, of: allOf(isLive, isNot(isKept)),
		do: func(c *ownCall, _ ownObject) error {
			return c.client.removeAll(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "key=" + c.key})
		}},
	{name: "delete the collection of terminating pods without a grace period", kinds: onlyPods,
		of: allOf(isInGrace, isNot(isKept)), do: func(c *ownCall, _ ownObject) error {
			return c.client.removeAll(c.ctx, metav1.DeleteOptions{GracePeriodSeconds: &noGrace},
				metav1.ListOptions{LabelSelector: "key=" + c.key})
		}},
}

func (c *ownCall) removeNow(o ownObject) error {
	return c.client.remove(c.ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &noGrace})
}

func (c *ownCall) replace(o ownObject) error {
	if err := c.removeNow(o); err != nil {
		return err
	}
	return c.client.create(c.ctx, c.object(o.GetName()))
}

var ownFinalizers = []ownWrite{
	{name: "finalizer added", of: allOf(isLive, isNot(isKept)), do: func(c *ownCall, o ownObject) error {
		return c.merge(o, `{"metadata":{"finalizers":["`+ownFinalizer+`"]}}`)
	}},
	{name: "two finalizers added", of: allOf(isLive, isNot(isKept)), do: func(c *ownCall, o ownObject) error {
		return c.merge(o, `{"metadata":{"finalizers":["`+ownFinalizer+`","`+ownFinalizer+`2"]}}`)
	}},
	{name: "finalizers of a live object removed", of: allOf(isLive, isKept),
		do: func(c *ownCall, o ownObject) error {
			return c.merge(o, `{"metadata":{"finalizers":null}}`)
		}},
	{name: "finalizer removed, not the last", of: func(o ownObject) bool {
		return isTerminating(o) && len(o.GetFinalizers()) > 1
	}, do: func(c *ownCall, o ownObject) error {
		return c.jsonPatch(o, `[{"op":"remove","path":"/metadata/finalizers/0"}]`)
	}},
	{name: "last finalizer removed in the grace period", kinds: onlyPods, of: allOf(isInGrace, isKept),
		do: func(c *ownCall, o ownObject) error {
			return c.merge(o, `{"metadata":{"finalizers":null}}`)
		}},
	{name: "last finalizer removed by PUT", of: isKeptByOne,
		do: func(c *ownCall, o ownObject) error {
			o = o.DeepCopy()
			o.SetFinalizers(nil)
			return c.client.update(c.ctx, o)
		}},
	{name: "last finalizer removed by a merge patch", of: isKeptByOne,
		do: func(c *ownCall, o ownObject) error {
			return c.merge(o, `{"metadata":{"finalizers":null}}`)
		}},
	{name: "last finalizer removed by a JSON patch", of: isKeptByOne,
		do: func(c *ownCall, o ownObject) error {
			return c.jsonPatch(o, `[{"op":"remove","path":"/metadata/finalizers/0"}]`)
		}},
	{name: "last finalizer removed, and created under the same name", of: isKeptByOne,
		do: func(c *ownCall, o ownObject) error {
			if err := c.merge(o, `{"metadata":{"finalizers":null}}`); err != nil {
				return err
			}
			return c.client.create(c.ctx, c.object(o.GetName()))
		}},
}

var ownSubresources = []ownWrite{
	{name: "scale by a merge patch", kinds: withScale, of: allOf(),
		do: func(c *ownCall, o ownObject) error {
			return c.kind.dynamic.patch(c.ctx, o.GetName(), types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, c.random.IntN(1000)), metav1.PatchOptions{}, "scale")
		}},
	{name: "scale by PUT", kinds: []string{"deployments"}, of: allOf(),
		do: func(c *ownCall, o ownObject) error {
			_, err := c.typed.AppsV1().Deployments(c.namespace).UpdateScale(c.ctx, o.GetName(), &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: o.GetName()},
				Spec:       autoscalingv1.ScaleSpec{Replicas: int32(c.random.IntN(1000))},
			}, metav1.UpdateOptions{})
			return err
		}},
	{name: "binding", notWaitedFor: true, kinds: onlyPods, of: isUnbound,
		do: func(c *ownCall, o ownObject) error {
			return c.typed.CoreV1().Pods(c.namespace).Bind(c.ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: o.GetName()},
				Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
			}, metav1.CreateOptions{})
		}},
	{name: "eviction", notWaitedFor: true, kinds: onlyPods, of: isLive,
		do: func(c *ownCall, o ownObject) error {
			return c.typed.CoreV1().Pods(c.namespace).EvictV1(c.ctx,
				&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: o.GetName()}})
		}},
}

func (c *ownCall) create(ownObject) error {
	return c.client.create(c.ctx, c.object(c.key+"-"+c.text()))
}

// text is a label or a part of a name that has most likely not been there before.
func (c *ownCall) text() string { return fmt.Sprintf("%08x", c.random.Uint32()) }

// object makes an object of the kind. Some pods have a node, and some objects are in the selector.
func (c *ownCall) object(name string) ownObject {
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

func withLabel(o ownObject, name, value string) ownObject {
	o = o.DeepCopy()
	labels := o.GetLabels()
	labels[name] = value
	o.SetLabels(labels)
	return o
}

func (c *ownCall) merge(o ownObject, body string) error {
	return c.client.patch(c.ctx, o.GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{})
}

func (c *ownCall) jsonPatch(o ownObject, body string) error {
	return c.client.patch(c.ctx, o.GetName(), types.JSONPatchType, []byte(body), metav1.PatchOptions{})
}
