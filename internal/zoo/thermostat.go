package zoo

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// onThermostat runs a reconciler on this library.
func onThermostat(ctx context.Context, cfg *rest.Config, r reconciler) error {
	cfg.Wrap(reconcile.TrackWrites)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	caches := map[string]*informer.SharedIndexInformer[*object]{}
	for name := range kinds {
		caches[name], err = informer.New[*object](client.Resource(resource(name)), informer.Options[*object]{})
		if err != nil {
			return err
		}
	}
	w := &world{client: client,
		get: func(name, namespace, of string) *object {
			o, ok := caches[name].Get(informer.Key{Namespace: namespace, Name: of})
			if !ok {
				return nil
			}
			return o
		},
		list: func(name, namespace, cluster string) []*object {
			var found []*object
			for o := range caches[name].All() {
				if o.GetNamespace() == namespace && o.GetLabels()["cluster"] == cluster {
					found = append(found, o)
				}
			}
			return byName(found)
		}}
	c, err := reconcile.NewController("zoo", reconcile.Func(
		func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			after, err := r.call(ctx, w, types.NamespacedName(key))
			return reconcile.Result{RequeueAfter: after}, err
		}), reconcile.Options{})
	if err != nil {
		return err
	}
	for name, cache := range caches {
		if name == clusters {
			reconcile.For(c, cache)
			continue
		}
		reconcile.Watches(c, cache, func(o *object) []reconcile.Key {
			return []reconcile.Key{{Namespace: o.GetNamespace(), Name: o.GetLabels()["cluster"]}}
		})
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}
