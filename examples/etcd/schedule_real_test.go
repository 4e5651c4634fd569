package main

import (
	"io/fs"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cronbackupv1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	cronbackup "github.com/thermostat-go/thermostat/examples/cronbackup/deploy"
	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/deploy"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

// apply applies a manifest, with the namespace of the test in place of the default one.
func (w *real) apply(files fs.FS, name string) {
	documents, err := fs.ReadFile(files, name)
	require.NoError(w, err)
	list, err := cluster.Decode([]byte(strings.ReplaceAll(string(documents), "namespace: default",
		"namespace: "+w.namespace)))
	require.NoError(w, err)
	require.NoError(w, w.cluster.Apply(w.Context(), list...))
}

// schedule runs the operator of examples/cronbackup, and asks it for a backup each minute.
func (w *real) schedule() *informer.Resource[*cronbackupv1.CronBackup] {
	for _, name := range []string{"namespace.yaml", "backups.example.com_cronbackups.yaml"} {
		w.apply(cronbackup.Manifests, name)
	}
	w.apply(deploy.Manifests, "schedule.yaml")
	image, err := processnode.BuildPackage(w.Context(), w.TempDir(),
		"github.com/thermostat-go/thermostat/examples/cronbackup")
	require.NoError(w, err)
	const account = "--account=/var/run/secrets/kubernetes.io/serviceaccount"
	_, err = w.cluster.Run(w.Context(), cluster.Command{Name: "cronbackup", Path: image.Programs["cronbackup"],
		Args: []string{"--kubeconfig=" + w.cluster.Kubeconfig(), "--http-address=0", "--image=snapshot",
			"--service-account=etcd-schedule", "--backup-command=snapshot,request,--claim=backups," + account,
			"--cleanup-command=snapshot,forget," + account}})
	require.NoError(w, err)
	all, err := informer.NewResource[*cronbackupv1.CronBackup](w.cluster.Config(),
		cronbackupv1.GroupVersion.WithResource("cronbackups"), informer.ResourceOptions{})
	require.NoError(w, err)
	schedules := all.In(w.namespace)
	_, err = schedules.Create(w.Context(), &cronbackupv1.CronBackup{ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
		Spec: cronbackupv1.CronBackupSpec{Schedule: "* * * * *", TargetDatabase: "a", RetentionDays: 7}},
		metav1.CreateOptions{})
	require.NoError(w, err)
	return schedules
}

// isScheduled waits for a complete backup of the schedule. Then it deletes the schedule, and waits until the Job that
// cleans up has deleted all its backups.
func (w *real) isScheduled(schedules *informer.Resource[*cronbackupv1.CronBackup],
	backups *informer.Resource[*v1.EtcdBackup]) {
	of := func() []v1.EtcdBackup {
		list, err := backups.List(w.Context(), metav1.ListOptions{LabelSelector: "etcd.example.com/schedule=nightly"})
		require.NoError(w, err)
		var all []v1.EtcdBackup
		for _, b := range list.Items {
			all = append(all, *b)
		}
		return all
	}
	require.Eventually(w, func() bool {
		for _, b := range of() {
			if complete(&b) {
				require.EqualValues(w, 7, b.Spec.RetentionDays)
				return true
			}
		}
		return false
	}, 5*time.Minute, 100*time.Millisecond, "a CronJob makes a backup")
	require.NoError(w, schedules.Delete(w.Context(), "nightly", metav1.DeleteOptions{}))
	require.Eventually(w, func() bool {
		list, err := schedules.List(w.Context(), metav1.ListOptions{})
		require.NoError(w, err)
		return len(list.Items) == 0
	}, 5*time.Minute, 100*time.Millisecond, "the schedule is cleaned up")
	require.Empty(w, of())
}
