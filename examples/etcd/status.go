package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// report writes the status if it changes, and an Event if a condition begins or ends. It returns the EtcdCluster as it
// is then.
func (r *call) report(ctx context.Context, seen observed, a plan.Action) (*v1.EtcdCluster, error) {
	now, err := objects.UpdateStatus(ctx, r.clusters.In(r.cluster.Namespace), r.cluster, func(c *v1.EtcdCluster) error {
		s := &c.Status
		s.ObservedGeneration = c.Generation
		if seen.id != 0 {
			s.ClusterID = strconv.FormatUint(seen.id, 16)
		}
		if seen.Failed == (plan.Version{}) {
			s.FailedVersion = ""
		}
		if a.Do == plan.RollBack {
			s.FailedVersion = seen.Version.String()
		}
		if seen.Listed {
			listMembers(s, seen)
		}
		r.recovery(s, c.Spec, seen, a)
		conditions := []metav1.Condition{progressing(a)}
		if seen.Name != "" {
			conditions = append(conditions, available(seen), degraded(seen))
		}
		if c.Spec.Restore != nil && seen.Name != "" {
			conditions = append(conditions, r.restored(seen))
		}
		if c.Spec.TLS != nil && (seen.Name != "" || r.tls.reason != "") {
			conditions = append(conditions, r.secured(s))
		}
		if lost, ok := r.quorumLost(s, seen); ok {
			conditions = append(conditions, lost)
		}
		if !seen.Listed {
			s.Leader, s.Ready = "", 0
		}
		var errs []error
		for _, condition := range conditions {
			errs = append(errs, objects.SetCondition(&s.Conditions, c.Generation, condition))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return r.cluster, err
	}
	for _, is := range now.Status.Conditions {
		was, known := objects.FindCondition(r.cluster.Status.Conditions, is.Type)
		stuck := is.Reason == string(plan.Refuse) || is.Reason == v1.ReasonNameTaken
		switch {
		case known && was.Reason == is.Reason, is.Type == v1.Progressing && !stuck, is.Type == v1.Deletable:
		case stuck, is.Type == v1.Available && known == (is.Status == metav1.ConditionFalse),
			(is.Type == v1.Degraded || is.Type == v1.QuorumLost) && is.Status == metav1.ConditionTrue,
			is.Type == v1.Secured && is.Status == metav1.ConditionFalse,
			is.Type == v1.Restored && is.Status == metav1.ConditionFalse && is.Reason != v1.ReasonRestoring:
			r.events.Event(now, corev1.EventTypeWarning, is.Reason, is.Message)
		default:
			r.events.Event(now, corev1.EventTypeNormal, is.Reason, is.Message)
		}
	}
	return now, nil
}

// listMembers writes what etcd says of them.
func listMembers(s *v1.EtcdClusterStatus, seen observed) {
	s.Members, s.Leader, s.Voters, s.Ready = nil, "", 0, int32(seen.Healthy())
	var oldest plan.Version
	for _, m := range seen.Members {
		if m.ID == 0 {
			continue
		}
		status := v1.MemberStatus{ID: strconv.FormatUint(m.ID, 16), Learner: m.Learner, Healthy: m.Healthy,
			DBSize: m.DBSize}
		if m.Started {
			status.Name = m.Name
		}
		if m.Healthy {
			status.Version = m.Version.String()
			if oldest == (plan.Version{}) || m.Version.Less(oldest) {
				oldest, s.Version = m.Version, m.Version.String()
			}
		}
		if m.NoSpace {
			status.Alarms = []string{"NOSPACE"}
		}
		if m.Leader {
			s.Leader = m.Name
		}
		if !m.Learner {
			s.Voters++
		}
		s.Members = append(s.Members, status)
	}
}

func progressing(a plan.Action) metav1.Condition {
	c := metav1.Condition{Type: v1.Progressing, Status: metav1.ConditionFalse, Reason: string(a.Do),
		Message: a.String()}
	if a.Changes() && a.Do != v1.ReasonNameTaken || a.Do == plan.Wait {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func available(seen observed) metav1.Condition {
	healthy, voters := seen.Healthy(), seen.Voters()
	switch {
	case !seen.Formed:
		return metav1.Condition{Type: v1.Available, Status: metav1.ConditionFalse, Reason: v1.ReasonNotFormed,
			Message: "the first member has not started yet"}
	case !seen.Listed:
		return metav1.Condition{Type: v1.Available, Status: metav1.ConditionFalse, Reason: v1.ReasonNoQuorum,
			Message: fmt.Sprintf("no quorum answers, and %d members do", len(seen.urls))}
	}
	return metav1.Condition{Type: v1.Available, Status: metav1.ConditionTrue, Reason: v1.ReasonQuorum,
		Message: fmt.Sprintf("%d of %d voters answer", healthy, voters)}
}

func degraded(seen observed) metav1.Condition {
	c := metav1.Condition{Type: v1.Degraded, Status: metav1.ConditionTrue}
	alarm := ""
	var cut []string
	for _, m := range seen.Members {
		if m.NoSpace {
			alarm = m.Name
		}
		if seen.cut[m.Name] && !m.Learner {
			cut = append(cut, m.Name)
		}
	}
	switch healthy := seen.Healthy(); {
	case alarm != "":
		c.Reason, c.Message = v1.ReasonAlarm, "the database is full, and writes are refused: NOSPACE of "+alarm
	case healthy < seen.Size && healthy+len(cut) >= seen.Size:
		c.Reason, c.Message = v1.ReasonUnreachable,
			fmt.Sprintf("not healthy for the operator, but alive as far as the "+
				"leader says, and so not replaced: %s; look at the network", strings.Join(cut, ", "))
	case healthy < seen.Size:
		c.Reason, c.Message = v1.ReasonMissing, fmt.Sprintf("%d voters answer, and %d are wanted", healthy, seen.Size)
	case seen.Size%2 == 0:
		c.Reason, c.Message = v1.ReasonEvenSize, fmt.Sprintf("%d members tolerate no more failures than %d", seen.Size,
			seen.Size-1)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1.ReasonHealthy, "all voters answer"
	}
	return c
}
