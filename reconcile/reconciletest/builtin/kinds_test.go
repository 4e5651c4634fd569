package builtin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapply "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internalcore "k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/yaml"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func ingress(name string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"},
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "s",
				Port: networkingv1.ServiceBackendPort{Number: 80}}}},
	}
}

// TestTheSameSeedGivesTheSame runs two servers, each in a bubble of its own, with kinds that the first one has made.
func TestTheSameSeedGivesTheSame(t *testing.T) {
	var made []*networkingv1.Ingress
	var kinds []reconciletest.Kind
	for n := range 2 {
		synctest.Test(t, func(t *testing.T) {
			var err error
			if n == 0 {
				kinds, err = makeKinds()
				require.NoError(t, err)
			}
			server := reconciletest.NewServer(t, reconciletest.Options{Kinds: kinds, Seed: 7})
			ingresses := kubernetes.NewForConfigOrDie(server.Config()).NetworkingV1().Ingresses("default")
			w, err := ingresses.Watch(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			defer w.Stop()
			time.Sleep(time.Minute)
			o, err := ingresses.Create(t.Context(), ingress("a"), metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, o, (<-w.ResultChan()).Object)
			require.Equal(t, time.Now().Unix(), o.CreationTimestamp.Unix())
			made = append(made, o)
		})
	}
	require.Equal(t, made[0], made[1])
	require.NotEmpty(t, made[0].UID)
}

func TestADryRunStoresNothing(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	ingresses := kubernetes.NewForConfigOrDie(server.Config()).NetworkingV1().Ingresses("default")
	dry := []string{metav1.DryRunAll}
	_, err := ingresses.Create(t.Context(), ingress("a"), metav1.CreateOptions{DryRun: dry})
	require.NoError(t, err)
	require.Empty(t, reconciletest.List[*networkingv1.Ingress](server, "ingresses", "default"))

	o, err := ingresses.Create(t.Context(), ingress("a"), metav1.CreateOptions{})
	require.NoError(t, err)
	o.Spec.IngressClassName = &o.Name
	changed, err := ingresses.Update(t.Context(), o, metav1.UpdateOptions{DryRun: dry})
	require.NoError(t, err)
	require.EqualValues(t, 2, changed.Generation)
	stored, err := ingresses.Get(t.Context(), o.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, stored.Generation)
}

// TestTheLastFinalizerGoes: the update that takes it off answers with the object as it would have been, and removes it.
// A dry run does not.
func TestTheLastFinalizerGoes(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	ingresses := kubernetes.NewForConfigOrDie(server.Config()).NetworkingV1().Ingresses("default")
	o := ingress("a")
	o.Finalizers = []string{"example.com/f"}
	o, err := ingresses.Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, ingresses.Delete(t.Context(), o.Name, metav1.DeleteOptions{}))
	o, err = ingresses.Get(t.Context(), o.Name, metav1.GetOptions{})
	require.NoError(t, err)
	o.Finalizers = nil
	for _, options := range []metav1.UpdateOptions{{DryRun: []string{metav1.DryRunAll}}, {}} {
		_, err = ingresses.Get(t.Context(), o.Name, metav1.GetOptions{})
		require.NoError(t, err)
		last, err := ingresses.Update(t.Context(), o, options)
		require.NoError(t, err)
		require.Empty(t, last.Finalizers)
		require.NotNil(t, last.DeletionTimestamp)
	}
	_, err = ingresses.Get(t.Context(), o.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// withoutFields is a registry that cannot say what field selectors may name.
type withoutFields struct{ reconciletest.Registry }

func (withoutFields) Fields(runtime.Object) fields.Set { return nil }

func TestARegistryMayHaveNoFields(t *testing.T) {
	kind := kindNamed(t, "ingresses")
	kind.Registry = withoutFields{kind.Registry}
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: []reconciletest.Kind{kind}})
	ingresses := kubernetes.NewForConfigOrDie(server.Config()).NetworkingV1().Ingresses("default")
	o, err := ingresses.Create(t.Context(), ingress("a"), metav1.CreateOptions{})
	require.NoError(t, err)
	list, err := ingresses.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + o.Name})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
}

// TestARaceIsLost lets a client write an object that another one has changed.
func TestARaceIsLost(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	ingresses := kubernetes.NewForConfigOrDie(server.Config()).NetworkingV1().Ingresses("default")
	was, err := ingresses.Create(t.Context(), ingress("a"), metav1.CreateOptions{})
	require.NoError(t, err)
	is := was.DeepCopy()
	is.Labels = map[string]string{"a": "b"}
	_, err = ingresses.Update(t.Context(), is, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = ingresses.Update(t.Context(), is, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = ingresses.Create(t.Context(), &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: was.Name},
		Spec: was.Spec}, metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
}

func TestFieldSelectorsOfPods(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	pods := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n",
		InitContainers: []corev1.Container{{Name: "i", Image: "i"}},
		Containers:     []corev1.Container{{Name: "c", Image: "c"}}}}
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	for selector, n := range map[string]int{"spec.nodeName=n": 1, "spec.nodeName=m": 0, "status.phase=Pending": 1} {
		list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		require.NoError(t, err)
		require.Len(t, list.Items, n, selector)
	}
}

// TestAPodTakesTimeToGo, as long as it says, if it runs on a node.
func TestAPodTakesTimeToGo(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	pods := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n",
		Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, pods.Delete(t.Context(), "p", metav1.DeleteOptions{}))
	marked, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 30, *marked.DeletionGracePeriodSeconds)
	require.NoError(t, pods.Delete(t.Context(), "p", *metav1.NewDeleteOptions(0)))
	_, err = pods.Get(t.Context(), "p", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// TestAVolumeGoesWhenNothingIsBoundToIt: admission gives it a finalizer, which the garbage collector takes off.
func TestAVolumeGoesWhenNothingIsBoundToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
		volumes := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().PersistentVolumes()
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v"}}}}
		v, err := volumes.Create(t.Context(), v, metav1.CreateOptions{})
		require.NoError(t, err)
		v.Status.Phase = corev1.VolumeBound
		v, err = volumes.UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, volumes.Delete(t.Context(), "v", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		v, err = volumes.Get(t.Context(), "v", metav1.GetOptions{})
		require.NoError(t, err)
		v.Status.Phase = corev1.VolumeReleased
		_, err = volumes.UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = volumes.Get(t.Context(), "v", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

// TestScales: the light server's Scale reads and writes the objects of registries.
func TestScales(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	var warned warnings
	config := server.Config()
	config.WarningHandler = &warned
	controllers := kubernetes.NewForConfigOrDie(config).CoreV1().ReplicationControllers("default")
	_, err := controllers.Create(t.Context(), &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: corev1.ReplicationControllerSpec{Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{NodeSelector: map[string]string{"beta.kubernetes.io/arch": "amd64"},
				Containers: []corev1.Container{{Name: "c", Image: "c"}}}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	scale, err := controllers.GetScale(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, scale.Spec.Replicas)
	require.Equal(t, "a=b", scale.Status.Selector)
	scale.Spec.Replicas = 3
	warned = nil
	_, err = controllers.UpdateScale(t.Context(), "c", scale, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Len(t, warned, 1, "of the object's registry")
	require.Contains(t, warned[0], "spec.template.spec.nodeSelector[beta.kubernetes.io/arch]: deprecated")
	o, err := controllers.Get(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 3, *o.Spec.Replicas)
	require.EqualValues(t, 2, o.Generation)
}

// warnings are those that a client was given.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func TestWhatIsLeftOutIsRefused(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	pods := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().Pods("default")
	_, err := pods.GetLogs("p", &corev1.PodLogOptions{}).Do(t.Context()).Raw()
	requireNotModelled(t, err)
}

// TestEventsOfTheNewerGroup are stored, and checked as that group asks for. A program writes them that records Events
// by k8s.io/client-go/tools/events. Those of the core group stay another kind.
func TestEventsOfTheNewerGroup(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	all := kubernetes.NewForConfigOrDie(server.Config()).EventsV1().Events("default")
	e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, EventTime: metav1.NowMicro(), Type: "Normal",
		Reason: "Made", Action: "Make", Note: "made", ReportingController: "example.com/c", ReportingInstance: "c-0",
		Regarding: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "default", Name: "a"}}
	_, err := all.Create(t.Context(), e, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = all.Patch(t.Context(), "e", types.StrategicMergePatchType, []byte(`{"series":{"count":2,`+
		`"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	stored, ok := reconciletest.Get[*eventsv1.Event](server, "events.events.k8s.io", "default", "e")
	require.True(t, ok)
	require.Equal(t, []any{"made", int32(2)}, []any{stored.Note, stored.Series.Count})
	require.Empty(t, reconciletest.List[*corev1.Event](server, "events", "default"))
	e.Name, e.EventTime = "f", metav1.MicroTime{}
	_, err = all.Create(t.Context(), e, metav1.CreateOptions{})
	require.ErrorContains(t, err, "eventTime: Required value")
}

// TestTheLightServerNamesTheModule, if it is asked for a kind that the module has.
func TestTheLightServerNamesTheModule(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	roles := kubernetes.NewForConfigOrDie(server.Config()).RbacV1().Roles("default")
	_, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}}, metav1.CreateOptions{})
	require.ErrorContains(t, err, "reconcile/reconciletest/builtin")
}

func replicaSet() *appsv1.ReplicaSet {
	labels := map[string]string{"a": "b"}
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: appsv1.ReplicaSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}}}
}

func BenchmarkNewServer(b *testing.B) {
	for name, kinds := range map[string][]reconciletest.Kind{"light": nil, "builtin": Kinds()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				server, err := reconciletest.Start(reconciletest.Options{Kinds: kinds})
				if err != nil {
					b.Fatal(err)
				}
				server.Close()
			}
		})
	}
}

// BenchmarkWrites creates a ReplicaSet that both servers have, changes it, and deletes it.
func BenchmarkWrites(b *testing.B) {
	for name, kinds := range map[string][]reconciletest.Kind{"light": nil, "builtin": Kinds()} {
		b.Run(name, func(b *testing.B) {
			server, err := reconciletest.Start(reconciletest.Options{Kinds: kinds})
			if err != nil {
				b.Fatal(err)
			}
			defer server.Close()
			config := server.Config()
			config.QPS = -1
			sets := kubernetes.NewForConfigOrDie(config).AppsV1().ReplicaSets("default")
			for b.Loop() {
				o, err := sets.Create(b.Context(), replicaSet(), metav1.CreateOptions{})
				if err == nil {
					o.Labels = map[string]string{"x": "y"}
					_, err = sets.Update(b.Context(), o, metav1.UpdateOptions{})
				}
				if err == nil {
					err = sets.Delete(b.Context(), o.Name, metav1.DeleteOptions{})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// kindNamed returns one of the kinds, by its resource.
func kindNamed(t *testing.T, resource string) reconciletest.Kind {
	for _, k := range Kinds() {
		if k.GroupVersionResource.Resource == resource {
			return k
		}
	}
	t.Fatalf("there is no kind with the resource %s", resource)
	return reconciletest.Kind{}
}

func requireNotModelled(t *testing.T, err error) {
	t.Helper()
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, http.StatusNotImplemented, status.Status().Code, "%v", err)
}

// TestWebhooksThatCannotBeAskedAreRefused: the light server asks them, and has no rules in CEL.
func TestWebhooksThatCannotBeAskedAreRefused(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	hooks := kubernetes.NewForConfigOrDie(server.Config()).AdmissionregistrationV1()
	hook := admissionregistrationv1.ValidatingWebhook{Name: "a.example.com", AdmissionReviewVersions: []string{"v1"},
		SideEffects:  new(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://example.com/x")}}
	create := func(change func(h *admissionregistrationv1.ValidatingWebhook)) error {
		changed := hook.DeepCopy()
		change(changed)
		_, err := hooks.ValidatingWebhookConfigurations().Create(t.Context(),
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{*changed}}, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, create(func(*admissionregistrationv1.ValidatingWebhook) {}))
	requireNotModelled(t, create(func(h *admissionregistrationv1.ValidatingWebhook) {
		h.AdmissionReviewVersions = []string{"v1beta1", "v1"}
	}))
	requireNotModelled(t, create(func(h *admissionregistrationv1.ValidatingWebhook) {
		h.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "false"}}
	}))
}

// TestAClassGoesWhenNothingUsesIt: see TestAVolumeGoesWhenNothingIsBoundToIt. A claim uses the class that it wants, the
// one that it has and the one that it is being given; a volume uses its own.
func TestAClassGoesWhenNothingUsesIt(t *testing.T) {
	wants := claim("c")
	wants.Spec.VolumeAttributesClassName = new("v")
	for name, test := range map[string]struct {
		claim  *corev1.PersistentVolumeClaim
		status corev1.PersistentVolumeClaimStatus
		volume *corev1.PersistentVolume
	}{
		"wanted": {claim: wants},
		"had": {claim: claim("c"), status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending,
			CurrentVolumeAttributesClassName: new("v")}},
		"on its way": {claim: claim("c"), status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending,
			ModifyVolumeStatus: &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "v",
				Status: corev1.PersistentVolumeClaimModifyVolumePending}}},
		"of a volume": {volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"},
			Spec: corev1.PersistentVolumeSpec{
				VolumeAttributesClassName: new("v"), Capacity: claim("").Spec.Resources.Requests,
				AccessModes: claim("").Spec.AccessModes, PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "h"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients := kubernetes.NewForConfigOrDie(reconciletest.NewServer(t,
					reconciletest.Options{Kinds: Kinds()}).Config())
				classes := clients.StorageV1().VolumeAttributesClasses()
				claims := clients.CoreV1().PersistentVolumeClaims("default")
				volumes := clients.CoreV1().PersistentVolumes()
				_, err := classes.Create(t.Context(), &storagev1.VolumeAttributesClass{
					ObjectMeta: metav1.ObjectMeta{Name: "v"}, DriverName: "d.example.com",
					Parameters: map[string]string{"a": "b"}}, metav1.CreateOptions{})
				require.NoError(t, err)
				if test.volume != nil {
					_, err = volumes.Create(t.Context(), test.volume, metav1.CreateOptions{})
				} else if test.claim, err = claims.Create(t.Context(), test.claim, metav1.CreateOptions{}); err == nil {
					test.claim.Status = test.status
					_, err = claims.UpdateStatus(t.Context(), test.claim, metav1.UpdateOptions{})
				}
				require.NoError(t, err)
				require.NoError(t, classes.Delete(t.Context(), "v", metav1.DeleteOptions{}))
				time.Sleep(time.Minute)
				_, err = classes.Get(t.Context(), "v", metav1.GetOptions{})
				require.NoError(t, err, "it is used")
				if test.volume != nil {
					err = volumes.Delete(t.Context(), "v", metav1.DeleteOptions{})
				} else {
					err = claims.Delete(t.Context(), "c", metav1.DeleteOptions{})
				}
				require.NoError(t, err)
				time.Sleep(time.Minute)
				_, err = classes.Get(t.Context(), "v", metav1.GetOptions{})
				require.True(t, apierrors.IsNotFound(err), "%v", err)
			})
		})
	}
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
}

// TestTheClaimOfAnEphemeralVolumeIsKept until its pod has been shut down. A claim that only has such a name is not.
func TestTheClaimOfAnEphemeralVolumeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := kubernetes.NewForConfigOrDie(reconciletest.NewServer(t,
			reconciletest.Options{Kinds: Kinds()}).Config()).CoreV1()
		ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim("").Spec}}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{"example.com/f"}},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "c"}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: ephemeral}, {Name: "w", VolumeSource: ephemeral}}}}
		pod, err := core.Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		claims := core.PersistentVolumeClaims("default")
		its, others := claim("p-v"), claim("p-w")
		its.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod,
			corev1.SchemeGroupVersion.WithKind("Pod"))}
		for _, c := range []*corev1.PersistentVolumeClaim{its, others} {
			_, err := claims.Create(t.Context(), c, metav1.CreateOptions{})
			require.NoError(t, err)
			require.NoError(t, claims.Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
		}
		time.Sleep(time.Minute)
		_, err = claims.Get(t.Context(), "p-v", metav1.GetOptions{})
		require.NoError(t, err, "the pod uses it")
		_, err = claims.Get(t.Context(), "p-w", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.NoError(t, core.Pods("default").Delete(t.Context(), "p", *metav1.NewDeleteOptions(0)))
		time.Sleep(time.Minute)
		_, err = claims.Get(t.Context(), "p-v", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		_, err = core.Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
		require.NoError(t, err, "its finalizer keeps it, and it has been shut down")
	})
}

// TestAPodThatIsHeldBackIsNotBound, and one that is bound is nominated no more.
func TestAPodThatIsHeldBackIsNotBound(t *testing.T) {
	pods := kubernetes.NewForConfigOrDie(reconciletest.NewServer(t,
		reconciletest.Options{Kinds: Kinds()}).Config()).CoreV1().Pods("default")
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers:      []corev1.Container{{Name: "c", Image: "c"}},
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/g"}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Name: "n"}}
	err = pods.Bind(t.Context(), binding, metav1.CreateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err, "pod p has non-empty .spec.schedulingGates")

	pod.Spec.SchedulingGates = nil
	pod, err = pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	pod.Status.NominatedNodeName = "m"
	pod, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "m", pod.Status.NominatedNodeName)
	require.NoError(t, pods.Bind(t.Context(), binding, metav1.CreateOptions{}))
	pod, err = pods.Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "n", pod.Spec.NodeName)
	require.Empty(t, pod.Status.NominatedNodeName)
}

// TestWhoAsksForACertificate is written into the request for it, with his groups.
func TestWhoAsksForACertificate(t *testing.T) {
	var all map[string]conversation
	require.NoError(t, yaml.UnmarshalStrict(conversations, &all))
	k := kindNamed(t, "certificatesigningrequests")
	config := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()}).
		LinkAs(reconciletest.ServiceAccount("default", "worker")).Config()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	code, _, answer := send(t, client, http.MethodPost, config.Host+pathOf(k)+"/"+k.GroupVersionResource.Resource,
		"application/json", objectOf(t, k, "a", all[nameOf(k)].Good, nil))
	require.Equal(t, http.StatusCreated, code, "%s", answer)
	var made certificatesv1.CertificateSigningRequest
	require.NoError(t, json.Unmarshal(answer, &made))
	require.Equal(t, "system:serviceaccount:default:worker", made.Spec.Username)
	require.Equal(t, []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
		made.Spec.Groups)
}

// TestWhoMayBind has a user who may write bindings of all kinds, and has the verb bind on one ClusterRole.
func TestWhoMayBind(t *testing.T) {
	roles := filepath.Join(t.TempDir(), "roles.yaml")
	require.NoError(t, os.WriteFile(roles, []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: binder}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterrolebindings, rolebindings], verbs: [create]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [granted], verbs: [bind]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: binder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: binder}
subjects: [{kind: ServiceAccount, name: worker, namespace: default}]
`), 0o600))
	bindings := kubernetes.NewForConfigOrDie(reconciletest.NewServer(t,
		reconciletest.Options{Kinds: Kinds(), Roles: []string{roles}}).
		LinkAs(reconciletest.ServiceAccount("default", "worker")).Config()).RbacV1()
	for role, may := range map[string]bool{"granted": true, "another": false} {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		of := metav1.ObjectMeta{Name: role}
		_, everywhere := bindings.ClusterRoleBindings().Create(t.Context(),
			&rbacv1.ClusterRoleBinding{ObjectMeta: of, RoleRef: ref}, metav1.CreateOptions{})
		_, here := bindings.RoleBindings("default").Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: of, RoleRef: ref}, metav1.CreateOptions{})
		for _, err := range []error{everywhere, here} {
			if may {
				require.NoError(t, err)
			} else {
				requireNotModelled(t, err)
			}
		}
	}
}

// TestWhatCannotBeShownIsNotAskedAbout: webhooks get objects in the version of the kind, or are not called.
func TestWhatCannotBeShownIsNotAskedAbout(t *testing.T) {
	r := &registry{kind: corev1.SchemeGroupVersion.WithKind("Unknown"), scheme: legacyscheme.Scheme}
	w := reconciletest.Attempt{Admit: func(o, _ runtime.Object) error {
		t.Errorf("asked about %v", o)
		return nil
	}}
	require.Error(t, r.admit(w, &internalcore.Pod{}, nil))
}

// TestServersShareTheKinds: several clients write to each of several servers at the same time.
func TestServersShareTheKinds(t *testing.T) {
	const servers, writers, writes = 3, 4, 5
	var group sync.WaitGroup
	var all []*reconciletest.Server
	failed := make([]error, servers*writers)
	for n := range servers {
		server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
		all = append(all, server)
		for writer := range writers {
			sets := kubernetes.NewForConfigOrDie(server.Config()).AppsV1().ReplicaSets("default")
			group.Go(func() {
				o := replicaSet()
				o.Name = fmt.Sprint("r", writer)
				o, err := sets.Create(t.Context(), o, metav1.CreateOptions{})
				for i := range int32(writes) {
					if err == nil {
						o.Spec.Replicas = new(i + 2)
						o, err = sets.Update(t.Context(), o, metav1.UpdateOptions{})
					}
					if err == nil {
						o.Status.ObservedGeneration = o.Generation
						o, err = sets.UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
					}
				}
				failed[n*writers+writer] = err
			})
		}
	}
	group.Wait()
	require.NoError(t, errors.Join(failed...))
	for _, server := range all {
		sets := reconciletest.List[*appsv1.ReplicaSet](server, "replicasets", "default")
		require.Len(t, sets, writers)
		for _, o := range sets {
			require.EqualValues(t, 1+writes, o.Generation)
			require.Equal(t, o.Generation, o.Status.ObservedGeneration)
			require.EqualValues(t, 1+writes, *o.Spec.Replicas)
		}
	}
}

// TestAPIServices are kept as the real server keeps them, and route nothing: nobody says whether a server that is not
// local answers, and the versions of custom resources get none.
func TestAPIServices(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		config := server.Config()
		config.ContentType = media
		services := aggregator.NewForConfigOrDie(config).ApiregistrationV1().APIServices()
		list, err := services.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, list.Items)
		w, err := services.Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		defer w.Stop()

		o := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"},
			Spec: apiregistrationv1.APIServiceSpec{Group: "example.com", Version: "v1", GroupPriorityMinimum: 1000,
				VersionPriority: 15, Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "s"}}}
		o, err = services.Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 443, *o.Spec.Service.Port)
		require.Empty(t, o.Status.Conditions)
		require.Equal(t, o.Spec, (<-w.ResultChan()).Object.(*apiregistrationv1.APIService).Spec)

		o.Spec.Service.Port = new(int32(8443))
		o, err = services.Update(t.Context(), o, metav1.UpdateOptions{})
		require.NoError(t, err)
		_, err = services.ApplyStatus(t.Context(), aggregatorapply.APIService(o.Name).WithStatus(
			aggregatorapply.APIServiceStatus().WithConditions(aggregatorapply.APIServiceCondition().
				WithType(apiregistrationv1.Available).WithStatus(apiregistrationv1.ConditionTrue))),
			metav1.ApplyOptions{FieldManager: "a"})
		require.NoError(t, err)
		stored, ok := reconciletest.Get[*apiregistrationv1.APIService](server, "apiservices", "", o.Name)
		require.True(t, ok)
		require.Equal(t, []any{int32(8443), apiregistrationv1.ConditionTrue},
			[]any{*stored.Spec.Service.Port, stored.Status.Conditions[0].Status})
		err = kubernetes.NewForConfigOrDie(server.Config()).RESTClient().Get().AbsPath("/apis/example.com/v1/things").
			Do(t.Context()).Error()
		requireNotModelled(t, err)
		require.NoError(t, services.Delete(t.Context(), o.Name, metav1.DeleteOptions{}))
	}
}

// TestWhatTheImportDoes to the process: the feature gates of client-go stay those that read the environment, a program
// may register a gate that Kubernetes has as well, and a scheme that is made of k8s.io/api has the defaults of
// Kubernetes.
func TestWhatTheImportDoes(t *testing.T) {
	const twice = "VolumeAttributesClass"
	require.NoError(t, utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		twice: {PreRelease: featuregate.Alpha}}))
	require.True(t, utilfeature.DefaultFeatureGate.Enabled(twice))
	require.Equal(t, "k8s.io/client-go/features", reflect.TypeOf(clientfeatures.FeatureGates()).Elem().PkgPath())
	s := runtime.NewScheme()
	require.NoError(t, appsv1.AddToScheme(s))
	o := replicaSet()
	s.Default(o)
	require.EqualValues(t, 1, *o.Spec.Replicas)
}

// TestTheStatusOfAStatefulSet is refused by its model in the words of Kubernetes' code, or stored as there.
func TestTheStatusOfAStatefulSet(t *testing.T) {
	answers := func(kinds []reconciletest.Kind, status appsv1.StatefulSetStatus) (appsv1.StatefulSetStatus, string) {
		server := reconciletest.NewServer(t, reconciletest.Options{Kinds: kinds})
		sets := kubernetes.NewForConfigOrDie(server.Config()).AppsV1().StatefulSets("default")
		of := replicaSet()
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: appsv1.StatefulSetSpec{Selector: of.Spec.Selector, Template: of.Spec.Template}}
		set, err := sets.Create(t.Context(), set, metav1.CreateOptions{})
		require.NoError(t, err)
		set.Status = status
		set, err = sets.UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
		if err != nil {
			return appsv1.StatefulSetStatus{}, err.Error()
		}
		return set.Status, ""
	}
	refused := 0
	for _, status := range []appsv1.StatefulSetStatus{
		{},
		{Replicas: 3, ReadyReplicas: 2, AvailableReplicas: 1, CurrentReplicas: 3, UpdatedReplicas: 3,
			ObservedGeneration: 1, CurrentRevision: "a-1", UpdateRevision: "a-2"},
		{Replicas: -1}, {ReadyReplicas: -1}, {CurrentReplicas: -1}, {UpdatedReplicas: -1}, {AvailableReplicas: -1},
		{ObservedGeneration: -1}, {ReadyReplicas: 1}, {CurrentReplicas: 1}, {UpdatedReplicas: 1},
		{Replicas: 1, AvailableReplicas: 1},
		{Replicas: -1, ReadyReplicas: -2, AvailableReplicas: 5, UpdatedReplicas: 1},
	} {
		want, why := answers(Kinds(), status)
		is, said := answers(nil, status)
		require.Equal(t, why, said, "%+v", status)
		require.Equal(t, want, is)
		if why != "" {
			refused++
		}
	}
	require.Equal(t, 11, refused)
}
