package clientgo_test

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer/clientgo"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A factory of client-go whose informer of ConfigMaps is one of this library, and reads the bytes itself.
func Example() {
	server, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	clients := kubernetes.NewForConfigOrDie(clientgo.Wire(server.Config()))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if _, err := clients.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}

	factory := informers.NewSharedInformerFactory(clients, 0)
	factory.InformerFor(&corev1.ConfigMap{}, func(clients kubernetes.Interface,
		resync time.Duration) cache.SharedIndexInformer {
		all := clients.CoreV1().ConfigMaps(metav1.NamespaceAll)
		list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) }
		lw := &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: all.Watch}
		return clientgo.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, resync, cache.Indexers{})
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	found, err := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("default").Get("a")
	fmt.Println(found.Name, err)
	stop()
	factory.Shutdown()
	// Output: a <nil>
}
