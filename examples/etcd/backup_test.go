package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// backupWorld is a world with a cluster "a" of one member, fake Jobs, and a claim for backups.
type backupWorld struct {
	*world
	backups *informer.Resource[*v1.EtcdBackup]
}

func withBackups(t *testing.T, test func(w *backupWorld)) {
	inMemory(t, func(w *world) {
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- runJobs(ctx, w.server.Config()) }()
		b := &backupWorld{w, clientOf[*v1.EtcdBackup](w.T, w.server, v1.GroupVersion.WithResource("etcdbackups"))}
		b.claim()
		w.create(1, "3.6.16")
		w.settles(1, "3.6.16")
		test(b)
		stop()
		require.NoError(w, <-ended)
	})
}

func (w *backupWorld) claim() {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "backups"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	_, err := w.claims.Create(w.Context(), claim, metav1.CreateOptions{})
	require.NoError(w, err)
}

func (w *backupWorld) make(b *v1.EtcdBackup) {
	w.Helper()
	_, err := w.backups.Create(w.Context(), b, metav1.CreateOptions{})
	require.NoError(w, err)
}

// says checks the condition of an EtcdBackup.
func (w *backupWorld) says(name string, status metav1.ConditionStatus, reason, message string) v1.EtcdBackupStatus {
	w.Helper()
	now, err := w.backups.Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	c, _ := objects.FindCondition(now.Status.Conditions, v1.Complete)
	require.Equal(w, []any{status, reason}, []any{c.Status, c.Reason}, c.Message)
	require.Contains(w, c.Message, message)
	require.Equal(w, now.Generation, now.Status.ObservedGeneration)
	return now.Status
}

// age lets a backup be an old one.
func (w *backupWorld) age(name string, by time.Duration) {
	now, err := w.backups.Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	now.Status.Finished = new(metav1.NewTime(now.Status.Finished.Add(-by)))
	_, err = w.backups.UpdateStatus(w.Context(), now, metav1.UpdateOptions{})
	require.NoError(w, err)
}

func (w *backupWorld) names() (names []string) {
	for _, b := range reconciletest.List[*v1.EtcdBackup](w.server, "etcdbackups.etcd.example.com", "default") {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names
}

func files() int {
	disk.Lock()
	defer disk.Unlock()
	return len(disk.files)
}

func setFull(full bool) {
	disk.Lock()
	defer disk.Unlock()
	disk.full = full
}

// told returns how often an Event of a reason has told something.
func (w *backupWorld) told(reason string) (n int) {
	time.Sleep(10 * time.Second)
	for _, e := range reconciletest.List[*corev1.Event](w.server, "events", "default") {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

var backupBehaviours = map[string]func(w *backupWorld){
	"a backup is made and verified once": func(w *backupWorld) {
		w.make(newBackup("b", "a", 0))
		time.Sleep(time.Minute)
		status := w.says("b", metav1.ConditionTrue, v1.ReasonVerified, "5 keys of revision 7")
		require.Equal(w, []any{"3.6.16", int64(7), int64(5), int64(20512), "ab12", int64(4_000_000_000)},
			[]any{status.Version, status.Revision, status.Keys, status.Size, status.SHA256, status.HashKV})
		require.NotNil(w, status.Started)
		require.NotNil(w, status.Finished)
		require.Equal(w, []string{status.File}, disk.files)
		jobs := reconciletest.List[*batchv1.Job](w.server, "jobs.batch", "default")
		require.Len(w, jobs, 1)
		require.Contains(w, jobs[0].Spec.Template.Spec.Containers[0].Args,
			"--endpoints=http://a-1.a.default.svc:2379")
		require.Equal(w, 1, w.told(v1.ReasonVerified))
	},
	"a backup that fails is tried again, until its deadline": func(w *backupWorld) {
		setFull(true)
		b := newBackup("b", "a", 0)
		b.Spec.DeadlineSeconds = 90
		w.make(b)
		time.Sleep(time.Minute)
		w.says("b", metav1.ConditionFalse, v1.ReasonRetrying, "no space left")
		time.Sleep(time.Minute)
		status := w.says("b", metav1.ConditionFalse, v1.ReasonFailed, "no space left")
		require.NotNil(w, status.Finished)
		require.Equal(w, 1, w.told(v1.ReasonFailed))
		w.make(newBackup("c", "a", 0))
		time.Sleep(time.Minute)
		setFull(false)
		time.Sleep(time.Minute)
		w.says("c", metav1.ConditionTrue, v1.ReasonVerified, "")
		w.says("b", metav1.ConditionFalse, v1.ReasonFailed, "")
	},
	"no cluster and no claim are said": func(w *backupWorld) {
		b := newBackup("b", "other", 0)
		b.Spec.DeadlineSeconds = 100
		w.make(b)
		time.Sleep(time.Minute)
		w.says("b", metav1.ConditionFalse, v1.ReasonNoCluster, "no EtcdCluster other")
		c := newBackup("c", "a", 0)
		c.Spec.Claim = "other"
		w.make(c)
		time.Sleep(time.Minute)
		w.says("c", metav1.ConditionFalse, v1.ReasonNoClaim, "other")
		w.says("b", metav1.ConditionFalse, v1.ReasonFailed, "no EtcdCluster other")
	},
	"the file goes with its EtcdBackup": func(w *backupWorld) {
		w.make(newBackup("b", "a", 0))
		time.Sleep(time.Minute)
		require.Equal(w, 1, files())
		require.NoError(w, w.backups.Delete(w.Context(), "b", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		require.Empty(w, w.names())
		require.Zero(w, files())
	},
	"a file that cannot be removed holds its EtcdBackup, and an annotation lets it go": func(w *backupWorld) {
		w.make(newBackup("b", "a", 0))
		time.Sleep(time.Minute)
		setFull(true)
		require.NoError(w, w.backups.Delete(w.Context(), "b", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		w.says("b", metav1.ConditionTrue, v1.ReasonRemoveFailed, v1.KeepFile)
		_, err := w.backups.Patch(w.Context(), "b", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1.KeepFile), metav1.PatchOptions{})
		require.NoError(w, err)
		time.Sleep(time.Minute)
		require.Empty(w, w.names())
		require.Equal(w, 1, files())
	},
	"old backups go, but for the newest complete one": func(w *backupWorld) {
		for _, name := range []string{"b", "c", "d"} {
			b := newBackup(name, "a", 1)
			if name == "d" {
				setFull(true)
				b.Spec.DeadlineSeconds = 10
			}
			w.make(b)
			time.Sleep(time.Minute)
		}
		setFull(false)
		w.says("d", metav1.ConditionFalse, v1.ReasonFailed, "")
		for hours, name := range []string{"b", "c", "d"} {
			w.age(name, time.Duration(30-hours)*time.Hour)
		}
		time.Sleep(time.Minute)
		require.Equal(w, []string{"c"}, w.names(), "the newest one of which there is a file")
		require.Equal(w, 1, files())
	},
	"backups outlive their cluster": func(w *backupWorld) {
		w.make(newBackup("b", "a", 0))
		time.Sleep(time.Minute)
		require.NoError(w, w.clusters.Delete(w.Context(), "a", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		w.says("b", metav1.ConditionTrue, v1.ReasonVerified, "")
	},
	"what makes no sense is refused": func(w *backupWorld) {
		w.make(newBackup("b", "a", 0))
		for patch, want := range map[string]string{
			`{"spec":{"cluster":"c"}}`:          "cannot be changed",
			`{"spec":{"claim":"c"}}`:            "cannot be changed",
			`{"spec":{"deadlineSeconds":60}}`:   "cannot be changed",
			`{"spec":{"retentionDays":-1}}`:     "spec.retentionDays",
			`{"spec":{"retentionDays":100000}}`: "spec.retentionDays",
		} {
			_, err := w.backups.Patch(w.Context(), "b", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			require.ErrorContains(w, err, want, patch)
		}
	},
}

func TestBackups(t *testing.T) {
	for what, test := range backupBehaviours {
		t.Run(what, func(t *testing.T) { withBackups(t, test) })
	}
}
