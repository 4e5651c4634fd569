package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// forcingNote is the annotation of a pod that begins the cluster anew. It has no other purpose, and is deleted before
// any member joins: an etcd with that flag removes all other members at each start, and drops what it has not noted as
// committed, acknowledged writes among it. So it serves the operator only, at a port of its own, and no Service has it.
const (
	forcingNote = "etcd.example.com/force-new-cluster"
	clientPort  = ":2379"
	forcingPort = ":2382"
)

// askURL is where the operator asks a member.
func askURL(m *plan.Member) string {
	url := clientURL(m.URL)
	if m.Forcing {
		return strings.TrimSuffix(url, clientPort) + forcingPort
	}
	return url
}

// forcing makes the pod of a member one that begins the cluster anew.
func forcing(pod *corev1.Pod) *corev1.Pod {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[forcingNote] = "true"
	pod.Labels["app.kubernetes.io/name"] = "etcd-recovery"
	c := &pod.Spec.Containers[0]
	for i := range c.Env {
		c.Env[i].Value = strings.ReplaceAll(c.Env[i].Value, clientPort, forcingPort)
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: "ETCD_FORCE_NEW_CLUSTER", Value: "true"})
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p.HTTPGet.Port.IntVal != healthPort {
			p.HTTPGet.Port = intstr.FromInt32(2382)
		}
	}
	c.Ports = c.Ports[1:] // that of peers; nobody joins
	return pod
}

// forceNewCluster makes that pod, unless a pod of any member exists. It asks the API server: a cache may not show a pod
// yet, or any more.
func (r *call) forceNewCluster(ctx context.Context, seen observed, a plan.Action) error {
	pods := r.pods.In(r.cluster.Namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: v1.ClusterLabel + "=" + r.cluster.Name})
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		return fmt.Errorf("pod %s is not gone yet", pod.Name)
	}
	for _, m := range seen.Members {
		if _, err := pods.Get(ctx, m.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod %s is not gone yet: %w", m.Name, err)
		}
	}
	_, err = objects.CreateOwned(ctx, r.owner, pods, forcing(r.pod(a.Member, a.Version)))
	return err
}

// recovery writes what an action of a recovery has to have written down before it is done. A choice that is there
// already stays, and is gone on with.
func (r *call) recovery(s *v1.EtcdClusterStatus, spec v1.EtcdClusterSpec, seen observed, a plan.Action) {
	now := metav1.Now()
	under := s.Recovery != nil && s.Recovery.Finished == nil
	switch {
	case a.Do == plan.ChooseSurvivor && !under && spec.QuorumLoss.Policy == v1.QuorumLossRecover:
		s.Recovery = &v1.Recovery{Survivor: a.Member, Chosen: now}
		l := seen.Loss()
		for _, m := range l.Lost {
			s.Recovery.Lost = append(s.Recovery.Lost, m.Name)
		}
		for _, m := range l.Left {
			if m != l.Best {
				s.Recovery.Discarded = append(s.Recovery.Discarded, m.Name)
			}
		}
		s.Recovery.CommitIndex, s.Recovery.Revision = int64(l.Best.Index), l.Best.Revision
	case a.Do == plan.Resume && under && s.Recovery.Served == nil:
		s.Recovery.Served, s.Recovery.ServedRevision = &now, seen.forced.Revision
		s.Members = []v1.MemberStatus{{ID: fmt.Sprintf("%x", seen.forced.ID), Name: a.Member}}
		s.Voters, s.CompactedRevision = 1, 0
	case under && seen.Recovered() && s.Recovery.Survivor == seen.Recovery.Survivor:
		s.Recovery.Finished = &now
	}
}

// quorumLost is the condition QuorumLost; none if it has never been True.
func (r *call) quorumLost(s *v1.EtcdClusterStatus, seen observed) (c metav1.Condition, ok bool) {
	c = metav1.Condition{Type: v1.QuorumLost, Status: metav1.ConditionTrue}
	was, known := objects.FindCondition(s.Conditions, v1.QuorumLost)
	loss := seen.Loss()
	switch {
	case s.Recovery != nil && s.Recovery.Finished == nil:
		c.Reason, c.Message = v1.ReasonRecovering,
			fmt.Sprintf("the cluster begins anew with %s, which %s; %s had lost "+
				"their data", s.Recovery.Survivor, shown(s.Recovery.CommitIndex, s.Recovery.Revision),
				strings.Join(s.Recovery.Lost, ", "))
	case loss != nil:
		c.Reason, c.Message = r.advice(loss, was)
	case !known || !seen.Listed && was.Status == metav1.ConditionTrue:
		return was, known // whether data are gone cannot be told just now
	case was.Status == metav1.ConditionFalse:
		return was, true
	case s.Recovery != nil && s.Recovery.Finished.After(was.LastTransitionTime.Time):
		c.Status, c.Reason = metav1.ConditionFalse, v1.ReasonRecovered
		c.Message = fmt.Sprintf("the cluster has begun anew at revision %d with %s, which %s; writes that were "+
			"acknowledged after that may be lost", s.Recovery.ServedRevision, s.Recovery.Survivor,
			shown(s.Recovery.CommitIndex, s.Recovery.Revision))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1.ReasonReturned, "a quorum answers again"
	}
	return c, true
}

// shown says how far a member had come.
func shown(index, revision int64) string {
	if index == 0 {
		return "did not answer before"
	}
	return fmt.Sprintf("had revision %d (commit index %d)", revision, index)
}

// advice says what is lost, and what a person can do.
func (r *call) advice(loss *plan.Loss, was metav1.Condition) (reason, message string) {
	var lost []string
	for _, m := range loss.Lost {
		lost = append(lost, fmt.Sprintf("%s (%s)", m.Name, m.Lost))
	}
	message = fmt.Sprintf("%d of %d voters have lost their data: %s; no quorum can come back. ", len(loss.Lost),
		loss.Voters, strings.Join(lost, ", "))
	allowed, restore := r.cluster.Spec.QuorumLoss, "make a new EtcdCluster with spec.restore and a backup"
	switch {
	case loss.Best == nil && len(loss.Left) == 0:
		return v1.ReasonNoSurvivor, message + "No other voter is left: " + restore
	case loss.Best == nil:
		return v1.ReasonNoSurvivor, message + fmt.Sprintf("The operator does not go on with another member, since %s: "+
			"bring it back, or give up its data with kubectl delete pvc,pod %s, or %s", loss.Why, blocking(loss),
			restore)
	}
	message += fmt.Sprintf("%s %s; writes that were acknowledged after that may be lost. ", loss.Best.Name,
		shown(int64(loss.Best.Index), loss.Best.Revision))
	if allowed.Policy != v1.QuorumLossRecover {
		return v1.ReasonManual, message + fmt.Sprintf("To go on with it: kubectl patch etcdcluster %s --type=merge "+
			`-p '{"spec":{"quorumLoss":{"policy":"Recover"}}}'; or %s`, r.cluster.Name, restore)
	}
	since := was.LastTransitionTime.Time
	if was.Status != metav1.ConditionTrue {
		since = time.Now()
	}
	return v1.ReasonWaiting, message + "The operator goes on with it at " +
		since.Add(time.Duration(allowed.AfterSeconds)*time.Second).UTC().Format(time.RFC3339)
}

// blocking is the member for which a choice waits.
func blocking(loss *plan.Loss) string {
	for _, m := range loss.Left {
		if m.Claim != plan.Present || !m.Speaks {
			return m.Name
		}
	}
	return ""
}
