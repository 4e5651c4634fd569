package main

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
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

// TestWebhooksInMemory runs the operator on a server that asks the two functions, as it would by the webhooks.
func TestWebhooksInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := cronbackuptest.ServerOptions(cronbackuptest.Manifests(t))
		definition, err := os.ReadFile(opts.CRDs[0])
		require.NoError(t, err)
		opts.CRDs = nil
		opts.Resources, err = reconciletest.ReadCRDs(definition)
		require.NoError(t, err)
		ask := func(o, old *unstructured.Unstructured) *webhook.Admission[*v1.CronBackup] {
			return &webhook.Admission[*v1.CronBackup]{
				Request: &admissionv1.AdmissionRequest{Namespace: o.GetNamespace(), Name: o.GetName()},
				Object:  typed(t, o), Old: typed(t, old)}
		}
		opts.Resources[0].Default = func(o *unstructured.Unstructured) {
			a := ask(o, nil)
			assert.NoError(t, fill(t.Context(), a))
			assert.NoError(t, unstructured.SetNestedField(o.Object, a.Object.Spec.Schedule, "spec", "schedule"))
		}
		opts.Resources[0].Validate = func(o, old *unstructured.Unstructured) field.ErrorList {
			wrong, err := check(t.Context(), ask(o, old))
			assert.NoError(t, err)
			return wrong
		}
		server := reconciletest.NewServer(t, opts)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- start(ctx, server.LinkAs(cronbackuptest.Account).Config()) }()
		backups := resource[*v1.CronBackup](t, server, v1.GroupVersion.WithResource("cronbackups"))
		b := &v1.CronBackup{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.CronBackupSpec{TargetDatabase: "orders"}}
		_, err = backups.Create(t.Context(), b, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		job, ok := reconciletest.Get[*batchv1.CronJob](server, "cronjobs.batch", "default", "a")
		require.True(t, ok)
		require.Regexp(t, `^\d+ \d+ \* \* \*$`, job.Spec.Schedule)

		b.Name, b.Annotations = "b", map[string]string{v1.SkipCleanup: "maybe"}
		_, err = backups.Create(t.Context(), b, metav1.CreateOptions{})
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		stop()
		require.NoError(t, <-ended)
	})
}

// typed is an object in its Go type; nil for none.
func typed(t *testing.T, o *unstructured.Unstructured) *v1.CronBackup {
	if o == nil {
		return nil
	}
	b := &v1.CronBackup{}
	assert.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, b))
	return b
}
