package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// reconciler makes the cluster match the Tenants.
type reconciler struct {
	platform   string // namespace
	tenants    *informer.Cached[*v1.Tenant]
	wanting    *informer.Index[string, *v1.Tenant] // by the names of namespaces
	shared     *informer.Referenced[*corev1.Secret]
	namespaces children[*corev1.Namespace]
	quotas     children[*corev1.ResourceQuota]
	limits     children[*corev1.LimitRange]
	policies   children[*networkingv1.NetworkPolicy]
	accounts   children[*corev1.ServiceAccount]
	secrets    children[*corev1.Secret]
	bindings   children[*rbacv1.RoleBinding]
}

// lastWord undoes what other clients set in the fields that the operator sets.
var lastWord = metav1.ApplyOptions{FieldManager: name, Force: true}

// Reconcile makes what a Tenant has what it should be, and takes it down when the Tenant is being deleted.
func (r *reconciler) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	tenant, ok := r.tenants.Cache.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	owner := objects.NewOwner(r.tenants, tenant, r.tenants.GroupVersionKind()).ByLabel(v1.OwnerLabel)
	tenant, alive, err := objects.Finalize(ctx, r.tenants, tenant, v1.Finalizer,
		func(ctx context.Context) (gone bool, err error) {
			left, err := r.apply(ctx, owner, tenant, nil, nil, nil)
			if err != nil || len(left) == 0 {
				return err == nil, err
			}
			return false, r.report(ctx, tenant, v1.ReasonCleaningUp, describe(left[0]))
		})
	if err != nil || !alive {
		return reconcile.Result{}, err
	}
	var shared *corev1.Secret
	for _, name := range r.sharedOf(tenant) {
		if shared, _, err = r.shared.Get(name); err != nil {
			return reconcile.Result{}, err
		}
	}
	wanted := namespacesOf(tenant)
	homes := r.homes(tenant, wanted)
	reason, message, err := judge(r.apply(ctx, owner, tenant, wanted, homes, shared))
	switch {
	case reason != v1.ReasonProvisioned:
	case len(homes) < len(wanted):
		reason, message = v1.ReasonProgressing, "the namespaces are new" // they bring the key back
	case tenant.Spec.PullSecret != "" && shared == nil:
		reason, message = v1.ReasonSecretMissing, "there is no Secret "+r.platform+"/"+tenant.Spec.PullSecret
	}
	return reconcile.Result{}, errors.Join(err, r.report(ctx, tenant, reason, message))
}

// apply makes the namespaces of a Tenant what is wanted, and what is in its homes. Where a namespace is not wanted any
// more its binding goes first, so that nobody works there. All else goes with the namespace, and not before the pods
// that it holds back.
func (r *reconciler) apply(ctx context.Context, owner *objects.Owner, t *v1.Tenant, wanted, homes []string,
	shared *corev1.Secret) ([]objects.Outcome, error) {
	each := func(namespaces []string, config func(*v1.Tenant, string) any) (configs []any) {
		for _, namespace := range namespaces {
			configs = append(configs, config(t, namespace))
		}
		return configs
	}
	var copies []any
	if shared != nil {
		copies = each(homes, secretCopy(shared))
	}
	return objects.ApplySet(ctx, owner, lastWord,
		objects.Children(r.namespaces.In, r.namespaces.of(t), each(wanted, home)...),
		objects.Children(r.quotas.In, r.quotas.within(t, homes), each(homes, quota)...).Exactly(".spec.hard"),
		objects.Children(r.limits.In, r.limits.within(t, homes), each(homes, limitRange)...),
		objects.Children(r.policies.In, r.policies.within(t, homes), each(homes, policy)...),
		objects.Children(r.accounts.In, r.accounts.within(t, homes), each(homes, account)...),
		objects.Children(r.secrets.In, r.secrets.within(t, homes), copies...).Exactly(".data").
			Replace(metav1.DeletePropagationBackground),
		objects.Children(r.bindings.In, r.bindings.of(t), each(homes, binding)...).
			Replace(metav1.DeletePropagationBackground))
}

// homes returns those of the namespaces that the Tenant has. Nothing is made in any other: it may be somebody else's.
func (r *reconciler) homes(t *v1.Tenant, wanted []string) (homes []string) {
	for o := range r.namespaces.of(t) {
		if o.DeletionTimestamp == nil && slices.Contains(wanted, o.Name) {
			homes = append(homes, o.Name)
		}
	}
	slices.Sort(homes)
	return homes
}

// sharedOf returns the Secret of the platform that a Tenant names.
func (r *reconciler) sharedOf(t *v1.Tenant) []reconcile.Key {
	if t.Spec.PullSecret == "" {
		return nil
	}
	return []reconcile.Key{{Namespace: r.platform, Name: t.Spec.PullSecret}}
}

// judge says what has come out. It returns the error if another try can help: what the server refuses waits for a
// change of the Tenant.
func judge(outcomes []objects.Outcome, err error) (reason, message string, again error) {
	var taken *objects.TakenError
	refused := len(outcomes) > 0
	reason, message = v1.ReasonProvisioned, "everything is as it should be"
	for _, o := range outcomes {
		if o.Err != nil && !apierrors.IsInvalid(o.Err) {
			refused = false
		}
		if o.Effect == objects.Replacing || o.Effect == objects.Deleting {
			reason, message = v1.ReasonProgressing, describe(o)
		}
	}
	switch {
	case err == nil:
		return reason, message, nil
	case refused:
		return v1.ReasonRefused, err.Error(), nil
	case errors.As(err, &taken):
		return v1.ReasonNameTaken, err.Error(), err
	}
	return v1.ReasonFailed, err.Error(), err
}

func describe(o objects.Outcome) string { return fmt.Sprintf("%s %s: %s", o.Kind, o.Key, o.Effect) }

// report writes the status if it changes.
func (r *reconciler) report(ctx context.Context, tenant *v1.Tenant, reason, message string) error {
	ready := metav1.ConditionFalse
	if reason == v1.ReasonProvisioned {
		ready = metav1.ConditionTrue
	}
	var names []string
	for o := range r.namespaces.of(tenant) {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	_, err := objects.UpdateStatus(ctx, r.tenants, tenant, func(t *v1.Tenant) error {
		t.Status.ObservedGeneration, t.Status.Namespaces = t.Generation, names
		return objects.SetCondition(&t.Status.Conditions, t.Generation,
			metav1.Condition{Type: v1.Ready, Status: ready, Reason: reason, Message: message})
	})
	return err
}
