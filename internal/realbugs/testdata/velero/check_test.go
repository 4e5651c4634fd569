package check

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// location is one of backups.
func location(name, bucket, more string) string {
	return fmt.Sprintf(`
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: %s, namespace: velero}
spec:
  provider: aws
  objectStorage: {bucket: %s}
  %s
---
`, name, bucket, more)
}

const locationResource = "backupstoragelocations"

// without removes times from the status of objects that are times by design: when something was done last.
func without(kind, field string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if o.GetKind() == kind {
			unstructured.RemoveNestedField(o.Object, "status", field)
		}
	}
}

// reports stands in for another controller of Velero: it gives a phase to each object of a resource that has none.
func reports(resource, phase string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		of := velerov1.SchemeGroupVersion.WithResource(resource)
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 30*time.Second)
		report := func(o any) {
			u := o.(*unstructured.Unstructured)
			if is, _, _ := unstructured.NestedString(u.Object, "status", "phase"); is != "" {
				return
			}
			// The next resync tries it again.
			_, _ = client.Resource(of).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
				[]byte(fmt.Sprintf(`{"status":{"phase":%q}}`, phase)), metav1.PatchOptions{})
		}
		if _, err := factory.ForResource(of).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: report, UpdateFunc: func(_, o any) { report(o) }}); err != nil {
			return err
		}
		factory.Start(ctx.Done())
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}
}

// TestSchedule: a backup is made each hour. One schedule is invalid at first, another one is deleted.
func TestSchedule(t *testing.T) {
	of := func(name, when, namespace string) string {
		return fmt.Sprintf(`
apiVersion: velero.io/v1
kind: Schedule
metadata: {name: %s, namespace: velero}
spec:
  schedule: %q
  template: {includedNamespaces: [%s], ttl: 720h}
---
`, name, when, namespace)
	}
	check(t, schedules, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{reports("backups", "Completed")},
		Steps: append(reconciletest.ApplyYAML(of("web", "0 * * * *", "web")+of("bad", "now and then", "bad")+
			of("old", "30 3 1 * *", "old")), reconciletest.Wait(70*time.Minute),
			reconciletest.ApplyYAML(of("web", "0 * * * *", "shop") + of("bad", "15 4 * * 0", "bad"))[0],
			reconciletest.Delete("schedules", system, "old"), reconciletest.Wait(70*time.Minute)),
		Mask: without("Schedule", "lastBackup"),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for _, name := range []string{"web", "bad"} {
				o, err := there[*velerov1.Schedule](s, "schedules", system, name)
				if err != nil {
					return err
				}
				errs = append(errs, want("phase of "+name, o.Status.Phase, velerov1.SchedulePhaseEnabled),
					want("errors of "+name, len(o.Status.ValidationErrors), 0))
			}
			made := 0
			for _, b := range reconciletest.List[*velerov1.Backup](s, "backups", system) {
				if b.Labels[velerov1.ScheduleNameLabel] == "web" {
					made++
				}
			}
			return errors.Join(append(errs, want("there are backups of web", made > 0, true),
				gone[*velerov1.Schedule](s, "schedules", system, "old"))...)
		},
	}, "schedules", "backups")
}

// TestBackupStorageLocation: whether a location can be used is looked at each minute.
func TestBackupStorageLocation(t *testing.T) {
	check(t, locations, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(location("default", "ours", "default: true")+
			location("second", "missing", "validationFrequency: 5m")+location("old", "theirs", ""),
			location("second", "theirs", "validationFrequency: 2m")),
			reconciletest.Delete(locationResource, system, "old"),
			reconciletest.ApplyYAML(location("third", "missing", ""))[0]),
		Mask: without("BackupStorageLocation", "lastValidationTime"),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for name, phase := range map[string]velerov1.BackupStorageLocationPhase{
				"default": velerov1.BackupStorageLocationPhaseAvailable,
				"second":  velerov1.BackupStorageLocationPhaseAvailable,
				"third":   velerov1.BackupStorageLocationPhaseUnavailable} {
				l, err := there[*velerov1.BackupStorageLocation](s, locationResource, system, name)
				if err != nil {
					return err
				}
				errs = append(errs, want("phase of "+name, l.Status.Phase, phase))
			}
			return errors.Join(append(errs,
				gone[*velerov1.BackupStorageLocation](s, locationResource, system, "old"))...)
		},
	}, locationResource)
}

// TestBackupSync: what is in the store comes to the cluster, and what is there no more goes from it.
func TestBackupSync(t *testing.T) {
	const foreign = `
apiVersion: velero.io/v1
kind: Backup
metadata: {name: friday, namespace: velero, labels: {velero.io/storage-location: default}}
spec: {storageLocation: default, includedNamespaces: [web]}
status: {phase: Completed}
---
apiVersion: velero.io/v1
kind: Backup
metadata: {name: running, namespace: velero, labels: {velero.io/storage-location: default}}
spec: {storageLocation: default, includedNamespaces: [web]}
status: {phase: InProgress}
---
`
	check(t, synced, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{reports(locationResource, "Available")},
		Steps: append(reconciletest.ApplyYAML(location("default", "ours", "default: true")+
			location("second", "theirs", "backupSyncPeriod: 0s")),
			reconciletest.Wait(3*time.Minute), reconciletest.ApplyYAML(foreign)[0],
			reconciletest.Wait(3*time.Minute), reconciletest.Delete("backups", system, "monday"),
			reconciletest.Wait(3*time.Minute)),
		Mask: without("BackupStorageLocation", "lastSyncedTime"),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for _, name := range []string{"monday", "tuesday"} {
				b, err := there[*velerov1.Backup](s, "backups", system, name)
				if err != nil {
					return err
				}
				errs = append(errs, want("location of "+name, b.Spec.StorageLocation, "default"))
			}
			_, err := there[*velerov1.Backup](s, "backups", system, "running")
			return errors.Join(append(errs, err, gone[*velerov1.Backup](s, "backups", system, "friday"),
				gone[*velerov1.Backup](s, "backups", system, "sunday"))...)
		},
	}, locationResource, "backups", "schedules", "podvolumebackups")
}

// TestDownloadRequest: a request gets its URL, and goes ten minutes later.
func TestDownloadRequest(t *testing.T) {
	const stored = `
apiVersion: velero.io/v1
kind: Backup
metadata: {name: monday, namespace: velero}
spec: {storageLocation: default, includedNamespaces: [web]}
status: {phase: Completed}
---
apiVersion: velero.io/v1
kind: Restore
metadata: {name: again, namespace: velero}
spec: {backupName: monday}
status: {phase: Completed}
---
`
	request := func(name, kind, target string) string {
		return fmt.Sprintf(`
apiVersion: velero.io/v1
kind: DownloadRequest
metadata: {name: %s, namespace: velero}
spec: {target: {kind: %s, name: %s}}
---
`, name, kind, target)
	}
	check(t, downloads, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(location("default", "ours", "default: true")+stored,
			request("log", "BackupLog", "monday")+request("results", "RestoreResults", "again"),
			request("contents", "BackupContents", "monday")), reconciletest.Wait(5*time.Minute),
			reconciletest.Delete("downloadrequests", system, "results"), reconciletest.Wait(20*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			all := reconciletest.List[*velerov1.DownloadRequest](s, "downloadrequests", system)
			return want("requests", len(all), 0)
		},
		Always: func(w reconciletest.Write, s *reconciletest.Server) error {
			if w.New == nil || w.New.GetKind() != "DownloadRequest" {
				return nil
			}
			phase, _, _ := unstructured.NestedString(w.New.Object, "status", "phase")
			url, _, _ := unstructured.NestedString(w.New.Object, "status", "downloadURL")
			return want("a request that is processed has a URL", url != "", phase == "Processed")
		},
	}, locationResource, "backups", "restores", "downloadrequests")
}
