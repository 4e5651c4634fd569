package sharding_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

// replica is what main does: it runs until ctx ends, and each key runs in one of the replicas. base says how to reach
// the API server.
func replica(ctx context.Context, base *rest.Config, name string, did func(replica string, key reconcile.Key)) error {
	shards, err := sharding.New(sharding.Options{REST: base, Namespace: "default", Name: "greeter", Identity: name,
		By: sharding.ByKey, // keys of one namespace do not depend on each other
		// Short, for an example that takes 2 s. The defaults are right for most programs.
		LeaseDuration: time.Second, RenewDeadline: 500 * time.Millisecond, RetryPeriod: 100 * time.Millisecond,
		StopGrace: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	cfg, err := reconcile.ClientConfig(base, shards)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	greetings, err := informer.New[*corev1.ConfigMap](clients.CoreV1().ConfigMaps(""),
		informer.Options[*corev1.ConfigMap]{Shard: sharding.Keys(shards)}) // of its own keys only
	if err != nil {
		return err
	}
	greeter, err := reconcile.NewController("greeter", reconcile.Func(
		func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
			did(name, key)
			return reconcile.Result{RequeueAfter: time.Minute}, nil
		}), reconcile.Options{})
	if err != nil {
		return err
	}
	reconcile.For(greeter, greetings)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{greeter},
		Elector: shards})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// Three replicas share 50 keys. In a cluster each of them is a process.
func Example() {
	server, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	clients := kubernetes.NewForConfigOrDie(server.Config())
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{})) // without a log
	defer stop()
	for i := range 50 {
		name := metav1.ObjectMeta{Name: fmt.Sprint("hello-", i)}
		_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: name},
			metav1.CreateOptions{})
		if err != nil {
			log.Fatal(err)
		}
	}
	var mu sync.Mutex
	at := map[reconcile.Key]string{} // where each key has run last
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		all.Go(func() {
			err := replica(ctx, server.Config(), name, func(replica string, key reconcile.Key) {
				mu.Lock()
				defer mu.Unlock()
				at[key] = replica
				if len(at) == 50 && len(slices.Compact(slices.Sorted(maps.Values(at)))) == 3 {
					stop()
				}
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	all.Wait()
	fmt.Println("all keys have run, and all replicas are at work")
	// Output: all keys have run, and all replicas are at work
}
