package ctrlruntime_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/ctrlruntime"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A controller of ConfigMaps reads the one Secret that each of them names, of all in the cluster.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, err := reconciletest.Start(reconciletest.Options{Namespaces: []string{"shop"}})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	m, err := ctrl.NewManager(server.Config(), ctrl.Options{Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		log.Fatal(err)
	}
	secrets, err := ctrlruntime.New(m, corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.Options[*corev1.Secret]{})
	if err != nil {
		log.Fatal(err)
	}
	changes, err := ctrlruntime.References(ctx, m, secrets, &corev1.ConfigMap{},
		func(m *corev1.ConfigMap) []client.ObjectKey {
			return []client.ObjectKey{{Namespace: m.Namespace, Name: m.Data["secret"]}}
		})
	if err != nil {
		log.Fatal(err)
	}
	read, configMaps := make(chan string, 1), m.GetClient()
	site := func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		var m corev1.ConfigMap
		if err := configMaps.Get(ctx, r.NamespacedName, &m); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		var s corev1.Secret
		err := secrets.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: m.Data["secret"]}, &s)
		if err == nil {
			select {
			case read <- r.Name + " reads " + string(s.Data["key"]):
			default: // it has been read before
			}
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err = ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).WatchesRawSource(changes).
		Complete(reconcile.Func(site))
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()

	api := kubernetes.NewForConfigOrDie(server.Config()).CoreV1()
	_, err = api.ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "site"},
		Data: map[string]string{"secret": "tls"}}, metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = api.Secrets("shop").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"},
		Data: map[string][]byte{"key": []byte("the key")}}, metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-read)
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: site reads the key
}
