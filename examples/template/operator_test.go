package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/template/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// account is the service account of deploy/rbac.yaml: the tests run with its rights and no others.
var account = reconciletest.ServiceAccount(name, name)

func start(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, "0") }

func greeting(text string) string {
	return fmt.Sprintf("{apiVersion: example.com/v1, kind: Greeting, metadata: {name: a}, spec: {text: %q}}", text)
}

// TestCheck disturbs the operator at each of its requests, in memory and in virtual time.
func TestCheck(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: start,
		Server: reconciletest.Options{CRDs: []string{"deploy/example.com_greetings.yaml"},
			Roles: []string{"deploy/rbac.yaml"}, Namespaces: []string{"default", name}},
		User:  account,
		Steps: reconciletest.ApplyYAML(greeting("hello"), greeting("good evening")),
		Settled: func(s *reconciletest.Server) error {
			m, ok := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "default", "a")
			if !ok || m.Data["text"] != "good evening" {
				return fmt.Errorf("the ConfigMap is %v", m)
			}
			return nil
		},
		Budget: 2 * time.Second,
	})
}

// TestOnAControlPlane needs no cluster: etcd, kube-apiserver and kube-controller-manager are built at the first use,
// which takes minutes.
func TestOnAControlPlane(t *testing.T) {
	c := cluster.Shared(t)
	for _, file := range []string{"namespace", "example.com_greetings", "rbac", "deployment"} {
		text, err := os.ReadFile("deploy/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		objects, err := cluster.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(t.Context(), objects...); err != nil {
			t.Fatal(err)
		}
	}
	cfg := c.Config()
	cfg.Impersonate.UserName = account
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, cfg) }()

	namespace := c.Namespace(t)
	greetings, err := informer.NewResource[*v1.Greeting](c.Config(), v1.GroupVersion.WithResource("greetings"),
		informer.ResourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = greetings.In(namespace).Create(t.Context(), &v1.Greeting{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.GreetingSpec{Text: "hello"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		m, err := c.Client().CoreV1().ConfigMaps(namespace).Get(t.Context(), "a", metav1.GetOptions{})
		if err == nil && m.Data["text"] == "hello" {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("there is no ConfigMap: ", err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
