package objects_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

func TestReplaceOwnedInMemory(t *testing.T) {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	testReplaceOwned(t, server.Config(), "default")
}

func TestReplaceOwnedOnAServer(t *testing.T) {
	c := testcluster.Shared(t)
	testReplaceOwned(t, c.Config(), c.Namespace(t))
}

// household is an owner, and what it wants to apply to one object that the server does not let it change.
type household[T informer.Object] struct {
	*testing.T
	owner  *objects.Owner
	client objects.Replacer[T]
}

// apply applies a configuration, and replaces what cannot be changed.
func (h *household[T]) apply(seen T, config any) (now T, refused, err error) {
	now, refused = objects.ApplyOwned(h.Context(), h.owner, h.client, seen, config, forced, nil)
	err = objects.ReplaceOwned(h.Context(), h.owner, h.client, seen, config, forced,
		metav1.DeletePropagationBackground, refused)
	return now, refused, err
}

// retried does again what failed since a controller of the cluster has written to the object.
func (h *household[T]) retried(seen *T, try func() error) error {
	for {
		err := try()
		if !apierrors.IsConflict(err) {
			return err
		}
		*seen, err = h.client.Get(h.Context(), (*seen).GetName(), metav1.GetOptions{})
		require.NoError(h, err)
	}
}

func newHousehold[T informer.Object](t *testing.T, client kubernetes.Interface, namespace, name string,
	children objects.Replacer[T]) *household[T] {
	maps := client.CoreV1().ConfigMaps(namespace)
	o, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	return &household[T]{t, objects.NewOwner(maps, o, configMapKind), children}
}

func jobConfig(namespace, image string) *batchv1ac.JobApplyConfiguration {
	return batchv1ac.Job("child", namespace).WithSpec(batchv1ac.JobSpec().WithSuspend(true).WithTemplate(
		corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().WithRestartPolicy("Never").
			WithContainers(corev1ac.Container().WithName("main").WithImage(image)))))
}

func testReplaceOwned(t *testing.T, cfg *rest.Config, namespace string) {
	client := kubernetes.NewForConfigOrDie(cfg)
	jobs := client.BatchV1().Jobs(namespace)
	h := newHousehold(t, client, namespace, "household", objects.Replacer[*batchv1.Job](jobs))
	isThere := func(o *batchv1.Job) {
		t.Helper()
		now, err := jobs.Get(t.Context(), o.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, o.UID, now.UID)
		require.Nil(t, now.DeletionTimestamp)
	}
	old, refused, err := h.apply(nil, jobConfig(namespace, "old"))
	require.NoError(t, refused)
	require.NoError(t, err)

	// A configuration that is wrong by itself replaces nothing.
	_, refused, err = h.apply(old, jobConfig(namespace, ""))
	require.True(t, apierrors.IsInvalid(refused), refused)
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, namespace+"/child is not replaced: a new one would be refused, too: ")
	isThere(old)

	// A dry run asks, and deletes nothing.
	_, refused = objects.ApplyOwned(t.Context(), h.owner, jobs, old, jobConfig(namespace, "new"), forced, nil)
	require.True(t, apierrors.IsInvalid(refused), refused)
	trial := forced
	trial.DryRun = []string{metav1.DryRunAll}
	require.NoError(t, h.retried(&old, func() error {
		return objects.ReplaceOwned(t.Context(), h.owner, jobs, old, jobConfig(namespace, "new"), trial,
			metav1.DeletePropagationBackground, refused)
	}))
	isThere(old)

	// What another owns is not replaced.
	other := newHousehold(t, client, namespace, "other", objects.Replacer[*batchv1.Job](jobs))
	require.Equal(t, refused, objects.ReplaceOwned(t.Context(), other.owner, jobs, old, jobConfig(namespace, "new"),
		forced, metav1.DeletePropagationBackground, refused))
	isThere(old)

	require.NoError(t, h.retried(&old, func() error {
		_, refused, err = h.apply(old, jobConfig(namespace, "new"))
		require.True(t, apierrors.IsInvalid(refused), refused)
		return err
	}))
	_, err = jobs.Get(t.Context(), "child", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), err)
	list, err := jobs.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items, "the dry run has left something")
	now, refused, err := h.apply(nil, jobConfig(namespace, "new"))
	require.NoError(t, refused)
	require.NoError(t, err)

	// The cache shows the old one, whose name another has by now.
	_, refused = objects.ApplyOwned(t.Context(), h.owner, jobs, now, jobConfig(namespace, "newer"), forced, nil)
	err = objects.ReplaceOwned(t.Context(), h.owner, jobs, old, jobConfig(namespace, "newer"), forced,
		metav1.DeletePropagationBackground, refused)
	require.True(t, apierrors.IsConflict(err), err)
	isThere(now)
}

// TestWhatServersDoNotLetChangeIsReplaced has one object for each way in which servers say so.
func TestWhatServersDoNotLetChangeIsReplaced(t *testing.T) {
	c := testcluster.Shared(t)
	namespace, client := c.Namespace(t), kubernetes.NewForConfigOrDie(c.Config())
	t.Run("the role of a binding", func(t *testing.T) {
		bind := func(role string) *rbacv1ac.RoleBindingApplyConfiguration {
			return rbacv1ac.RoleBinding("child", namespace).WithRoleRef(rbacv1ac.RoleRef().
				WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(role)).
				WithSubjects(rbacv1ac.Subject().WithKind("User").WithName("someone"))
		}
		replaces(t, newHousehold(t, client, namespace, "bindings",
			objects.Replacer[*rbacv1.RoleBinding](client.RbacV1().RoleBindings(namespace))), bind("view"), bind("edit"))
	})
	t.Run("the type of a secret", func(t *testing.T) {
		secret := func(kind corev1.SecretType) *corev1ac.SecretApplyConfiguration {
			return corev1ac.Secret("child", namespace).WithType(kind)
		}
		replaces(t, newHousehold(t, client, namespace, "secrets",
			objects.Replacer[*corev1.Secret](client.CoreV1().Secrets(namespace))),
			secret("example.com/a"), secret("example.com/b"))
	})
	t.Run("an immutable map", func(t *testing.T) {
		data := func(value string) *corev1ac.ConfigMapApplyConfiguration {
			return corev1ac.ConfigMap("child", namespace).WithImmutable(true).
				WithData(map[string]string{"key": value})
		}
		replaces(t, newHousehold(t, client, namespace, "maps",
			objects.Replacer[*corev1.ConfigMap](client.CoreV1().ConfigMaps(namespace))), data("a"), data("b"))
	})
	t.Run("the class of a claim", func(t *testing.T) {
		claim := func(class string) *corev1ac.PersistentVolumeClaimApplyConfiguration {
			return corev1ac.PersistentVolumeClaim("child", namespace).WithSpec(corev1ac.PersistentVolumeClaimSpec().
				WithAccessModes(corev1.ReadWriteOnce).WithStorageClassName(class).
				WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{
					corev1.ResourceStorage: apiresource.MustParse("1Gi")})))
		}
		claims := client.CoreV1().PersistentVolumeClaims(namespace)
		h := newHousehold(t, client, namespace, "claims", objects.Replacer[*corev1.PersistentVolumeClaim](claims))
		old, _, err := h.apply(nil, claim("a"))
		require.NoError(t, err)
		require.NoError(t, h.retried(&old, func() error {
			_, refused, err := h.apply(old, claim("b"))
			require.True(t, apierrors.IsInvalid(refused), refused)
			return err
		}))
	})
}

// replaces applies one configuration, and then another that the server refuses to change the object to.
func replaces[T informer.Object](t *testing.T, h *household[T], before, after any) {
	var none T
	old, _, err := h.apply(none, before)
	require.NoError(t, err)
	require.NoError(t, h.retried(&old, func() error {
		_, refused, err := h.apply(old, after)
		require.True(t, apierrors.IsInvalid(refused), refused)
		return err
	}))
	now, refused, err := h.apply(none, after)
	require.NoError(t, refused)
	require.NoError(t, err)
	require.NotEqual(t, old.GetUID(), now.GetUID())
	_, refused, err = h.apply(now, after)
	require.NoError(t, refused)
	require.NoError(t, err)
}

// TestNothingIsReplacedInACircle: something behind the server sets a field of each new object, and the server lets
// nobody change it.
func TestNothingIsReplacedInACircle(t *testing.T) {
	set := newSet("web", "web")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	for _, field := range []string{"data", "data[0]", "data.key"} {
		refused := invalid(field)
		// What is not configured differs in each object.
		seen := owned(owner, map[string]string{"key": "theirs", "id": "1"})
		server := &oneWay{t: t, anew: map[string]string{"key": "theirs", "id": "2"}}
		replace := func() error {
			return objects.ReplaceOwned(testCtx(t), owner, objects.Replacer[*corev1.ConfigMap](server), seen,
				config("ours"), forced, metav1.DeletePropagationBackground, refused)
		}
		err := replace()
		require.ErrorIs(t, err, refused)
		require.ErrorContains(t, err, "a new one would be the same where it cannot be changed", field)
		require.Zero(t, server.deleted)
		server.anew["key"] = "ours"
		require.NoError(t, replace())
		require.Equal(t, 1, server.deleted)
		require.Equal(t, server.tried[0], server.tried[1], "a program does the same each time")
	}
}

// TestATrialWithoutAnAnswerRefusesNothing: who takes a refusal for the server's last word would not try again.
func TestATrialWithoutAnAnswerRefusesNothing(t *testing.T) {
	set := newSet("web", "web")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	maps := corev1.Resource("configmaps")
	for err, final := range map[error]bool{
		invalid("data"): true,
		apierrors.NewForbidden(maps, "a", errors.New("exceeded quota")):      true,
		apierrors.NewBadRequest("the webhook does not support dry run"):      true,
		apierrors.NewTooManyRequests("busy", 1):                              false,
		apierrors.NewInternalError(errors.New("failed calling the webhook")): false,
		apierrors.NewTimeoutError("slow", 1):                                 false,
		io.ErrUnexpectedEOF:                                                  false,
	} {
		server, refused := &oneWay{t: t, fails: err}, invalid("data.key")
		got := objects.ReplaceOwned(testCtx(t), owner, objects.Replacer[*corev1.ConfigMap](server),
			owned(owner, map[string]string{"key": "theirs"}), config("ours"), forced,
			metav1.DeletePropagationBackground, refused)
		require.ErrorIs(t, got, err)
		require.Equal(t, final, errors.Is(got, refused), got)
		require.Equal(t, final, apierrors.IsInvalid(got), got)
		require.Zero(t, server.deleted)
	}
}

// TestWhatIsProtectedIsNotReplaced: a policy, a webhook or a patch is refused without a field, and an owner reference
// that another owner has set is no matter of what a new object would have.
func TestWhatIsProtectedIsNotReplaced(t *testing.T) {
	set := newSet("web", "web")
	owner := objects.NewOwner(newDesk(t, set), set, setKind)
	for _, refused := range []error{invalid(), invalid(""), invalid("<nil>"),
		invalid("metadata.ownerReferences", "data")} {
		server := &oneWay{t: t, anew: map[string]string{"key": "ours"}}
		err := objects.ReplaceOwned(testCtx(t), owner, objects.Replacer[*corev1.ConfigMap](server),
			owned(owner, map[string]string{"key": "theirs"}), config("ours"), forced,
			metav1.DeletePropagationBackground, refused)
		require.ErrorContains(t, err, "the refusal names no field that a new one could have in another way")
		require.Zero(t, server.deleted)
	}
}

// invalid is a refusal that names fields.
func invalid(fields ...string) error {
	var causes []metav1.StatusCause
	for _, f := range fields {
		causes = append(causes, metav1.StatusCause{Field: f, Message: "field is immutable"})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: "refused",
		Details: &metav1.StatusDetails{Causes: causes}}}
}

func owned(owner *objects.Owner, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1",
		ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{owner.Reference()}}, Data: data}
}

// oneWay is a server that makes objects in its own way, and changes none.
type oneWay struct {
	t       *testing.T
	anew    map[string]string
	fails   error    // what a trial ends with
	tried   []string // names
	deleted int
}

func (o *oneWay) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	o.t.Error("nothing is to be read")
	return nil, errors.New("nothing is to be read")
}

func (o *oneWay) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, opts metav1.PatchOptions,
	_ ...string) (*corev1.ConfigMap, error) {
	require.NotEqual(o.t, "a", name)
	o.tried = append(o.tried, name)
	require.Equal(o.t, []string{metav1.DryRunAll}, opts.DryRun)
	if o.fails != nil {
		return nil, o.fails
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: o.anew}, nil
}

func (o *oneWay) Delete(_ context.Context, _ string, opts metav1.DeleteOptions) error {
	require.Equal(o.t, types.UID("1"), *opts.Preconditions.UID)
	require.Equal(o.t, "7", *opts.Preconditions.ResourceVersion)
	o.deleted++
	return nil
}
