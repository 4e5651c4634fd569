package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1alpha1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/cronbackuptest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

func TestFill(t *testing.T) {
	filled := func(name, schedule string) string {
		a := &webhook.Admission[*v1.CronBackup]{
			Request: &admissionv1.AdmissionRequest{Namespace: "default", Name: name},
			Object:  &v1.CronBackup{Spec: v1.CronBackupSpec{Schedule: schedule}}}
		require.NoError(t, fill(t.Context(), a))
		return a.Object.Spec.Schedule
	}
	require.Equal(t, "@weekly", filled("a", "@weekly"))
	require.Regexp(t, `^\d+ \d+ \* \* \*$`, filled("a", ""))
	require.Equal(t, filled("a", ""), filled("a", ""))
	require.NotEqual(t, filled("a", ""), filled("b", ""))
}

func TestCheckOfWrites(t *testing.T) {
	backup := func(days int32, skip string) *v1.CronBackup {
		return &v1.CronBackup{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.SkipCleanup: skip}},
			Spec: v1.CronBackupSpec{RetentionDays: days}}
	}
	leaving := backup(7, "maybe")
	leaving.DeletionTimestamp = new(metav1.Now())
	for name, test := range map[string]struct {
		object, old *v1.CronBackup
		wrong       int
	}{
		"good":       {backup(7, "true"), nil, 0},
		"bad":        {backup(7, "maybe"), nil, 1},
		"changed":    {backup(7, "yes"), backup(7, "false"), 1},
		"on its way": {leaving, backup(7, "maybe"), 0},
		"deleted":    {nil, backup(7, "maybe"), 0},
	} {
		wrong, err := check(context.Background(), &webhook.Admission[*v1.CronBackup]{
			Request: &admissionv1.AdmissionRequest{}, Object: test.object, Old: test.old})
		require.NoError(t, err)
		require.Len(t, wrong, test.wrong, name)
	}
}

// TestWebhooksInMemory runs the operator on a server that calls its webhooks, with the certificates that it has made.
func TestWebhooksInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, cronbackuptest.WithWebhooks(cronbackuptest.Manifests(t)))
		link := server.LinkAs(cronbackuptest.Account)
		ctx, stop := context.WithCancel(link.Context(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- startWithWebhooks(ctx, link.Config()) }()
		time.Sleep(time.Minute)
		backups := resource[*v1alpha1.CronBackup](t, server, v1alpha1.GroupVersion.WithResource("cronbackups"))
		b := &v1alpha1.CronBackup{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: v1alpha1.CronBackupSpec{Database: "orders"}}
		_, err := backups.Create(t.Context(), b, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		job, ok := reconciletest.Get[*batchv1.CronJob](server, "cronjobs.batch", "default", "a")
		require.True(t, ok)
		require.Regexp(t, `^\d+ \d+ \* \* \*$`, job.Spec.Schedule)
		stored, ok := reconciletest.Get[*v1.CronBackup](server, "cronbackups", "default", "a")
		require.True(t, ok)
		require.Equal(t, "orders", stored.Spec.TargetDatabase)

		b.Name, b.Annotations = "b", map[string]string{v1.SkipCleanup: "maybe"}
		_, err = backups.Create(t.Context(), b, metav1.CreateOptions{})
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.ErrorContains(t, err, `admission webhook "validate.cronbackups.backups.example.com" denied the request`)

		// Both versions let the same pass.
		b.Annotations = nil
		in := resource[*v1.CronBackup](t, server, v1.GroupVersion.WithResource("cronbackups"))
		for days, good := range map[int32]bool{1: true, 9999: true, 10000: false, -1: false} {
			b.Name, b.Spec.Retention = fmt.Sprint("old", days), fmt.Sprint(days, "d")
			_, err = backups.Create(t.Context(), b, metav1.CreateOptions{})
			require.Equal(t, good, err == nil, "%d days: %v", days, err)
			_, err = in.Create(t.Context(), &v1.CronBackup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("new", days)},
				Spec: v1.CronBackupSpec{TargetDatabase: "orders", RetentionDays: days}}, metav1.CreateOptions{})
			require.Equal(t, good, err == nil, "%d days: %v", days, err)
		}

		// The certificates are renewed.
		time.Sleep(2 * time.Hour)
		b.Name, b.Spec.Retention = "c", ""
		_, err = backups.Create(t.Context(), b, metav1.CreateOptions{})
		require.NoError(t, err)
		stop()
		require.NoError(t, <-ended)
		_, err = backups.Create(t.Context(), b, metav1.CreateOptions{})
		require.ErrorContains(t, err, "connect: connection refused")
	})
}
