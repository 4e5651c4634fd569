// Package check runs each controller of the server of Velero by itself, with the cache, the clients and the defaults of
// the flags of its main. Metrics, profiles and plugins, which are processes, are left out; a store in memory is in the
// place of the object storage.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/set"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vmware-tanzu/velero/internal/storage"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/controller"
	"github.com/vmware-tanzu/velero/pkg/itemoperationmap"
	"github.com/vmware-tanzu/velero/pkg/metrics"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const system = "velero"

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// adds adds a controller to a manager.
type adds func(ctx context.Context, mgr ctrl.Manager, log logrus.FieldLogger) error

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute. definitions are the
// custom resources that it reads.
func check(t *testing.T, add adds, s reconciletest.Scenario, definitions ...string) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, add) }
	s.Server.Kinds, s.Server.Rules, s.Server.Namespaces = builtin.Kinds(), cel.Rules{}, []string{"default", system}
	wanted := set.New(definitions...)
	for _, r := range defined() {
		if wanted.Has(r.Resource) {
			s.Server.Resources = append(s.Server.Resources, r)
		}
	}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// defined are the custom resources of Velero.
var defined = sync.OnceValue(func() (all []reconciletest.Resource) {
	files, err := filepath.Glob("crd/*.yaml")
	for _, file := range files {
		data, err2 := os.ReadFile(file)
		some, err3 := reconciletest.ReadCRDs(data)
		err, all = errors.Join(err, err2, err3), append(all, some...)
	}
	if err != nil {
		panic(err)
	}
	return all
})

func run(ctx context.Context, cfg *rest.Config, add adds) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 100, 100
	scheme := runtime.NewScheme()
	for _, to := range []func(*runtime.Scheme) error{velerov1.AddToScheme, velerov2alpha1.AddToScheme,
		corev1.AddToScheme, batchv1.AddToScheme, appsv1.AddToScheme} {
		if err := to(scheme); err != nil {
			return err
		}
	}
	again := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{system: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	if err := add(ctx, mgr, log); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func schedules(_ context.Context, mgr ctrl.Manager, log logrus.FieldLogger) error {
	return controller.NewScheduleReconciler(system, log, mgr.GetClient(), metrics.NewServerMetrics(), false).
		SetupWithManager(mgr)
}

func locations(ctx context.Context, mgr ctrl.Manager, log logrus.FieldLogger) error {
	info := storage.DefaultBackupLocationInfo{StorageLocation: "default", ServerValidationFrequency: time.Minute}
	return controller.NewBackupStorageLocationReconciler(ctx, mgr.GetClient(), info, plugins, stores{},
		metrics.NewServerMetrics(), log).SetupWithManager(mgr)
}

func synced(_ context.Context, mgr ctrl.Manager, log logrus.FieldLogger) error {
	return controller.NewBackupSyncReconciler(mgr.GetClient(), system, time.Minute, plugins, stores{}, log).
		SetupWithManager(mgr)
}

func downloads(_ context.Context, mgr ctrl.Manager, log logrus.FieldLogger) error {
	return controller.NewDownloadRequestReconciler(mgr.GetClient(), clock.RealClock{}, plugins, stores{}, log,
		itemoperationmap.NewBackupItemOperationsMap(), itemoperationmap.NewRestoreItemOperationsMap()).
		SetupWithManager(mgr)
}

// noPlugins stands in for the manager of the processes of plugins: it has none.
type noPlugins struct{ clientmgmt.Manager }

func (noPlugins) CleanupClients() {}

func plugins(logrus.FieldLogger) clientmgmt.Manager { return noPlugins{} }

// stores has the store of each location, by its bucket.
type stores struct{}

func (stores) Get(l *velerov1.BackupStorageLocation, _ persistence.ObjectStoreGetter, _ logrus.FieldLogger) (
	persistence.BackupStore, error) {
	if l.Spec.ObjectStorage == nil {
		return nil, errors.New("the location has no object storage")
	}
	return store{bucket: l.Spec.ObjectStorage.Bucket}, nil
}

// store is an object storage to which other clusters have written. Nothing changes it.
type store struct {
	persistence.BackupStore
	bucket string
}

// held are the backups in each bucket, with the namespace that each is of.
var held = map[string]map[string]string{"ours": {"monday": "team", "tuesday": "shop"}, "theirs": {"sunday": "team"}}

func (s store) IsValid() error {
	if _, there := held[s.bucket]; !there {
		return errors.New("there is no such bucket")
	}
	return nil
}

func (s store) ListBackups() ([]string, error) {
	if err := s.IsValid(); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(held[s.bucket])), nil
}

func (s store) BackupExists(bucket, name string) (bool, error) {
	_, there := held[bucket][name]
	return there, nil
}

func (s store) GetBackupMetadata(name string) (*velerov1.Backup, error) {
	namespace, there := held[s.bucket][name]
	if !there {
		return nil, errors.New("there is no such backup")
	}
	return &velerov1.Backup{
		TypeMeta:   metav1.TypeMeta{APIVersion: velerov1.SchemeGroupVersion.String(), Kind: "Backup"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "elsewhere", Labels: map[string]string{"of": "elsewhere"}},
		Spec:       velerov1.BackupSpec{StorageLocation: "elsewhere", IncludedNamespaces: []string{namespace}},
		Status:     velerov1.BackupStatus{Phase: velerov1.BackupPhaseCompleted, FormatVersion: "1.1.0"},
	}, nil
}

func (s store) GetPodVolumeBackups(string) ([]*velerov1.PodVolumeBackup, error) { return nil, nil }

func (s store) GetDownloadURL(target velerov1.DownloadTarget) (string, error) {
	text, err := json.Marshal(target)
	return "https://" + s.bucket + ".example.com/" + string(text), err
}
