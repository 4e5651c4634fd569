package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

const (
	retryAfter  = 30 * time.Second // after which another Job follows one that has failed
	lookAgain   = time.Hour        // for backups that are due, and are the newest ones of their cluster
	afterFinish = time.Minute      // that the result of a Job may take to be in the cache
)

// backups makes the files of EtcdBackups, and removes them.
type backups struct{ *reconciler }

// backupCall is one call of Reconcile.
type backupCall struct {
	*reconciler
	backup *v1.EtcdBackup
	owner  *objects.Owner
}

// Reconcile makes the file of an EtcdBackup, once. Later it deletes the EtcdBackup when its days are over, and removes
// the file of one that is deleted.
func (r backups) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	backup, ok := r.backups.Cache.Get(key)
	if !ok {
		return reconcile.Result{}, nil
	}
	client := r.backups.In(key.Namespace)
	c := &backupCall{r.reconciler, backup, objects.NewOwner(client, backup, r.backups.GroupVersionKind())}
	backup, alive, err := objects.Finalize(ctx, client, backup, v1.FileFinalizer, c.removeFile)
	if err != nil || !alive {
		return reconcile.Result{}, err
	}
	c.backup = backup
	if backup.Status.Finished != nil {
		return c.expire(ctx)
	}
	return c.save(ctx)
}

// save brings the backup on by one step: a Job, its result, and another Job if it has failed.
func (c *backupCall) save(ctx context.Context) (reconcile.Result, error) {
	job := c.job(saving)
	left := time.Until(c.deadline())
	switch {
	case job == nil && left <= 0:
		before, _ := objects.FindCondition(c.backup.Status.Conditions, v1.Complete)
		return reconcile.Result{}, c.finish(ctx, nil, "the deadline is over; the last try: "+before.Message)
	case job == nil:
		return c.begin(ctx)
	case job.DeletionTimestamp != nil:
		return reconcile.Result{}, nil // its end brings the key back
	case ended(job, batchv1.JobComplete):
		return c.collect(ctx, job)
	case ended(job, batchv1.JobFailed):
		why := c.failure(job)
		if left <= 0 {
			return reconcile.Result{}, c.finish(ctx, nil, "the deadline is over; the last try: "+why)
		}
		if wait := retryAfter - time.Since(endOf(job)); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, c.report(ctx, metav1.ConditionFalse, v1.ReasonRetrying, why,
				nil)
		}
		return reconcile.Result{}, c.deleteJob(ctx, job)
	}
	return reconcile.Result{}, c.report(ctx, metav1.ConditionFalse, v1.ReasonRunning, "a Job is at work", nil)
}

func (c *backupCall) deadline() time.Time {
	return c.backup.CreationTimestamp.Add(time.Duration(c.backup.Spec.DeadlineSeconds) * time.Second)
}

// begin makes the Job. Before that it notes that there may be a file from now on.
func (c *backupCall) begin(ctx context.Context) (reconcile.Result, error) {
	cluster, urls, problem := c.endpoints()
	if problem != "" {
		return reconcile.Result{RequeueAfter: later}, c.report(ctx, metav1.ConditionFalse, v1.ReasonNoCluster, problem,
			nil)
	}
	exists, err := c.claimExists(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !exists {
		return reconcile.Result{RequeueAfter: later}, c.report(ctx, metav1.ConditionFalse, v1.ReasonNoClaim,
			"there is no PersistentVolumeClaim "+c.backup.Spec.Claim, nil)
	}
	if err := c.report(ctx, metav1.ConditionFalse, v1.ReasonRunning, "a Job is at work", func(s *v1.EtcdBackupStatus) {
		s.File = c.file()
		if s.Started == nil {
			s.Started = new(metav1.Now())
		}
	}); err != nil {
		return reconcile.Result{}, err
	}
	_, err = objects.CreateOwned(ctx, c.owner, c.jobs.In(c.backup.Namespace), c.saveJob(cluster, urls))
	if taken, ok := errors.AsType[*objects.TakenError](err); ok {
		return reconcile.Result{RequeueAfter: later}, c.report(ctx, metav1.ConditionFalse, v1.ReasonNameTaken,
			taken.Error(), nil)
	}
	return reconcile.Result{}, err
}

// endpoints returns the cluster, and the URLs of its healthy members that vote. The leader comes last, since a snapshot
// costs its member time.
func (c *backupCall) endpoints() (cluster *v1.EtcdCluster, urls []string, problem string) {
	cluster, ok := c.clusters.Cache.Get(reconcile.Key{Namespace: c.backup.Namespace, Name: c.backup.Spec.Cluster})
	if !ok {
		return nil, nil, "there is no EtcdCluster " + c.backup.Spec.Cluster
	}
	of, leader := &call{reconciler: c.reconciler, cluster: cluster}, ""
	for _, m := range cluster.Status.Members {
		pod, ok := c.pods.Cache.Get(reconcile.Key{Namespace: cluster.Namespace, Name: m.Name})
		if !ok || !m.Healthy || m.Learner {
			continue
		}
		host := of.host(m.Name, pod.Status.PodIP)
		switch url := clientURL(of.peerURL(host)); {
		case host == "":
		case m.Name == cluster.Status.Leader:
			leader = url
		default:
			urls = append(urls, url)
		}
	}
	if leader != "" {
		urls = append(urls, leader)
	}
	if len(urls) == 0 {
		return nil, nil, "no member of EtcdCluster " + cluster.Name + " answers"
	}
	return cluster, urls, ""
}

func (c *backupCall) claimExists(ctx context.Context) (bool, error) {
	_, err := c.claims.In(c.backup.Namespace).Get(ctx, c.backup.Spec.Claim, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// collect writes down what the Job's pod has said. If the pod is gone, another one says the same of the same file.
func (c *backupCall) collect(ctx context.Context, job *batchv1.Job) (reconcile.Result, error) {
	var said saved
	for pod := range c.podsOfJob(job) {
		if text := lastMessage(pod.Status.ContainerStatuses); json.Unmarshal([]byte(text), &said) == nil &&
			said.SHA256 != "" {
			return reconcile.Result{}, c.finish(ctx, &said, "")
		}
	}
	if wait := afterFinish - time.Since(endOf(job)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, c.deleteJob(ctx, job)
}

// saved is what the command snapshot says of a file.
type saved struct {
	Version  string `json:"version"`
	Revision int64  `json:"revision"`
	Keys     int64  `json:"keys"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	HashKV   int64  `json:"hashKV"`
}

// finish ends the backup. nil: it has failed.
func (c *backupCall) finish(ctx context.Context, said *saved, why string) error {
	end := func(s *v1.EtcdBackupStatus) { s.Finished = new(metav1.Now()) }
	if said == nil {
		return c.report(ctx, metav1.ConditionFalse, v1.ReasonFailed, why, end)
	}
	return c.report(ctx, metav1.ConditionTrue, v1.ReasonVerified,
		fmt.Sprintf("%d keys of revision %d are in %s", said.Keys, said.Revision, c.file()),
		func(s *v1.EtcdBackupStatus) {
			end(s)
			s.Version, s.Revision, s.Keys, s.Size, s.SHA256, s.HashKV = said.Version, said.Revision, said.Keys,
				said.Size, said.SHA256, said.HashKV
		})
}

// expire deletes a backup whose days are over, unless it is the newest complete one of its cluster.
func (c *backupCall) expire(ctx context.Context) (reconcile.Result, error) {
	b := c.backup
	if b.Spec.RetentionDays == 0 {
		return reconcile.Result{}, nil
	}
	if left := time.Until(b.Status.Finished.AddDate(0, 0, int(b.Spec.RetentionDays))); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	newer := false
	for other := range c.backupsOf.Get(clusterOf(b)) {
		newer = newer || complete(other) && other.DeletionTimestamp == nil && other.UID != b.UID &&
			b.Status.Finished.Before(other.Status.Finished)
	}
	if complete(b) && !newer {
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	err := c.reconciler.backups.In(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return reconcile.Result{}, err
}

// clusterOf is the EtcdCluster of a backup.
func clusterOf(b *v1.EtcdBackup) informer.Key {
	return informer.Key{Namespace: b.Namespace, Name: b.Spec.Cluster}
}

func complete(b *v1.EtcdBackup) bool {
	c, _ := objects.FindCondition(b.Status.Conditions, v1.Complete)
	return c.Status == metav1.ConditionTrue
}

// removeFile runs a Job that removes the file, when no Job writes to it any more. It returns true when the file is
// gone, or will never be reached: its claim or its namespace goes.
func (c *backupCall) removeFile(ctx context.Context) (bool, error) {
	b := c.backup
	if b.Annotations[v1.KeepFile] == "true" || b.Status.Started == nil {
		return true, nil
	}
	save, _ := c.jobs.Cache.Get(reconcile.Key{Namespace: b.Namespace, Name: jobName(saving, b)})
	gone, err := objects.DeleteOwned(ctx, c.owner, c.jobs.In(b.Namespace), save, metav1.DeletePropagationForeground)
	if err != nil || !gone {
		return false, err
	}
	if exists, err := c.claimExists(ctx); err != nil || !exists {
		return !exists && err == nil, err
	}
	job := c.job(removing)
	if job == nil {
		if job, err = objects.CreateOwned(ctx, c.owner, c.jobs.In(b.Namespace), c.removeJob()); err != nil {
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				klog.FromContext(ctx).Error(err, "No Job can remove the file of a backup in a namespace that is being "+
					"deleted; it goes or stays with its volume", "file", c.file())
				return true, nil
			}
			return false, err
		}
	}
	was, _ := objects.FindCondition(b.Status.Conditions, v1.Complete)
	switch status := condition(was.Status); {
	case ended(job, batchv1.JobComplete):
		return true, nil
	case ended(job, batchv1.JobFailed): // five minutes later it is deleted, and another one follows
		return false, c.report(ctx, status, v1.ReasonRemoveFailed,
			fmt.Sprintf("%s; it is tried again in 5 minutes, unless "+
				"the annotation %s is \"true\"", c.failure(job), v1.KeepFile), nil)
	default:
		return false, c.report(ctx, status, v1.ReasonRemoving, "a Job removes the file", nil)
	}
}

// condition is a status, or False if there is none yet.
func condition(s metav1.ConditionStatus) metav1.ConditionStatus {
	if s == "" {
		return metav1.ConditionFalse
	}
	return s
}

// report writes the status if it changes, and an Event if the reason does.
func (c *backupCall) report(ctx context.Context, status metav1.ConditionStatus, reason, message string,
	change func(*v1.EtcdBackupStatus)) error {
	before, _ := objects.FindCondition(c.backup.Status.Conditions, v1.Complete)
	message = message[:min(len(message), 1000)]
	now, err := objects.UpdateStatus(ctx, c.reconciler.backups.In(c.backup.Namespace), c.backup,
		func(b *v1.EtcdBackup) error {
			b.Status.ObservedGeneration = b.Generation
			if change != nil {
				change(&b.Status)
			}
			return objects.SetCondition(&b.Status.Conditions, b.Generation,
				metav1.Condition{Type: v1.Complete, Status: status, Reason: reason, Message: message})
		})
	if err != nil {
		return err
	}
	c.backup = now
	if before.Reason != reason {
		kind := corev1.EventTypeWarning
		if slices.Contains([]string{v1.ReasonVerified, v1.ReasonRunning, v1.ReasonRemoving}, reason) {
			kind = corev1.EventTypeNormal
		}
		c.events.Event(now, kind, reason, message)
	}
	return nil
}
