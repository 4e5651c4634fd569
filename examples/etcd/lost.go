package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// noData is what etcd ends with when it may not begin and finds no data: its name is not in noCluster. It is in the
// last lines of its log, which the kubelet puts in the status of the pod.
const noData = "in the initial cluster configuration"

// settling is how long an etcd that has found no data takes at most until it ends.
const settling = 30 * time.Second

// lookForLoss looks, while no quorum answers, for members whose data are gone for good.
func (r *call) lookForLoss(ctx context.Context, o *observed, byName map[string]*plan.Member) error {
	status := r.cluster.Status
	if now := status.Recovery; now != nil && now.Finished == nil {
		o.Recovery = &plan.Recovery{Survivor: now.Survivor, Served: now.Served != nil}
	}
	if o.Listed || !o.Formed || o.Recovery != nil {
		return nil
	}
	for name, a := range o.leaderless {
		m := byName[name]
		m.Speaks, m.Learns, m.Index, m.Revision = true, a.Learner, a.Index, a.Revision
	}
	for _, l := range r.view(o.leaderless) {
		if byName[l.Name] == nil {
			byName[l.Name] = &plan.Member{Name: l.Name}
		}
		byName[l.Name].Votes = !l.Learner
	}
	for name, m := range byName {
		if m.Speaks || o.urls[name] != "" || !m.Votes && m.Word != plan.Restart {
			continue
		}
		var err error
		if m.Lost, err = r.lost(ctx, name); err != nil {
			return err
		}
	}
	since, _ := objects.FindCondition(status.Conditions, v1.QuorumLost)
	allowed := r.cluster.Spec.QuorumLoss
	o.MayRecover = allowed.Policy == v1.QuorumLossRecover && len(o.urls) == 0 && since.Status == metav1.ConditionTrue &&
		time.Since(since.LastTransitionTime.Time) >= time.Duration(allowed.AfterSeconds)*time.Second
	return nil
}

// view is the newest list that a member has, or else the one that a quorum served last. Members without a name have
// never started.
func (r *call) view(leaderless map[string]members.Answer) (list []members.Listed) {
	newest := members.Answer{}
	for _, a := range leaderless {
		if a.Index > newest.Index || newest.List == nil {
			newest = a
		}
	}
	if list = newest.List; list == nil {
		for _, m := range r.cluster.Status.Members {
			list = append(list, members.Listed{Name: m.Name, Learner: m.Learner})
		}
	}
	return slices.DeleteFunc(list, func(l members.Listed) bool { return l.Name == "" })
}

// lost returns why the data of a member are gone for good. Empty: they may not be. That a member does not answer, is
// not ready, or is on a node that is not ready says nothing. As long as its pod may run, only its own etcd can tell
// that the disk is empty.
func (r *call) lost(ctx context.Context, name string) (string, error) {
	key := informer.Key{Namespace: r.cluster.Namespace, Name: name}
	if pod, ok := r.pods.Cache.Get(key); ok && pod.Spec.NodeName != "" {
		if findsNoData(pod) {
			return "its disk is empty", nil
		}
		return "", nil
	}
	// The caches do not show what has lost its label. Such a pod may run, and such a claim has the data.
	pod, err := r.pods.In(key.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && pod.Spec.NodeName != "" || err != nil && !apierrors.IsNotFound(err) {
		return "", ignoreNotFound(err)
	}
	claim, err := r.claims.In(key.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "its claim is gone", nil
	case err != nil:
		return "", err
	case claim.Status.Phase == corev1.ClaimLost:
		return "the volume of its claim is gone", nil
	case claim.Spec.VolumeName == "":
		return "", nil
	}
	return r.lostNode(ctx, claim.Spec.VolumeName)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// findsNoData reports whether the etcd of a pod ended since its disk is empty. An etcd that has been running for some
// time since has data: a person may have brought them back.
func findsNoData(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != container || s.State.Running != nil && time.Since(s.State.Running.StartedAt.Time) > settling {
			continue
		}
		for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil {
				return t.ExitCode != 0 && strings.Contains(t.Message, noData)
			}
		}
	}
	return false
}

// lostNode returns why a volume is gone with its node: it is bound to nodes by their names, and the API server has
// none of these any more. A node that is not ready is still there.
func (r *call) lostNode(ctx context.Context, volume string) (string, error) {
	v, err := r.volumes.Get(ctx, volume, metav1.GetOptions{})
	if err != nil || v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return "", ignoreNotFound(err) // if it is gone the claim will say so
	}
	var hosts []string
	for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
		i := slices.IndexFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn
		})
		if i < 0 {
			return "", nil // other nodes can have it
		}
		hosts = append(hosts, term.MatchExpressions[i].Values...)
	}
	nodes, err := r.nodes.List(ctx, metav1.ListOptions{
		LabelSelector: corev1.LabelHostname + " in (" + strings.Join(hosts, ",") + ")"})
	if err != nil || len(nodes.Items) > 0 || len(hosts) == 0 {
		return "", err
	}
	return fmt.Sprintf("its volume was on node %s, which is gone", strings.Join(hosts, ", ")), nil
}
