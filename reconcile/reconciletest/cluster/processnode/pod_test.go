package processnode_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPodRunsUntilItIsDeleted(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("runs", "say=hello", "wait")
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"test", container, "say=ok"}}},
		PreStop:   &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"test", container, "exit=3"}}},
	}
	w.create(pod)
	pod = w.until("runs", "ready", ready)
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
	require.Regexp(t, `^127\.`, pod.Status.PodIP)
	require.NotNil(t, state(pod).Running)
	w.says("runs", "hello\nwaiting")
	path, err := w.pool.LogFile(w.key("runs"), "c")
	require.NoError(t, err)
	w.delete("runs", 30)
	w.gone("runs")
	w.event("runs", "FailedPreStopHook", "exit status 3")
	require.Contains(t, read(t, path), "terminated", "SIGTERM comes before SIGKILL")
}

// A container that does not hear SIGTERM is killed at the end of the grace period, which a second request can shorten.
func TestGracePeriod(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"deaf", "shortened", "forced"} {
		pod := w.pod(name, "deaf", "say=deaf", "hang")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
		w.create(pod)
	}
	for _, name := range []string{"deaf", "shortened", "forced"} {
		w.says(name, "deaf")
	}
	began := time.Now()
	w.delete("shortened", 500)
	w.delete("deaf", 2)
	forced, err := w.pool.LogFile(w.key("forced"), "")
	require.NoError(t, err)
	w.delete("forced", 0)
	w.gone("forced")
	require.Eventually(t, func() bool { return !runs(forced) }, time.Minute, 20*time.Millisecond)
	require.Less(t, time.Since(began), 9*time.Minute, "its own grace period is ten minutes")
	w.gone("deaf")
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
	w.until("shortened", "ending", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	w.delete("shortened", 1)
	w.gone("shortened")
	require.Less(t, time.Since(began), 8*time.Minute, "it was told 500 seconds at first")
}

func TestInitContainers(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("in-order", "cat=/shared/f", "wait")
	pod.Spec.Volumes = []corev1.Volume{emptyDir("v")}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/shared"}}
	for _, name := range []string{"first", "second"} {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, Image: "test",
			Args: []string{"add=/shared/f"}, VolumeMounts: pod.Spec.Containers[0].VolumeMounts})
	}
	w.create(pod)
	w.says("in-order", "line\nline\n")
	w.until("in-order", "ready", ready)

	pod = w.pod("fails", "wait")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{{Name: "bad", Image: "test", Args: []string{"exit=4"}}}
	w.create(pod)
	pod = w.until("fails", "failed", failed)
	require.EqualValues(t, 4, pod.Status.InitContainerStatuses[0].State.Terminated.ExitCode)
	require.NotNil(t, state(pod).Waiting)
}

func TestRestarts(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("crashes", "say=goodbye", "exit=7")
	pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	w.create(pod)
	pod = w.until("crashes", "in back-off", waits("CrashLoopBackOff"))
	last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
	require.EqualValues(t, 7, last.ExitCode)
	require.Equal(t, "Error", last.Reason)
	require.Equal(t, "goodbye\n", last.Message)
	w.event("crashes", "BackOff", "back-off 200ms")
	w.event("crashes", "BackOff", "back-off 800ms")
	pod = w.until("crashes", "restarted", func(pod *corev1.Pod) bool {
		return pod.Status.ContainerStatuses[0].RestartCount >= 3
	})
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)

	pod = w.pod("tells", "say=goodbye", "add=/dev/termination-log", "exit=7")
	pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	w.create(pod)
	pod = w.until("tells", "in back-off", waits("CrashLoopBackOff"))
	require.Equal(t, "line\n", pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message)

	pod = w.pod("once", "exit=0")
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	w.create(pod)
	pod = w.until("once", "succeeded", succeeded)
	require.Equal(t, "Completed", state(pod).Terminated.Reason)
	require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
}

func TestJobsAndDeadlines(t *testing.T) {
	w := newWorld(t)
	job := func(name string, steps ...string) {
		pod := w.pod(name, steps...)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err := w.client.BatchV1().Jobs(w.namespace).Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: pod.Spec}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	ends := func(name string, as batchv1.JobConditionType) {
		require.Eventually(t, func() bool {
			job, err := w.client.BatchV1().Jobs(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
			for _, c := range job.Status.Conditions {
				if err == nil && c.Type == as && c.Status == corev1.ConditionTrue {
					return true
				}
			}
			return false
		}, time.Minute, 50*time.Millisecond, "job %s should be %s", name, as)
	}
	job("good", "exit=0")
	job("bad", "exit=1")
	pod := w.pod("late", "hang")
	pod.Spec.ActiveDeadlineSeconds = new(int64(1))
	w.create(pod)
	require.Equal(t, "DeadlineExceeded", w.until("late", "failed", failed).Status.Reason)
	ends("good", batchv1.JobComplete)
	ends("bad", batchv1.JobFailed)
}

func TestWhatCannotRunSaysWhy(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("image", "wait")
	pod.Spec.Containers[0].Image = "nginx"
	w.create(pod)
	w.until("image", "backing off", waits("ImagePullBackOff"))
	w.event("image", "Failed", `image "nginx" is not in the Options.Images`)

	pod = w.pod("program", "wait")
	pod.Spec.Containers[0].Command = []string{"/bin/sh"}
	w.create(pod)
	w.until("program", "waiting", waits("CreateContainerConfigError"))
	w.event("program", "Failed", "the image has only the programs test")

	pod = w.pod("fields", "wait")
	pod.Spec.ShareProcessNamespace = new(true)
	pod.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		GRPC: &corev1.GRPCAction{Port: 80}}}
	w.create(pod)
	pod = w.until("fields", "refused", waits("CreateContainerConfigError"))
	require.Equal(t, "this node runs containers as processes, and does not support spec.shareProcessNamespace; "+
		"volume host: a volume of this kind; container c: a grpc probe", state(pod).Waiting.Message)
	w.event("fields", "FailedValidation", "a grpc probe")

	pod = w.pod("mount", "wait")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "missing"}}}}
	w.create(pod)
	w.event("mount", "FailedMount", `secrets "missing" not found`)
	w.delete("mount", 30)
	w.gone("mount")
}

func TestImageChangeRestartsTheContainer(t *testing.T) {
	w := newWorld(t)
	w.create(w.pod("upgraded", "wait"))
	w.says("upgraded", "waiting")
	_, err := w.client.CoreV1().Pods(w.namespace).Patch(t.Context(), "upgraded", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"c","image":"test:2"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	pod := w.until("upgraded", "restarted", restarts(1))
	require.Equal(t, "test:2", pod.Status.ContainerStatuses[0].Image)
	require.Zero(t, pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode, "it ended by SIGTERM")
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}
