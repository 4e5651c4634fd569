package migrating

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/controllerruntime/migrating/v1"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestThePageHasThisCode finds each block of Go of the page in a file of this package, but for the indentation.
func TestThePageHasThisCode(t *testing.T) {
	page, err := os.ReadFile("../../../reconcile/MIGRATING.md")
	require.NoError(t, err)
	var code strings.Builder
	for _, name := range []string{"controllerruntime.go", "thermostat.go", "clientgo.go"} {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		code.WriteString(flush(string(file)))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(blocks), 10)
	for _, block := range blocks {
		for _, part := range strings.Split(block[1], "\n...\n") {
			require.Contains(t, code.String(), flush(part))
		}
	}
}

// flush takes the indentation away.
func flush(code string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(code, "") }

// TestBothPrograms has them do the same.
func TestBothPrograms(t *testing.T) {
	// In a bubble nothing listens: time would stand still.
	for name, program := range map[string]program{
		"controller-runtime": func(ctx context.Context, c *rest.Config,
			dns names) error {
			return theirs(ctx, c, dns, "0")
		},
		"thermostat": func(ctx context.Context, c *rest.Config,
			dns names) error {
			return ours(ctx, c, dns, "0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { serveWebsites(t, program) })
		})
	}
}

type program func(ctx context.Context, cfg *rest.Config, dns names) error

func serveWebsites(t *testing.T, program program) {
	server := reconciletest.NewServer(t, reconciletest.Options{CRDs: []string{"testdata/crd"}})
	dns := &registry{names: map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- program(ctx, server.Link().Config(), dns) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	admin := kubernetes.NewForConfigOrDie(server.Config()).AppsV1().Deployments("default")
	sites, err := informer.NewResource[*v1.Website](server.Config(), v1.GroupVersion.WithResource("websites"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	mine := sites.In("default")
	settle := func() { time.Sleep(time.Minute) } // of the bubble

	_, err = mine.Create(ctx, &v1.Website{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1.WebsiteSpec{Image: "shop:1", Replicas: 2},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	settle()
	d, err := admin.Get(ctx, "shop", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "shop:1", d.Spec.Template.Spec.Containers[0].Image)
	require.Equal(t, "Website", metav1.GetControllerOf(d).Kind)
	require.True(t, dns.has("shop"))
	require.Equal(t, metav1.ConditionFalse, ready(t, mine))

	d.Status.Replicas, d.Status.ReadyReplicas = 2, 2
	_, err = admin.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = mine.Patch(ctx, "shop", types.MergePatchType, []byte(`{"spec":{"image":"shop:2"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	settle()
	d, err = admin.Get(ctx, "shop", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "shop:2", d.Spec.Template.Spec.Containers[0].Image)
	require.Equal(t, metav1.ConditionTrue, ready(t, mine))

	require.NoError(t, mine.Delete(ctx, "shop", metav1.DeleteOptions{}))
	settle()
	require.False(t, dns.has("shop"))
	require.Empty(t, reconciletest.List[*v1.Website](server, "websites", ""))
	require.Empty(t, reconciletest.List[*appsv1.Deployment](server, "deployments", ""))
}

func ready(t *testing.T, sites *informer.Resource[*v1.Website]) metav1.ConditionStatus {
	site, err := sites.Get(t.Context(), "shop", metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, site.Status.Conditions, 1)
	require.Equal(t, site.Generation, site.Status.Conditions[0].ObservedGeneration)
	return site.Status.Conditions[0].Status
}

type registry struct {
	mu    sync.Mutex
	names map[string]bool
}

func (r *registry) Register(_ context.Context, name string) error { return r.set(name, true) }
func (r *registry) Remove(_ context.Context, name string) error   { return r.set(name, false) }

func (r *registry) set(name string, there bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[name] = there
	return nil
}

func (r *registry) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[name]
}
