package check

import (
	"context"
	"errors"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	mariadbv1alpha1 "github.com/mariadb-operator/mariadb-operator/api/v1alpha1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// database is one, with the password of its root.
const database = `
apiVersion: v1
kind: Secret
metadata: {name: mariadb, namespace: default}
stringData: {root-password: secret}
---
apiVersion: k8s.mariadb.com/v1alpha1
kind: MariaDB
metadata: {name: mariadb, namespace: default}
spec:
  image: docker-registry1.mariadb.com/library/mariadb:11.4.5
  rootPasswordSecretKeyRef: {name: mariadb, key: root-password}
  storage: {size: 1Gi}
---
`

// backup is one of the database.
func backup(name, storage string, tries int) string {
	return fmt.Sprintf(`
apiVersion: k8s.mariadb.com/v1alpha1
kind: Backup
metadata: {name: %s, namespace: default}
spec:
  mariaDbRef: {name: mariadb, waitForIt: true}
  storage: {%s}
  backoffLimit: %d
---
`, name, storage, tries)
}

const (
	claim = "persistentVolumeClaim: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}"
	share = "volume: {nfs: {server: nas.example.com, path: /backups}}"
)

// done returns an error unless an object controls its Job, which has its tries. Nobody needs the account of the Job any
// more when that is complete.
func done(s *reconciletest.Server, owner metav1.Object, tries int32) error {
	name := owner.GetName()
	job, err := there[*batchv1.Job](s, "jobs", "default", name)
	if err != nil {
		return err
	}
	return errors.Join(want("tries of "+name, *job.Spec.BackoffLimit, tries),
		want(name+" controls its Job", metav1.IsControlledBy(job, owner), true))
}

// TestBackup: each backup is a Job. One gets more tries, another one goes, but for the claim that has what was backed
// up, and a third one comes.
func TestBackup(t *testing.T) {
	check(t, backups, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{reports("mariadbs", mariadbv1alpha1.ConditionTypeReady)},
		Steps: append(reconciletest.ApplyYAML(database+backup("first", claim, 3)+backup("old", claim, 3),
			backup("first", claim, 6)), reconciletest.Delete("backups", "default", "old"),
			reconciletest.ApplyYAML(backup("second", share, 3))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*mariadbv1alpha1.Backup](s, "backups", "default", "old"),
				gone[*batchv1.Job](s, "jobs", "default", "old")}
			for name, tries := range map[string]int32{"first": 6, "second": 3} {
				b, err := there[*mariadbv1alpha1.Backup](s, "backups", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want(name+" is complete", b.IsComplete(), true), done(s, b, tries))
			}
			return errors.Join(errs...)
		},
	})
}

// TestRestore: each restore of a backup is a Job. One gets more tries, another one goes, and a third one comes with its
// backup.
func TestRestore(t *testing.T) {
	restore := func(name, of string, tries int) string {
		return fmt.Sprintf(`
apiVersion: k8s.mariadb.com/v1alpha1
kind: Restore
metadata: {name: %s, namespace: default}
spec:
  mariaDbRef: {name: mariadb}
  backupRef: {name: %s}
  targetRecoveryTime: "2026-06-01T12:00:00Z"
  backoffLimit: %d
---
`, name, of, tries)
	}
	check(t, restores, reconciletest.Scenario{
		Beside: []func(context.Context, *rest.Config) error{reports("mariadbs", mariadbv1alpha1.ConditionTypeReady),
			reports("backups", mariadbv1alpha1.ConditionTypeComplete)},
		Steps: append(reconciletest.ApplyYAML(database+backup("monday", share, 3)+restore("first", "monday", 3)+
			restore("old", "monday", 3), restore("first", "monday", 6)),
			reconciletest.Delete("restores", "default", "old"),
			reconciletest.ApplyYAML(backup("tuesday", share, 3) + restore("second", "tuesday", 3))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*mariadbv1alpha1.Restore](s, "restores", "default", "old"),
				gone[*batchv1.Job](s, "jobs", "default", "old")}
			for name, tries := range map[string]int32{"first": 6, "second": 3} {
				r, err := there[*mariadbv1alpha1.Restore](s, "restores", "default", name)
				if err != nil {
					return err
				}
				errs = append(errs, want(name+" is complete", r.IsComplete(), true), done(s, r, tries))
			}
			return errors.Join(errs...)
		},
	})
}
