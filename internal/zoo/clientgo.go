package zoo

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

func byName(objects []*object) []*object {
	slices.SortFunc(objects, func(a, b *object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return objects
}

// onClientGo runs a reconciler on client-go's informers and its queue, as the documentation of client-go shows.
func onClientGo(ctx context.Context, cfg *rest.Config, r reconciler) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	defer queue.ShutDown()
	listers := map[string]cache.GenericLister{}
	var synced []cache.InformerSynced
	for name := range kinds {
		informer := factory.ForResource(resource(name))
		listers[name] = informer.Lister()
		name := name
		add := func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			u := o.(*object)
			key := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
			if name != clusters {
				key.Name = u.GetLabels()["cluster"]
			}
			queue.Add(key)
		}
		handle, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add,
			UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add})
		if err != nil {
			return err
		}
		synced = append(synced, handle.HasSynced)
	}
	w := &world{client: client,
		get: func(name, namespace, of string) *object {
			o, err := listers[name].ByNamespace(namespace).Get(of)
			if err != nil {
				return nil
			}
			return o.(*object)
		},
		list: func(name, namespace, cluster string) []*object {
			found, err := listers[name].ByNamespace(namespace).List(
				labels.SelectorFromSet(labels.Set{"cluster": cluster}))
			if err != nil {
				return nil
			}
			var all []*object
			for _, o := range found {
				all = append(all, o.(*object))
			}
			return byName(all)
		}}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		key, ended := queue.Get()
		if ended {
			return nil
		}
		runCtx, cancel := context.WithTimeout(ctx, time.Minute)
		if after, err := r.call(runCtx, w, key); err != nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
			if after > 0 {
				queue.AddAfter(key, after)
			}
		}
		cancel()
		queue.Done(key)
	}
}
