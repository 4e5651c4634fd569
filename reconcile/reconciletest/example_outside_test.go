package reconciletest_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// cloud stands in for an API that has buckets: by identifiers, who has each.
type cloud struct {
	buckets map[string]string
	made    int
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id := req.URL.Path[len("/buckets/"):]
	switch req.Method {
	case http.MethodPost: // the cloud draws an identifier
		c.made++
		id = fmt.Sprintf("bucket-%d", c.made)
		c.buckets[id] = req.URL.Query().Get("owner")
		fmt.Fprint(w, id)
	case http.MethodPut:
		c.buckets[id] = req.URL.Query().Get("owner")
	case http.MethodDelete:
		delete(c.buckets, id)
	}
}

// State says how many buckets each owner has, and leaves out what they are called.
func (c *cloud) State() any {
	count := map[string]int{}
	for _, owner := range c.buckets {
		count[owner]++
	}
	return count
}

// runBuckets is what main calls: the controller gives each ConfigMap a bucket in the cloud.
func runBuckets(ctx context.Context, cfg *rest.Config) error {
	cfg.Wrap(reconcile.TrackWrites)
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	all, err := informer.New[*corev1.ConfigMap](core.CoreV1().ConfigMaps(metav1.NamespaceAll),
		informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		return err
	}
	sync := func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
		owner, ok := all.Get(key)
		if !ok {
			return reconcile.Result{}, nil
		}
		// Its name is known before it is made. So a request that comes again makes no second one, and what was made
		// can be deleted whether or not the answer has come.
		bucket := "https://cloud.example.com/buckets/" + string(owner.UID)
		_, alive, err := objects.Finalize(ctx, core.CoreV1().ConfigMaps(key.Namespace), owner, "example.com/bucket",
			func(ctx context.Context) (bool, error) { return true, ask(ctx, http.MethodDelete, bucket) })
		if err != nil || !alive {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, ask(ctx, http.MethodPut, bucket+"?owner="+key.Name)
	}
	c, err := reconcile.NewController("buckets", reconcile.Func(sync), reconcile.Options{})
	if err != nil {
		return err
	}
	reconcile.For(c, all)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

func ask(ctx context.Context, method, url string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return nil
}

// testBuckets is TestBuckets in a test file of yours.
func testBuckets(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: runBuckets,
		Outside: map[string]func() reconciletest.API{
			"cloud.example.com": func() reconciletest.API { return &cloud{buckets: map[string]string{}} },
		},
		Steps: append(reconciletest.ApplyYAML(
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: photos}}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: music}}"),
			reconciletest.Delete("configmaps", "default", "photos")),
	})
}

// A controller that makes something in a cloud, which loses answers and does not answer, while the controller crashes.
// In the end each object has one bucket, and what was deleted has none.
func ExampleCheck_outside() {
	var t *testing.T // that of your TestBuckets
	testBuckets(t)
}
