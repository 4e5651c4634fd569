package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
)

// rehearsal is etcd while the operator is planned, on a fork of the cluster: the members are asked, and nothing is done
// to them. They answer as they would if what the operator has written were done: a member runs the version that its pod
// has, and leads if it was told to. What else would be done to etcd fails, and is logged.
type rehearsal struct {
	pods func() []*corev1.Pod

	mu      sync.Mutex
	cluster map[uint64]uint64 // guarded by mu: of a member, by their IDs
	leader  map[uint64]uint64 // guarded by mu: of a cluster, if it would be another one
}

// rehearse lets the operator look at etcd only.
func (r *reconciler) rehearse() {
	connect := r.connect
	all := &rehearsal{cluster: map[uint64]uint64{}, leader: map[uint64]uint64{},
		pods: func() []*corev1.Pod { return slices.Collect(r.pods.Cache.All()) }}
	r.connect = func(c *tls.Config) members.Etcd { return rehearsed{connect(c), all} }
}

// rehearsed is a way to etcd with the certificate for one cluster.
type rehearsed struct {
	members.Etcd
	all *rehearsal
}

func (r rehearsed) Ask(ctx context.Context, url string) (members.Answer, error) {
	a, err := r.Etcd.Ask(ctx, url)
	if err != nil {
		return a, err
	}
	if v, ok := r.all.versionAt(url); ok {
		a.Version = v
	}
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.all.cluster[a.ID] = a.Cluster
	if leader, ok := r.all.leader[a.Cluster]; ok {
		a.Leader = leader
	}
	return a, nil
}

func (r rehearsed) Do(ctx context.Context, _ []string, a plan.Action) error {
	klog.FromContext(ctx).Info("A plan does not do this to etcd", "action", a.String())
	if a.Do != plan.MoveLeader {
		return fmt.Errorf("a plan does not do %s", a)
	}
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.all.leader[r.all.cluster[a.ID]] = a.ID
	return nil
}

// versionAt returns the version that the pod at a URL for clients has, which begins with its name or address.
func (r *rehearsal) versionAt(url string) (plan.Version, bool) {
	_, host, _ := strings.Cut(url, "://")
	for _, pod := range r.pods() {
		named := pod.Name + "." + pod.Labels[v1.ClusterLabel] + "." + pod.Namespace + ".svc"
		if host == named+clientPort || pod.Status.PodIP != "" && host == pod.Status.PodIP+clientPort {
			v, err := versionOf(pod)
			return v, err == nil
		}
	}
	return plan.Version{}, false
}

// versionOf reads the version in the tag of a pod's image.
func versionOf(pod *corev1.Pod) (plan.Version, error) {
	image := pod.Spec.Containers[0].Image
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":v")
	return plan.ParseVersion(tag)
}
