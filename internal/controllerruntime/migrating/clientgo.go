//lint:file-ignore U1000 some of it is there for MIGRATING.md only

package migrating

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/clientgo"
	"github.com/thermostat-go/thermostat/reconcile"
)

// byHand is a controller that is written with client-go's informers and queue.
func byHand(ctx context.Context, clients kubernetes.Interface, work func(context.Context, *corev1.Pod) error) error {
	factory := informers.NewSharedInformerFactory(clients, 0)
	pods := factory.Core().V1().Pods()
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	add := func(o any) {
		if key, err := cache.DeletionHandlingObjectToName(o); err == nil {
			queue.Add(key)
		}
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add,
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		return ctx.Err()
	}
	var workers sync.WaitGroup
	for range 5 {
		workers.Go(func() {
			for key, end := queue.Get(); !end; key, end = queue.Get() {
				pod, err := pods.Lister().Pods(key.Namespace).Get(key.Name)
				if err == nil {
					err = work(ctx, pod)
				}
				if err != nil && !apierrors.IsNotFound(err) {
					klog.FromContext(ctx).Error(err, "Will try again", "pod", key)
					queue.AddRateLimited(key)
				} else {
					queue.Forget(key)
				}
				queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDownWithDrain()
	workers.Wait()
	return nil
}

// withLibrary is the same controller written with thermostat.
func withLibrary(ctx context.Context, base *rest.Config, work func(context.Context, *corev1.Pod) error) error {
	cfg, err := reconcile.ClientConfig(base)
	if err != nil {
		return err
	}
	resource, err := informer.NewResource[*corev1.Pod](cfg, corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	if err != nil {
		return err
	}
	pods, err := informer.New(resource, informer.Options[*corev1.Pod]{})
	if err != nil {
		return err
	}
	r := reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		pod, ok := pods.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, work(ctx, pod)
	})
	c, err := reconcile.NewController("pods", r, reconcile.Options{Workers: 5})
	if err != nil {
		return err
	}
	reconcile.For(c, pods)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// factoryWithOurInformers is a factory of client-go whose informer of pods is one of package clientgo.
func factoryWithOurInformers(clients kubernetes.Interface) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(clients, 0)
	factory.InformerFor(&corev1.Pod{}, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, o)
			},
		}, c)
		return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	return factory
}
