package informer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

var (
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// Every verb, in JSON and in protobuf.
func TestResourceHasEveryVerb(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			cfg := rest.CopyConfig(server.Config())
			cfg.ContentType = contentType
			everyVerb(t, cfg, "default")
			statusAndScale(t, cfg, "default")
		})
	}
}

func everyVerb(t *testing.T, cfg *rest.Config, namespace string) {
	ctx := t.Context()
	maps := resource[*corev1.ConfigMap](t, cfg, configMaps).In(namespace)
	sent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "verbs"}},
		Data: map[string]string{"k": "1"}}
	m, err := maps.Create(ctx, sent, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, namespace, m.Namespace)
	require.NotEmpty(t, m.UID)
	require.Empty(t, sent.Namespace+sent.Kind, "what was sent may be shared")
	require.Equal(t, metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, m.TypeMeta)
	_, err = maps.Create(ctx, sent, metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)

	m.Data["k"] = "2"
	updated, err := maps.Update(ctx, m, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "2", updated.Data["k"])
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	m, err = maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"3"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, "3", m.Data["k"])
	m, err = maps.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "3", m.Data["k"])
	m, err = maps.Apply(ctx, corev1ac.ConfigMap("b", namespace).WithLabels(map[string]string{"app": "verbs"}).
		WithData(map[string]string{"k": "1"}), metav1.ApplyOptions{FieldManager: "test"})
	require.NoError(t, err)
	require.Equal(t, "1", m.Data["k"])

	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "app=verbs"})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	require.Equal(t, "a", list.Items[0].Name)
	w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "app=verbs", ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	require.NoError(t, maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(
		string(list.Items[0].UID))}))
	e := <-w.ResultChan()
	require.Equal(t, "DELETED a", string(e.Type)+" "+e.Object.(*corev1.ConfigMap).Name)
	w.Stop()
	require.NoError(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
		LabelSelector: "app=verbs"}))
	_, err = maps.Get(ctx, "b", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.IsType(t, &apierrors.StatusError{}, err)

}

// statusAndScale are two subresources of a Deployment: one answers with the Deployment, one with another type.
func statusAndScale(t *testing.T, cfg *rest.Config, namespace string) {
	ctx := t.Context()
	deployed := resource[*appsv1.Deployment](t, cfg, deployments).In(namespace)
	d, err := deployed.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	d.Status.ObservedGeneration = 7
	d, err = deployed.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(7), d.Status.ObservedGeneration)
	scales, err := informer.NewSubresource[*autoscalingv1.Scale](deployed, "scale")
	require.NoError(t, err)
	s, err := scales.Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	s.Spec.Replicas = 3
	s, err = scales.Update(ctx, "web", s, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(3), s.Spec.Replicas)
	require.NoError(t, deployed.Delete(ctx, "web", metav1.DeleteOptions{}))
}

// Mistakes are found before the first request, and all of them at once.
func TestNewResourceSaysWhatIsWrong(t *testing.T) {
	cfg := &rest.Config{Host: "http://server"}
	gvr := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"no config": {newError[*corev1.Pod](nil, pods), "the rest.Config is nil"},
		"no host":   {newError[*corev1.Pod](&rest.Config{}, pods), "Host of the rest.Config is empty"},
		"no QPS":    {newError[*corev1.Pod](&rest.Config{Host: "h", Burst: 9}, pods), "Burst 9 and no QPS"},
		"bad TLS": {newError[*corev1.Pod](&rest.Config{Host: "https://h", TLSClientConfig: rest.TLSClientConfig{
			CAData: []byte("none")}}, pods), "NewResource of pods: "},
		"all at once":   {newError[*gadget](nil, gvr("core", "", "")), "the resource is empty"},
		"no version":    {newError[*gadget](cfg, gvr("db.io", "", "gadgets")), `"" cannot be a version`},
		"two in one":    {newError[*gadget](cfg, gvr("", "db.io/v1", "gadgets")), `"db.io/v1" cannot be a version`},
		"core":          {newError[*corev1.Pod](cfg, gvr("core", "v1", "pods")), "there is no group core"},
		"the kind":      {newError[*gadget](cfg, gvr("db.io", "v1", "Gadget")), `"Gadget" cannot be a resource`},
		"a subresource": {newError[*corev1.Pod](cfg, gvr("", "v1", "pods/eviction")), "NewSubresource makes a client"},
		"another group": {newError[*appsv1.Deployment](cfg, gvr("", "v1", "deployments")),
			"the resource is one of core/v1, and *v1.Deployment is of apps/v1"},
		"another version": {newError[*appsv1.Deployment](cfg, gvr("apps", "v1beta1", "deployments")),
			"the resource is one of apps/v1beta1"},
		"another resource": {newError[*corev1.Pod](cfg, gvr("", "v1", "services")),
			"objects of type *v1.Pod are pods, not services"},
		"no struct": {newError[informer.Object](cfg, pods), "informer.Object is no pointer to a struct"},
		"promoted copy": {newError[*embedding](cfg, gvr("db.io", "v1", "x")), "DeepCopyObject of a *informer_test.embedding " +
			"returns a *v1.Pod: generate one for informer_test.embedding itself"},
		"no inline":   {newError[*untagged](cfg, gvr("db.io", "v1", "x")), `embed metav1.TypeMeta with the tag`},
		"no metadata": {newError[*untagged](cfg, gvr("db.io", "v1", "x")), `embed metav1.ObjectMeta with the tag`},
		"panics":      {newError[*panicking](cfg, gvr("db.io", "v1", "x")), "a method of an empty *informer_test.panicking: panic"},
		"kind of unstructured": {second(informer.NewResource[*unstructured.Unstructured](cfg, pods,
			informer.ResourceOptions{Kind: "Pod"})), "carries its kind"},
	} {
		require.ErrorContains(t, c.err, c.text, name)
	}
	all := newError[*gadget](nil, gvr("core", "", "")).Error()
	require.Equal(t, 3, strings.Count(all, "\n"), all)
	for name, err := range map[string]error{
		"roles":    newError[*rbacv1.Role](cfg, gvr("rbac.authorization.k8s.io", "v1", "roles")),
		"flows":    newError[*flowv1.FlowSchema](cfg, gvr("flowcontrol.apiserver.k8s.io", "v1", "flowschemas")),
		"metadata": newError[*metav1.PartialObjectMetadata](cfg, gvr("apps", "v1", "deployments")),
		"own":      newError[*gadget](cfg, gvr("db.io", "v1", "gadgets")),
	} {
		require.NoError(t, err, name)
	}
}

func newError[T informer.Object](cfg *rest.Config, gvr schema.GroupVersionResource) error {
	return second(informer.NewResource[T](cfg, gvr, informer.ResourceOptions{}))
}

func second[T any](_ T, err error) error { return err }

type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size int `json:"size,omitempty"`
	} `json:"spec,omitempty"`
	Status struct {
		Ready bool `json:"ready,omitempty"`
	} `json:"status,omitempty"`
}

func (g *gadget) DeepCopyObject() runtime.Object {
	c := *g
	g.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// embedding has the DeepCopyObject of a Pod.
type embedding struct {
	corev1.Pod `json:",inline"`
	More       string
}

type untagged struct {
	metav1.TypeMeta   `json:"type"`
	metav1.ObjectMeta `json:"meta"`
}

func (u *untagged) DeepCopyObject() runtime.Object { return &untagged{} }

type panicking struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

func (p *panicking) DeepCopyObject() runtime.Object { panic("always") }
