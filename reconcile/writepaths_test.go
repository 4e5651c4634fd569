package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TestPathsOfAnUpdate updates a ReplicaSet three times: from the cached state, from a state that is older, and from the
// cached state without a change.
func TestPathsOfAnUpdate(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testPathsOfAnUpdate(t, contentType) })
		})
	}
}

func testPathsOfAnUpdate(t *testing.T, contentType string) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	cfg, err := reconcile.ClientConfig(server.Config())
	require.NoError(t, err)
	cfg.ContentType = contentType
	client := kubernetes.NewForConfigOrDie(cfg)
	sets, err := informer.New[*appsv1.ReplicaSet](client.AppsV1().ReplicaSets("default"),
		informer.Options[*appsv1.ReplicaSet]{Name: "replicasets"})
	require.NoError(t, err)
	runs, first := 0, &appsv1.ReplicaSet{}
	c, err := reconcile.NewController("sets", reconcile.Func(func(ctx context.Context,
		key reconcile.Key) (reconcile.Result, error) {
		cached, ok := sets.Get(key)
		if runs++; !ok || runs > 3 {
			return reconcile.Result{}, nil
		}
		set := cached.DeepCopy()
		if runs == 1 {
			first = cached
			set.Spec.Replicas = new(int32(3))
			set.Spec.Template.Spec.Containers[0].Image = "canary:2"
			set.Annotations = map[string]string{"canary": "canary"}
		}
		if runs == 2 {
			set = first.DeepCopy()
		}
		_, err := client.AppsV1().ReplicaSets("default").Update(ctx, set, metav1.UpdateOptions{})
		return reconcile.Result{RequeueAfter: time.Second}, err
	}), reconcile.Options{})
	require.NoError(t, err)
	reconcile.For(c, sets)
	set := newSet()
	owner, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Selector: set.Spec.Selector, Template: set.Spec.Template}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	set.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	_, err = client.AppsV1().ReplicaSets("default").Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	time.Sleep(time.Minute)
	synctest.Wait()
	seen := c.InspectKey(reconcile.Key{Namespace: "default", Name: "a"})
	stop()
	require.NoError(t, <-ended)

	require.Equal(t, &status.Owner{Group: "apps", Kind: "Deployment", Name: "web"}, seen.Objects[0].Owner)
	require.GreaterOrEqual(t, len(seen.Runs), 3)
	changed, older, same := seen.Runs[0].Writes[0], seen.Runs[1].Writes[0], seen.Runs[2].Writes[0]
	require.Equal(t, []string{"metadata.annotations", "spec.replicas", "spec.template.spec.containers[].image"},
		changed.Paths)
	require.Empty(t, changed.PathsUnknown)
	require.Equal(t, 409, older.Code)
	require.Empty(t, older.Paths)
	require.Contains(t, older.PathsUnknown, "no cache had the version")
	require.Empty(t, same.Paths)
	require.Empty(t, same.PathsUnknown)
}

// TestPathsOfManyWrites writes more in one moment than is read for its paths, and once more a minute later.
func TestPathsOfManyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		cfg, err := reconcile.ClientConfig(server.Config())
		require.NoError(t, err)
		maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		inf, err := informer.New[*corev1.ConfigMap](maps, informer.Options[*corev1.ConfigMap]{})
		require.NoError(t, err)
		patch := func(ctx context.Context, length int) error {
			_, err := maps.Patch(ctx, "a", types.MergePatchType, fmt.Appendf(nil, `{"data":{"v":%q}}`,
				strings.Repeat("x", length)), metav1.PatchOptions{})
			return err
		}
		runs := 0
		c, err := reconcile.NewController("maps", reconcile.Func(func(ctx context.Context,
			key reconcile.Key) (reconcile.Result, error) {
			switch runs++; runs {
			case 1:
				for range 40 {
					if err := patch(ctx, 60<<10); err != nil {
						return reconcile.Result{}, err
					}
				}
				return reconcile.Result{RequeueAfter: time.Millisecond}, nil
			case 2:
				return reconcile.Result{RequeueAfter: time.Minute}, patch(ctx, 60<<10)
			case 3:
				return reconcile.Result{RequeueAfter: time.Minute}, patch(ctx, 60<<10+1)
			case 4:
				return reconcile.Result{}, patch(ctx, 70<<10)
			}
			return reconcile.Result{}, nil
		}), reconcile.Options{})
		require.NoError(t, err)
		reconcile.For(c, inf)
		_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		seen := c.InspectKey(reconcile.Key{Namespace: "default", Name: "a"})
		stop()
		require.NoError(t, <-ended)
		var said []string
		for _, run := range seen.Runs {
			if len(run.Writes) > 0 {
				w := run.Writes[0]
				said = append(said, fmt.Sprint(w.Paths, w.PathsUnknown))
			}
		}
		require.Equal(t, []string{"[data.v]", "[]the controller wrote more than 512 KiB a second", "[data.v]",
			"[]the body is longer than 64 KiB"}, said)
	})
}

func newSet() *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "canary:1"}}}}},
	}
}
