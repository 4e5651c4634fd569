package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
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
