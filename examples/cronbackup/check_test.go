package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/cronbackuptest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// soak is set for the long variants.
var soak = os.Getenv("THERMOSTAT_SOAK") != ""

func cronBackup(schedule string) string {
	return fmt.Sprintf(`
apiVersion: backups.example.com/v1
kind: CronBackup
metadata: {name: orders}
spec: {schedule: %q, targetDatabase: orders.databases.svc}
`, schedule)
}

func backedUp(t *testing.T) reconciletest.Scenario {
	sc := reconciletest.Scenario{
		Run:    startWithWebhooks,
		Server: cronbackuptest.WithWebhooks(cronbackuptest.Manifests(t)),
		User:   cronbackuptest.Account,
		World:  &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 5 * time.Second }},
		Steps:  reconciletest.ApplyYAML(cronBackup("@daily"), cronBackup("99 * * * *"), cronBackup("@daily")),
		Settled: func(s *reconciletest.Server) error {
			b, ok := reconciletest.Get[*v1.CronBackup](s, "cronbackups.backups.example.com", "default", "orders")
			if !ok || len(b.Status.Conditions) == 0 || b.Status.Conditions[0].Reason != v1.ReasonScheduled ||
				b.Status.ObservedGeneration != b.Generation {
				return fmt.Errorf("the CronBackup is %+v", b)
			}
			job, ok := reconciletest.Get[*batchv1.CronJob](s, "cronjobs.batch", "default", "orders")
			if !ok || job.Spec.Schedule != "@daily" || !metav1.IsControlledBy(job, b) {
				return fmt.Errorf("the CronJob is %+v", job)
			}
			return nil
		},
		Always:   keepsBackups,
		Budget:   time.Second,
		Limit:    5 * time.Second,
		Parallel: true,
	}
	if soak {
		sc.Budget, sc.Limit, sc.Seed = 3*time.Minute, 0, uint64(time.Now().UnixNano())
	}
	return sc
}

// keepsBackups is about each write: there is one CronJob, it has an owner, and the finalizer goes when no backup is
// made any more and a Job has cleaned up.
func keepsBackups(w reconciletest.Write, s *reconciletest.Server) error {
	switch w.Resource.Resource {
	case "cronjobs":
		if w.New != nil && metav1.GetControllerOf(w.New) == nil {
			return errors.New("a CronJob without an owner")
		}
		if n := len(reconciletest.List[*batchv1.CronJob](s, "cronjobs.batch", "default")); n > 1 {
			return fmt.Errorf("%d CronJobs for one CronBackup", n)
		}
	case "cronbackups":
		if !slices.Contains(w.Old.GetFinalizers(), v1.Finalizer) ||
			w.New != nil && slices.Contains(w.New.GetFinalizers(), v1.Finalizer) {
			return nil
		}
		if _, ok := reconciletest.Get[*batchv1.CronJob](s, "cronjobs.batch", "default", "orders"); ok {
			return errors.New("the finalizer is gone, and backups are still made")
		}
		job, ok := reconciletest.Get[*batchv1.Job](s, "jobs.batch", "default", "orders-cleanup")
		if !ok || !finished(job, batchv1.JobComplete) {
			return errors.New("the finalizer is gone, and no Job has cleaned up")
		}
	}
	return nil
}

// TestCheck disturbs the operator while a CronBackup gets a schedule that the server refuses, and the first one again.
// A long run does so at each of its requests.
func TestCheck(t *testing.T) { reconciletest.Check(t, backedUp(t)) }

// TestCheckDeletion does the same while a CronBackup is deleted.
func TestCheckDeletion(t *testing.T) {
	s := backedUp(t)
	s.Steps = append(reconciletest.ApplyYAML(cronBackup("@daily")),
		reconciletest.Delete("cronbackups.backups.example.com", "default", "orders"))
	s.Settled = func(s *reconciletest.Server) error {
		if left := reconciletest.List[*unstructured.Unstructured](s, "cronbackups.backups.example.com",
			"default"); len(left) > 0 {
			return fmt.Errorf("the CronBackup is still there: %v", left[0])
		}
		return nil
	}
	reconciletest.Check(t, s)
}
