package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
)

var (
	errTaken  = errors.New("an object of that name is not the Tenant's")
	errNotYet = errors.New("it is not gone yet") // its end brings the key back
)

// TenantReconciler makes the cluster match the Tenants.
type TenantReconciler struct {
	client.Client
	live     client.Reader // past the cache
	platform string        // namespace
}

// Reconcile makes what a Tenant has what it should be, and takes it down when the Tenant is being deleted.
func (r *TenantReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var tenant v1.Tenant
	if err := r.Get(ctx, req.NamespacedName, &tenant); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := tenant.DeepCopy()
	if !tenant.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &tenant)
	}
	if controllerutil.AddFinalizer(&tenant, v1.Finalizer) {
		if err := r.patch(ctx, &tenant, before); err != nil {
			return ctrl.Result{}, err
		}
	}
	var shared *corev1.Secret
	if name := tenant.Spec.PullSecret; name != "" {
		shared = &corev1.Secret{}
		err := r.Get(ctx, client.ObjectKey{Namespace: r.platform, Name: name}, shared)
		if apierrors.IsNotFound(err) {
			shared, err = nil, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	p := &progress{reason: v1.ReasonProvisioned, message: "everything is as it should be"}
	for _, name := range namespacesOf(&tenant) {
		r.applyNamespace(ctx, &tenant, name, shared, p)
	}
	if p.reason == v1.ReasonProvisioned { // what is not wanted goes when all else is there
		p.add("what goes", r.prune(ctx, &tenant, namespacesOf(&tenant), shared))
	}
	if p.reason == v1.ReasonProvisioned && tenant.Spec.PullSecret != "" && shared == nil {
		p.reason, p.message = v1.ReasonSecretMissing, "there is no Secret "+r.platform+"/"+tenant.Spec.PullSecret
	}
	return ctrl.Result{}, errors.Join(p.again, r.report(ctx, &tenant, p.reason, p.message))
}

// progress is what has come out until now.
type progress struct {
	reason, message string
	again           error // another try can help
}

// add takes the outcome for an object down. What the server refuses waits for a change of the Tenant.
func (p *progress) add(what string, err error) {
	reason := v1.ReasonFailed
	switch {
	case err == nil:
		return
	case errors.Is(err, errNotYet):
		if p.reason == v1.ReasonProvisioned {
			p.reason, p.message = v1.ReasonProgressing, what+": "+err.Error()
		}
		return
	case errors.Is(err, errTaken):
		reason = v1.ReasonNameTaken
	case apierrors.IsInvalid(err):
		p.reason, p.message = v1.ReasonRefused, what+": "+err.Error()
		return
	}
	p.reason, p.message, p.again = reason, what+": "+err.Error(), errors.Join(p.again, err)
}

// patch writes the metadata, if the object is still at the version that was seen.
func (r *TenantReconciler) patch(ctx context.Context, tenant, before *v1.Tenant) error {
	return r.Patch(ctx, tenant, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// applyNamespace makes a namespace and what is in it. Nothing is made in one that is not the Tenant's.
func (r *TenantReconciler) applyNamespace(ctx context.Context, t *v1.Tenant, name string, shared *corev1.Secret,
	p *progress) {
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := r.apply(ctx, t, home, func() error { setNamespace(home); return nil }); err != nil {
		p.add("Namespace "+name, err)
		return
	}
	quota := &corev1.ResourceQuota{ObjectMeta: objectMeta(name, v1.QuotaName)}
	p.add("ResourceQuota of "+name, r.apply(ctx, t, quota, func() error { quota.Spec.Hard = t.Spec.Quota; return nil }))
	limits := &corev1.LimitRange{ObjectMeta: objectMeta(name, v1.QuotaName)}
	p.add("LimitRange of "+name, r.apply(ctx, t, limits, func() error { setLimits(limits); return nil }))
	policy := &networkingv1.NetworkPolicy{ObjectMeta: objectMeta(name, v1.QuotaName)}
	p.add("NetworkPolicy of "+name, r.apply(ctx, t, policy, func() error { setPolicy(policy, t); return nil }))
	account := &corev1.ServiceAccount{ObjectMeta: objectMeta(name, v1.DeployerName)}
	p.add("ServiceAccount of "+name, r.apply(ctx, t, account, func() error { setAccount(account); return nil }))
	if shared != nil {
		secret := &corev1.Secret{ObjectMeta: objectMeta(name, shared.Name)}
		p.add("Secret of "+name, r.apply(ctx, t, secret, func() error { return setCopy(secret, shared) }))
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: objectMeta(name, v1.MembersName)}
	p.add("RoleBinding of "+name, r.apply(ctx, t, binding, func() error { return setBinding(binding, t) }))
}

// apply makes an object what set makes of it, unless it belongs to somebody else. One that cannot be changed is
// deleted; its end brings the key back.
func (r *TenantReconciler) apply(ctx context.Context, t *v1.Tenant, o client.Object, set func() error) error {
	_, err := controllerutil.CreateOrPatch(ctx, r.Client, o, func() error {
		switch {
		case o.GetUID() != "" && o.GetLabels()[v1.OwnerLabel] != string(t.UID):
			return errTaken
		case o.GetDeletionTimestamp() != nil:
			return errNotYet
		}
		mark(o, t)
		return set()
	})
	if errors.Is(err, errNotYet) && o.GetDeletionTimestamp() == nil {
		if failed := r.delete(ctx, o); failed != nil {
			return failed
		}
	}
	return err
}

// mark makes an object the Tenant's.
func mark(o client.Object, t *v1.Tenant) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[v1.OwnerLabel], annotations[v1.OwnerLabel] = string(t.UID), t.Name
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

// delete deletes an object, if it is as it was seen.
func (r *TenantReconciler) delete(ctx context.Context, o client.Object) error {
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	return client.IgnoreNotFound(r.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion())}))
}

// prune deletes what is no longer wanted. Where a namespace is not wanted its binding goes first, so that nobody works
// there any more. All else goes with the namespace, and not before the pods that it holds back. As long as something is
// not gone it returns an error.
func (r *TenantReconciler) prune(ctx context.Context, t *v1.Tenant, wanted []string, shared *corev1.Secret) error {
	ours := client.MatchingLabels{v1.OwnerLabel: string(t.UID)}
	var bindings rbacv1.RoleBindingList
	var secrets corev1.SecretList
	var namespaces corev1.NamespaceList
	if err := errors.Join(r.List(ctx, &bindings, ours), r.List(ctx, &secrets, ours),
		r.List(ctx, &namespaces, ours)); err != nil {
		return err
	}
	var going []client.Object
	for i := range bindings.Items {
		if o := &bindings.Items[i]; !slices.Contains(wanted, o.Namespace) {
			going = append(going, o)
		}
	}
	for i := range secrets.Items {
		o := &secrets.Items[i]
		if slices.Contains(wanted, o.Namespace) && (shared == nil || o.Name != shared.Name) {
			going = append(going, o)
		}
	}
	if len(going) == 0 {
		for i := range namespaces.Items {
			if o := &namespaces.Items[i]; !slices.Contains(wanted, o.Name) {
				going = append(going, o)
			}
		}
	}
	for _, o := range going {
		if err := r.delete(ctx, o); err != nil {
			return err
		}
	}
	if len(going) > 0 {
		return fmt.Errorf("%T %s: %w", going[0], client.ObjectKeyFromObject(going[0]), errNotYet)
	}
	return nil
}

// finalize removes the finalizer when nothing is left. The cache may not show yet what the last call has made, so the
// server is asked.
func (r *TenantReconciler) finalize(ctx context.Context, t *v1.Tenant) error {
	if !controllerutil.ContainsFinalizer(t, v1.Finalizer) {
		return nil
	}
	err := r.prune(ctx, t, nil, nil)
	if errors.Is(err, errNotYet) {
		return r.report(ctx, t, v1.ReasonCleaningUp, err.Error())
	}
	var left corev1.NamespaceList
	if err == nil {
		err = r.live.List(ctx, &left, client.MatchingLabels{v1.OwnerLabel: string(t.UID)})
	}
	if err == nil && len(left.Items) > 0 {
		err = fmt.Errorf("namespace %s: %w", left.Items[0].Name, errNotYet)
	}
	if err != nil {
		return err
	}
	before := t.DeepCopy()
	controllerutil.RemoveFinalizer(t, v1.Finalizer)
	return client.IgnoreNotFound(r.patch(ctx, t, before))
}

// report writes the status if it changes.
func (r *TenantReconciler) report(ctx context.Context, t *v1.Tenant, reason, message string) error {
	var namespaces corev1.NamespaceList
	if err := r.List(ctx, &namespaces, client.MatchingLabels{v1.OwnerLabel: string(t.UID)}); err != nil {
		return err
	}
	before, status := t.Status.DeepCopy(), &t.Status
	status.ObservedGeneration, status.Namespaces = t.Generation, nil
	for _, o := range namespaces.Items {
		status.Namespaces = append(status.Namespaces, o.Name)
	}
	slices.Sort(status.Namespaces)
	ready := metav1.ConditionFalse
	if reason == v1.ReasonProvisioned {
		ready = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1.Ready, Status: ready, Reason: reason,
		Message: message, ObservedGeneration: t.Generation})
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	return r.Status().Update(ctx, t)
}

// wanting returns the Tenants that want a namespace.
func (r *TenantReconciler) wanting(ctx context.Context, o client.Object) []reconcile.Request {
	return r.found(ctx, byNamespace, o.GetName())
}

// naming returns the Tenants that name one of the platform's Secrets.
func (r *TenantReconciler) naming(ctx context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() != r.platform {
		return nil
	}
	return r.found(ctx, bySecret, o.GetName())
}

func (r *TenantReconciler) found(ctx context.Context, field, value string) (all []reconcile.Request) {
	var tenants v1.TenantList
	if err := r.List(ctx, &tenants, client.MatchingFields{field: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "No Tenant is found by a field", "field", field)
		return nil
	}
	for _, t := range tenants.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&t)})
	}
	return all
}
