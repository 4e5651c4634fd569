package informer_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

func TestABindingAnswersWithNoObject(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	here := resource[*corev1.Pod](t, server.Config(), pods).In("default")
	_, err := here.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, bind(t, here, "web"))
	bound, err := here.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "node", bound.Spec.NodeName)
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
	d.Status.ObservedGeneration, d.ResourceVersion = 7, "" // on a real server a controller changes it meanwhile
	d, err = deployed.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(7), d.Status.ObservedGeneration)
	scales, err := informer.NewSubresource[*autoscalingv1.Scale](deployed, "scale")
	require.NoError(t, err)
	s, err := scales.Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	s.Spec.Replicas, s.ResourceVersion = 3, ""
	s, err = scales.Update(ctx, "web", s, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(3), s.Spec.Replicas)
	require.NoError(t, deployed.Delete(ctx, "web", metav1.DeleteOptions{}))
}

var gadgets = schema.GroupVersionResource{Group: "informer.thermostat.example", Version: "v1", Resource: "gadgets"}

// gadgetConfig is an apply configuration of one's own, without apiVersion and kind.
type gadgetConfig struct {
	Metadata map[string]string `json:"metadata"`
	Spec     map[string]any    `json:"spec,omitempty"`
	Status   map[string]any    `json:"status,omitempty"`
}

func (*gadgetConfig) IsApplyConfiguration() {}

func TestResourceOfOnesOwnType(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{CRDs: []string{"testdata"}})
	ownType(t, server.Config(), "default")
	otherForms(t, server.Config(), "default")
	wrongScope(t, server.Config(), "default")
}

// ownType is what a controller does with custom resources of a Go type.
func ownType(t *testing.T, cfg *rest.Config, namespace string) {
	ctx := t.Context()
	client := resource[*gadget](t, cfg, gadgets).In(namespace)
	sent := &gadget{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	sent.Spec.Size = 1
	g, err := client.Create(ctx, sent, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, metav1.TypeMeta{APIVersion: "informer.thermostat.example/v1", Kind: "Gadget"}, g.TypeMeta)
	g.Status.Ready = true
	g, err = client.UpdateStatus(ctx, g, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.True(t, g.Status.Ready)
	g.Spec.Size = 2
	g, err = client.Update(ctx, g, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(2), g.Spec.Size)

	owned := metav1.ApplyOptions{FieldManager: "test", Force: true}
	config := &gadgetConfig{Metadata: map[string]string{"name": "a"}, Spec: map[string]any{"size": 3}}
	g, err = client.Apply(ctx, config, owned)
	require.NoError(t, err)
	require.Equal(t, int32(3), g.Spec.Size)
	config = &gadgetConfig{Metadata: config.Metadata, Status: map[string]any{"size": 3}}
	g, err = client.ApplyStatus(ctx, config, owned)
	require.NoError(t, err)
	require.Equal(t, int32(3), g.Status.Size)
	require.True(t, g.Status.Ready)
	_, err = client.Apply(ctx, informer.ApplyUnstructured(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "b", "namespace": namespace}, "spec": map[string]any{"size": int64(4)}}}),
		owned)
	require.NoError(t, err)

	scales, err := informer.NewSubresource[*autoscalingv1.Scale](resource[*gadget](t, cfg, gadgets), "scale")
	require.NoError(t, err)
	scale, err := scales.In(namespace).Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"replicas":5}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(5), scale.Spec.Replicas)
	scale.Spec.Replicas = 6
	_, err = scales.In(namespace).Update(ctx, "a", scale, metav1.UpdateOptions{})
	require.NoError(t, err)

	followed := follow(t, client, informer.Options[*gadget]{})
	require.Equal(t, 2, followed.Len())
	held, ok := followed.Get(informer.Key{Namespace: namespace, Name: "a"})
	require.True(t, ok)
	require.Equal(t, int32(6), held.Spec.Size)
	require.Equal(t, g.TypeMeta, held.TypeMeta, "so Events and owner references need no scheme")
}

// otherForms are the same objects, as others see them.
func otherForms(t *testing.T, cfg *rest.Config, namespace string) {
	ctx := t.Context()
	client := resource[*unstructured.Unstructured](t, cfg, gadgets).In(namespace)
	u, err := client.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "Gadget", u.GetKind())
	u.SetLabels(map[string]string{"app": "web"})
	unstructured.RemoveNestedField(u.Object, "apiVersion")
	u, err = client.Update(ctx, u, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "web", u.GetLabels()["app"])
	metadata := resource[*metav1.PartialObjectMetadata](t, cfg, gadgets).In(namespace)
	m, err := metadata.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"db"}}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, "db", m.Labels["app"])
	list, err := metadata.List(ctx, metav1.ListOptions{LabelSelector: "app=db"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	_, err = metadata.Update(ctx, m, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "the client has the metadata only")

	other, err := informer.NewResource[*gadget](cfg, gadgets, informer.ResourceOptions{Kind: "Widget"})
	require.NoError(t, err)
	_, err = other.In(namespace).Get(ctx, "a", metav1.GetOptions{})
	require.ErrorContains(t, err, "the server answers with objects of kind Gadget")
	_, err = other.In(namespace).List(ctx, metav1.ListOptions{})
	require.ErrorContains(t, err, "the server answers with objects of kind Gadget")
}

// wrongScope asks with a namespace for what has none, and the other way round.
func wrongScope(t *testing.T, cfg *rest.Config, namespace string) {
	ctx := t.Context()
	own, maps := resource[*gadget](t, cfg, gadgets), resource[*corev1.ConfigMap](t, cfg, configMaps)
	nodes := resource[*corev1.Node](t, cfg, corev1.SchemeGroupVersion.WithResource("nodes")).In(namespace)
	collection := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	for what, c := range map[string]struct {
		err error
		is  func(error) bool
	}{
		"get":     {second(own.Get(ctx, "a", metav1.GetOptions{})), apierrors.IsNotFound},
		"create":  {second(own.Create(ctx, &gadget{}, metav1.CreateOptions{})), apierrors.IsNotFound},
		"get map": {second(maps.Get(ctx, "a", metav1.GetOptions{})), apierrors.IsNotFound},
		"create map": {second(maps.Create(ctx, &corev1.ConfigMap{}, metav1.CreateOptions{})),
			apierrors.IsMethodNotSupported},
		"delete maps": {collection, apierrors.IsMethodNotSupported},
	} {
		require.True(t, c.is(c.err), "%s: %v", what, c.err)
		require.IsType(t, &apierrors.StatusError{}, c.err)
		require.ErrorContains(t, c.err, "or its objects are in namespaces, and have a client with In(namespace)", what)
	}
	_, err := nodes.Get(ctx, "a", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	require.ErrorContains(t, err, "the server does not have nodes of v1; or its objects are cluster-scoped, and "+
		"have a "+
		"client without In(namespace)")
	_, err = nodes.List(ctx, metav1.ListOptions{})
	require.ErrorContains(t, err, "or its objects are cluster-scoped")
}

// What can be found out without a request is an error before there is one.
func TestResourceRefusesMistakes(t *testing.T) {
	ctx := t.Context()
	cfg := &rest.Config{Host: "http://server", Transport: unreachable{t}}
	all := resource[*corev1.ConfigMap](t, cfg, configMaps)
	maps := all.In("here")
	named := func(namespace, name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	typed := named("", "a")
	typed.Kind = "Secret"
	var none *informer.Resource[*corev1.ConfigMap]
	owned := metav1.ApplyOptions{FieldManager: "test"}
	for want, err := range map[string]error{
		"create configmaps in here: the object is nil": second(maps.Create(ctx, nil, metav1.CreateOptions{})),
		"create configmaps in here a: the object is in namespace there, and the client is for namespace here": second(
			maps.Create(ctx, named("there", "a"), metav1.CreateOptions{})),
		`create configmaps a: the object is in namespace there, and the client is for no namespace: use that of ` +
			`In("there")`: second(
			all.Create(ctx, named("there", "a"), metav1.CreateOptions{})),
		"get configmaps in here: the name is empty":    second(maps.Get(ctx, "", metav1.GetOptions{})),
		"update configmaps in here: the name is empty": second(maps.Update(ctx, named("", ""), metav1.UpdateOptions{})),
		"the object is of kind Secret, and the client for objects of kind ConfigMap": second(maps.Update(ctx, typed,
			metav1.UpdateOptions{})),
		`"A B" cannot be the name of a namespace`: second(all.In("A B").Get(ctx, "a", metav1.GetOptions{})),
		`delete all configmaps in A B`: all.In("A B").DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{}),
		"informer *v1.ConfigMap: list configmaps in A B": second(informer.New(all.In("A B"),
			informer.Options[*corev1.ConfigMap]{})),
		"the patch type is empty": second(maps.Patch(ctx, "a", "", nil, metav1.PatchOptions{})),
		"subresource scale does not answer with the object": second(maps.Patch(ctx, "a", types.MergePatchType, nil,
			metav1.PatchOptions{}, "scale")),
		"the configuration is nil": second(maps.Apply(ctx, informer.ApplyUnstructured(nil), owned)),
		"ApplyOptions.FieldManager is empty": second(maps.Apply(ctx, corev1ac.ConfigMap("a", "here"),
			metav1.ApplyOptions{})),
		"the client for objects of kind Config": second(maps.Apply(ctx, corev1ac.Secret("a", "here"), owned)),
		"apply configmaps in here a: the object is in namespace there": second(maps.Apply(ctx,
			corev1ac.ConfigMap("a", "there"),
			owned)),
		"apply configmaps in here: the name is empty": second(maps.Apply(ctx, corev1ac.ConfigMap("", "here"), owned)),
		"the Resource is nil or empty":                second(none.In("x").Get(ctx, "a", metav1.GetOptions{})),
		"the client is nil": second(informer.New(none,
			informer.Options[*corev1.ConfigMap]{})),
		`NewSubresource "status" of configmaps`: second(informer.NewSubresource[*autoscalingv1.Scale](all,
			"status")),
		`NewSubresource "" of configmaps`: second(informer.NewSubresource[*autoscalingv1.Scale](all, "")),
		"the Resource is nil": second(informer.NewSubresource[*autoscalingv1.Scale](none,
			"scale")),
	} {
		require.ErrorContains(t, err, want)
	}
}

// TestEachErrorNamesWhatWasAskedFor: some errors of servers, and of proxies before them, say nothing of it.
func TestEachErrorNamesWhatWasAskedFor(t *testing.T) {
	ctx := t.Context()
	for body, want := range map[string]string{
		`{"kind":"Status","apiVersion":"v1","status":"Failure","code":415,"reason":"UnsupportedMediaType",` +
			`"message":"the body of the request was in an unknown format"}`: " configmaps in here%s: the body of the " +
			"request was in an unknown format",
		`{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"Conflict","details":{"name":"a",` +
			`"kind":"configmaps"},"message":"Operation cannot be fulfilled on configmaps \"a\""}`: "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(body))
		}))
		defer server.Close()
		maps := resource[*corev1.ConfigMap](t, &rest.Config{Host: server.URL}, configMaps).In("here")
		bindings, err := informer.NewSubresource[*autoscalingv1.Scale](maps, "scale")
		require.NoError(t, err)
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		owned := metav1.ApplyOptions{FieldManager: "test"}
		for verb, err := range map[string]error{
			"get":          second(maps.Get(ctx, "a", metav1.GetOptions{})),
			"create":       second(maps.Create(ctx, o, metav1.CreateOptions{})),
			"update":       second(maps.Update(ctx, o, metav1.UpdateOptions{})),
			"patch":        second(maps.Patch(ctx, "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})),
			"apply":        second(maps.Apply(ctx, corev1ac.ConfigMap("a", "here"), owned)),
			"delete":       maps.Delete(ctx, "a", metav1.DeleteOptions{}),
			"delete all":   maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
			"get scale of": second(bindings.Get(ctx, "a", metav1.GetOptions{})),
		} {
			text := `Operation cannot be fulfilled on configmaps "a"`
			if want != "" {
				name := " a"
				if verb == "delete all" {
					name = ""
				}
				text = verb + fmt.Sprintf(want, name)
			}
			require.EqualError(t, err, text)
			require.Equal(t, want == "", apierrors.IsConflict(err))
			require.Equal(t, want != "", apierrors.IsUnsupportedMediaType(err))
		}
	}
}

type unreachable struct{ t *testing.T }

func (u unreachable) RoundTrip(r *http.Request) (*http.Response, error) {
	u.t.Errorf("%s %s was sent", r.Method, r.URL)
	return nil, errors.New("unreachable")
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
		"no host":   {newError[*corev1.Pod](&rest.Config{}, pods), "the rest.Config has no Host"},
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
		"promoted copy": {newError[*embedding](cfg, gvr("db.io", "v1", "x")),
			"DeepCopyObject of a *informer_test.embedding " +
				"returns a *v1.Pod: generate one for informer_test.embedding itself"},
		"no inline":   {newError[*untagged](cfg, gvr("db.io", "v1", "x")), `embed metav1.TypeMeta with the tag`},
		"no metadata": {newError[*untagged](cfg, gvr("db.io", "v1", "x")), `embed metav1.ObjectMeta with the tag`},
		"panics": {newError[*panicking](cfg, gvr("db.io", "v1", "x")),
			"a method of an empty *informer_test.panicking: panic"},
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
		Size int32 `json:"size,omitempty"`
	} `json:"spec,omitempty"`
	Status struct {
		Size  int32 `json:"size,omitempty"`
		Ready bool  `json:"ready,omitempty"`
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
