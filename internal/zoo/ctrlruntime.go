package zoo

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// onControllerRuntime runs a reconciler on a manager of controller-runtime, as its documentation shows.
func onControllerRuntime(ctx context.Context, cfg *rest.Config, r reconciler) error {
	again := true // one process has many managers here, and their controllers one name
	m, err := ctrl.NewManager(cfg, ctrl.Options{Logger: logr.Discard(),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true}}})
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(cfg, m.GetHTTPClient())
	if err != nil {
		return err
	}
	w := &world{client: dynamicClient,
		get: func(name, namespace, of string) *object {
			o := &object{}
			o.SetGroupVersionKind(group.WithKind(kinds[name]))
			if err := m.GetClient().Get(ctx, client.ObjectKey{Namespace: namespace, Name: of}, o); err != nil {
				return nil
			}
			return o
		},
		list: func(name, namespace, cluster string) []*object {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(group.WithKind(kinds[name] + "List"))
			if err := m.GetClient().List(ctx, list, client.InNamespace(namespace),
				client.MatchingLabels{"cluster": cluster}); err != nil {
				return nil
			}
			var all []*object
			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
			return byName(all)
		}}
	of := func(name string) *object {
		o := &object{}
		o.SetGroupVersionKind(group.WithKind(kinds[name]))
		return o
	}
	b := ctrl.NewControllerManagedBy(m).Named("zoo").For(of(clusters))
	for name := range kinds {
		if name == clusters {
			continue
		}
		b = b.Watches(of(name), handler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, o client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(),
					Name: o.GetLabels()["cluster"]}}}
			}))
	}
	err = b.Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		after, err := r.call(ctx, w, req.NamespacedName)
		return reconcile.Result{RequeueAfter: after}, err
	}))
	if err != nil {
		return err
	}
	return m.Start(ctx)
}
