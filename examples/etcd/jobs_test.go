package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// disk is the claim of the backups in the present run, as the fake Jobs use it.
var disk struct {
	sync.Mutex
	files []string
	full  bool // Jobs fail
}

// runJobs is the Job controller, a kubelet, and the command snapshot at once: a Job ends 2 s after it was made, and its
// pod has said what the command would.
func runJobs(ctx context.Context, cfg *rest.Config) error {
	disk.Lock()
	disk.files, disk.full = nil, false
	disk.Unlock()
	jobs, err1 := informer.NewCached(cfg, batchv1.SchemeGroupVersion.WithResource("jobs"),
		informer.Options[*batchv1.Job]{})
	pods, err2 := informer.NewResource[*corev1.Pod](cfg, corev1.SchemeGroupVersion.WithResource("pods"),
		informer.ResourceOptions{})
	if err1 != nil || err2 != nil {
		return err1
	}
	c, err := reconcile.NewController("jobs", reconcile.Func(
		func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			job, ok := jobs.Cache.Get(key)
			if !ok || len(job.Status.Conditions) > 0 {
				return reconcile.Result{}, nil
			}
			if age := time.Since(job.CreationTimestamp.Time); age < 2*time.Second {
				return reconcile.Result{RequeueAfter: 2*time.Second - age}, nil
			}
			said, success := execute(job.Spec.Template.Spec.Containers[0].Args)
			if err := say(ctx, pods.In(key.Namespace), job, said); err != nil {
				return reconcile.Result{}, err
			}
			_, err := jobs.In(key.Namespace).UpdateStatus(ctx, endJob(job.DeepCopy(), success), metav1.UpdateOptions{})
			return reconcile.Result{}, err
		}), reconcile.Options{})
	if err != nil {
		return err
	}
	reconcile.For(c, jobs.Cache)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// execute does what the command snapshot would.
func execute(args []string) (said string, success bool) {
	disk.Lock()
	defer disk.Unlock()
	if disk.full {
		return "no space left on device", false
	}
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--file=") })
	file := strings.TrimPrefix(args[i], "--file=")
	disk.files = slices.DeleteFunc(disk.files, func(f string) bool { return f == file })
	if args[0] == "remove" {
		return "", true
	}
	disk.files = append(disk.files, file)
	text, _ := json.Marshal(saved{Version: "3.6.16", Revision: 7, Keys: 5, Size: 20512, SHA256: "ab12",
		HashKV: 4_000_000_000})
	return string(text), true
}

// say makes the pod of a Job, which has ended.
func say(ctx context.Context, pods *informer.Resource[*corev1.Pod], job *batchv1.Job, said string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-x", Labels: job.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job,
			batchv1.SchemeGroupVersion.WithKind("Job"))}}, Spec: job.Spec.Template.Spec}
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "snapshot", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: said}}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// endJob writes into the status what the Job controller would.
func endJob(job *batchv1.Job, success bool) *batchv1.Job {
	now, status := metav1.Now(), &job.Status
	ends := []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
	status.StartTime = &now
	if success {
		ends = []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
		status.CompletionTime, status.Succeeded = &now, 1
	}
	for _, end := range ends {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: end, Status: corev1.ConditionTrue,
			LastProbeTime: now, LastTransitionTime: now})
	}
	return job
}

func newBackup(name, cluster string, days int32) *v1.EtcdBackup {
	return &v1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.EtcdBackupSpec{Cluster: cluster, Claim: "backups", RetentionDays: days}}
}
