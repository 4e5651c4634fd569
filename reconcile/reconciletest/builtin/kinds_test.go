package builtin

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// TestTheSameSeedGivesTheSame runs two servers, each in a bubble of its own, of which the first one has made the kinds.
func TestTheSameSeedGivesTheSame(t *testing.T) {
	var made []*networkingv1.Ingress
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds(), Seed: 7})
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
	controllers := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ReplicationControllers("default")
	_, err := controllers.Create(t.Context(), &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: corev1.ReplicationControllerSpec{Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	scale, err := controllers.GetScale(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, scale.Spec.Replicas)
	require.Equal(t, "a=b", scale.Status.Selector)
	scale.Spec.Replicas = 3
	_, err = controllers.UpdateScale(t.Context(), "c", scale, metav1.UpdateOptions{})
	require.NoError(t, err)
	o, err := controllers.Get(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 3, *o.Spec.Replicas)
	require.EqualValues(t, 2, o.Generation)
}

func TestWhatIsLeftOutIsRefused(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: Kinds()})
	pods := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().Pods("default")
	_, err := pods.GetLogs("p", &corev1.PodLogOptions{}).Do(t.Context()).Raw()
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, http.StatusNotImplemented, status.Status().Code)
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
