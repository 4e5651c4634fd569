package plan_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// asked counts the requests that a plan has sent to the cluster.
func (w *world) asked(verb, resource string) (n int) {
	for _, r := range w.link.Requests() {
		if r.Verb == verb && r.Resource.Resource == resource {
			n++
		}
	}
	return n
}

// TestARefusedListIsNotAskedForAgain has a program that writes often, with a plan that may not read the namespaces.
func TestARefusedListIsNotAskedForAgain(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Resource.Resource != "namespaces" {
			return nil
		}
		return reconciletest.AnswerWith(apierrors.NewForbidden(r.Resource.GroupResource(), "", fmt.Errorf("no")))
	})
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		for i := range 20 {
			if _, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("a", i)}}, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	require.Len(t, report.Changes, 20)
	require.Len(t, report.Missing, 1)
	require.Equal(t, 1, w.asked("list", "namespaces"))
}

// TestALeaseIsFreeAlsoAfterAFailure has a cluster that does not show its Leases at first.
func TestALeaseIsFreeAlsoAfterAFailure(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	_, err := w.clients().CoordinationV1().Leases("default").Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("another")}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	var broken atomic.Bool
	broken.Store(true)
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Resource.Resource == "leases" && broken.Load() {
			return reconciletest.AnswerWith(apierrors.NewServiceUnavailable("not now"))
		}
		return nil
	})
	w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoordinationV1().Leases("default").Get(ctx, "mine", metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it is shown")
		}
		broken.Store(false)
		mine, err := c.CoordinationV1().Leases("default").Get(ctx, "mine", metav1.GetOptions{})
		if err == nil && *mine.Spec.HolderIdentity != "" {
			err = fmt.Errorf("it is held by %s", *mine.Spec.HolderIdentity)
		}
		return err
	})
}

// TestALeaseThatIsListedIsAsItIs has a program that looks at Leases to see who lives, and takes one itself.
func TestALeaseThatIsListedIsAsItIs(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	for _, name := range []string{"mine", "member"} {
		_, err := w.clients().CoordinationV1().Leases("default").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(name), LeaseDurationSeconds: new(int32(15)), RenewTime: &now}},
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	report := w.plan(func(ctx context.Context, c kubernetes.Interface) error {
		leases := c.CoordinationV1().Leases("default")
		mine, err := leases.Get(ctx, "mine", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if *mine.Spec.HolderIdentity != "" {
			return fmt.Errorf("it is held by %s", *mine.Spec.HolderIdentity)
		}
		mine.Spec.HolderIdentity = new("planned")
		if _, err := leases.Update(ctx, mine, metav1.UpdateOptions{}); err != nil {
			return err
		}
		mine, err = leases.Get(ctx, "mine", metav1.GetOptions{})
		if err != nil || *mine.Spec.HolderIdentity != "planned" {
			return fmt.Errorf("the program has lost it: %w", err)
		}
		list, err := leases.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, l := range list.Items {
			if l.Name == "member" && (*l.Spec.HolderIdentity != "member" || !l.Spec.RenewTime.Equal(&now)) {
				return fmt.Errorf("that of a member is another one: %v", l.Spec)
			}
		}
		return nil
	})
	require.Empty(t, report.Changes)
	require.Empty(t, report.Approximate)
}

// TestAKindWithoutItsDefinitionIsWritten has a custom resource whose definition the plan may not read.
func TestAKindWithoutItsDefinitionIsWritten(t *testing.T) {
	w := newWorld(t, reconciletest.Options{CRDs: []string{fileOf(t, crd)}})
	sets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sets"}
	_, err := dynamic.NewForConfigOrDie(w.server.Config()).Resource(sets).Namespace("default").Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Set",
			"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"size": int64(1)}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Resource.Resource != "customresourcedefinitions" {
			return nil
		}
		return reconciletest.AnswerWith(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, fmt.Errorf("no")))
	})
	report, err := plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		all := dynamic.NewForConfigOrDie(cfg).Resource(sets).Namespace("default")
		is, err := all.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		is.SetLabels(map[string]string{"by": "update"})
		if _, err := all.Update(ctx, is, metav1.UpdateOptions{}); err != nil {
			return err
		}
		is, err = all.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
		if err == nil && (is.GetName() != "a" || is.GetLabels()["by"] == "") {
			err = fmt.Errorf("it has become %v", is.Object)
		}
		return err
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(t, err)
	require.Equal(t, []string{"update Set default/a"}, verbs(report))
	require.Empty(t, report.Refused)
	require.NotEmpty(t, report.Approximate)
}

// TestASubresourceThatMayBeThereIsNamed has a custom resource whose definition the plan may not read.
func TestASubresourceThatMayBeThereIsNamed(t *testing.T) {
	w := newWorld(t, reconciletest.Options{CRDs: []string{fileOf(t, crd)}})
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Resource.Resource != "customresourcedefinitions" {
			return nil
		}
		return reconciletest.AnswerWith(apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, fmt.Errorf("no")))
	})
	report, err := plan.Run(t.Context(), w.link.Config(), func(ctx context.Context, cfg *rest.Config) error {
		sets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sets"}
		_, err := dynamic.NewForConfigOrDie(cfg).Resource(sets).Namespace("default").Get(ctx, "a", metav1.GetOptions{},
			"scale")
		if err == nil {
			return fmt.Errorf("there is a scale")
		}
		return nil
	}, plan.RunOptions{Quiet: quiet})
	require.NoError(t, err)
	require.Len(t, report.Refused, 1)
	require.Equal(t, "scale", report.Refused[0].Subresource)
	require.EqualValues(t, http.StatusNotImplemented, report.Refused[0].Code)
}
