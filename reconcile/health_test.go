package reconcile

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/fakeapi"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TestHealthHasNoTextOfAnError: whoever can connect may read it, and the server's errors name users and objects.
func TestHealthHasNoTextOfAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New[*corev1.ConfigMap](func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
		api.BeforeList = func(metav1.ListOptions) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("canary"))
		}
		inf, err := informer.New[*corev1.ConfigMap](api,
			informer.Options[*corev1.ConfigMap]{Name: "configmaps", DisableWatchList: true})
		require.NoError(t, err)
		m, err := NewManager(ManagerOptions{Informers: []Informer{inf}, ErrorTexts: true,
			Beside:  map[string]func(context.Context) error{"a": func(context.Context) error { return nil }},
			Elector: &ailing{err: apierrors.NewUnauthorized("canary")}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		time.Sleep(time.Minute)
		m.ready.Store(nil)
		m.progress.enter(status.StageCampaigning)
		status := m.Inspect()
		require.Equal(t, []string{"informer configmaps: Denied because of 403 Forbidden",
			"this process could not lead because of 401 Unauthorized"}, status.NotReady)
		require.Equal(t, []string{"the Elector's Check fails because of 401 Unauthorized"}, status.NotHealthy)
		stop()
		require.NoError(t, <-done)
	})
}

// ailing is an Elector that can neither lead nor live.
type ailing struct {
	Elector // nil, for nobody runs it
	err     error
}

func (a *ailing) Check(req *http.Request) error { _ = req.URL.Path; return a.err }
func (a *ailing) Ready() error                  { return a.err }

func TestAManagerIsNotReadyWhileItsElectorIsNot(t *testing.T) {
	elector := &ailing{err: errors.New("not allowed to get the lease")}
	m, err := NewManager(ManagerOptions{Elector: elector,
		Beside: map[string]func(context.Context) error{"a": func(context.Context) error { return nil }}})
	require.NoError(t, err)
	require.Equal(t, []string{"not started"}, m.notReady())
	m.ready.Store(nil)
	require.Equal(t, []string{"this process could not lead because of an error of type *errors.errorString (see the " +
		"log)"}, m.notReady())
	elector.err = nil
	require.Empty(t, m.notReady())
}
