package reconciletest_test

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// keeper is a Reconciler that gives each ConfigMap a Secret of its name.
type keeper struct {
	client  kubernetes.Interface
	maps    *informer.SharedIndexInformer[*corev1.ConfigMap]
	secrets *informer.SharedIndexInformer[*corev1.Secret]
}

func newKeeper(client kubernetes.Interface) (*keeper, error) {
	maps, err := informer.New[*corev1.ConfigMap](client.CoreV1().ConfigMaps("default"),
		informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		return nil, err
	}
	secrets, err := informer.New[*corev1.Secret](client.CoreV1().Secrets("default"), informer.Options[*corev1.Secret]{})
	return &keeper{client, maps, secrets}, err
}

func (k *keeper) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	m, ok := k.maps.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	if _, ok := k.secrets.Get(key); ok {
		return reconcile.Result{}, nil
	}
	_, err := k.client.CoreV1().Secrets(key.Namespace).Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, StringData: m.Data}, metav1.CreateOptions{})
	return reconcile.Result{}, err
}

// testKeeper is TestKeeper in a test file of yours.
func testKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		k, err := newKeeper(client)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- k.maps.Run(t.Context()) }()
		go func() { ended <- k.secrets.Run(t.Context()) }()
		t.Cleanup(func() { <-ended; <-ended })
		synctest.Wait() // the caches are complete, and their watches begun

		for range 2 {
			if _, err := k.Reconcile(t.Context(), reconcile.Key{Namespace: "default", Name: "a"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the cache shows what this call wrote
		}
		created := 0
		for _, action := range client.Actions() {
			if action.GetVerb() == "create" {
				created++
			}
		}
		if created != 1 {
			t.Fatalf("created %d Secrets, and not 1", created)
		}
	})
}

// A Reconciler by itself, with a fake clientset of client-go: for its decisions, not for what becomes of them.
func Example_unit() {
	var t *testing.T // that of your TestKeeper
	testKeeper(t)
}
