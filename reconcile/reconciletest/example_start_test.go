package reconciletest_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A server in a program that is no test: its client loses an answer, and the server has made the object all the same.
func ExampleStart() {
	server, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	link := server.Link()
	link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.LoseAnswer })
	_, err = kubernetes.NewForConfigOrDie(link.Config()).CoreV1().ConfigMaps("default").Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}},
		metav1.CreateOptions{})
	fmt.Println(err != nil)
	made, ok := reconciletest.Get[*corev1.ConfigMap](server, "configmaps", "default", "a")
	fmt.Println(ok, made.Data)
	// Output:
	// true
	// true map[k:v]
}
