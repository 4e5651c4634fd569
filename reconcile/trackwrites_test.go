package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// A controller with a custom resource of a version that is not called v1 or the like runs, beside one with a core
// resource.
func TestAnInformerOfAnyVersionIsSeenByTrackWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		ctx := klog.NewContext(t.Context(), log.logger())
		c := newController(t, noting(&journal{}), reconcile.Options{})
		for _, path := range []string{"/api/v1/configmaps", "/apis/g.io/v1api20201101/configmaps", "/v1/things"} {
			opts := informer.Options[*corev1.ConfigMap]{Name: path}
			maps, err := informer.New[*corev1.ConfigMap](asking{newMapAPI(), path}, opts)
			require.NoError(t, err)
			reconcile.DependsOn(c, maps)
		}
		stop := startIn(ctx, t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		lines := fmt.Sprint(log.take())
		named := `"controller"="test" "informer"="/v1/things" "address"="server/v1/things"`
		require.Contains(t, lines, named, "what cannot be tracked")
		require.NotContains(t, lines, "configmaps")
	})
}

// asking is a fake API whose requests pass TrackWrites.
type asking struct {
	*mapAPI
	path string
}

func (a asking) List(ctx context.Context, opts metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return a.mapAPI.List(a.ask(ctx), opts)
}

func (a asking) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return a.mapAPI.Watch(a.ask(ctx), opts)
}

func (a asking) ask(ctx context.Context) context.Context {
	ask(ctx, a.path)
	return ctx
}
