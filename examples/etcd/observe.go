package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
)

// patience is how long a member may take to answer a question.
const patience = 2 * time.Second

// observed is what a call of Reconcile has seen.
type observed struct {
	plan.Cluster
	id   uint64            // of the cluster; 0: not formed
	list []members.Listed  // as a quorum has it
	urls map[string]string // of healthy members that are no learners, by name, for clients
	// shown are the certificates that members have shown, by name.
	shown map[string]*x509.Certificate
	cut   map[string]bool // members that are not healthy for the operator, and alive as far as others say
	// leaderless are the answers of members that have no leader, and forced that of one that begins the cluster anew.
	leaderless map[string]members.Answer
	forced     members.Answer
}

// observe looks at the objects in the caches, and asks the members.
func (r *call) observe(ctx context.Context) (observed, error) {
	spec, status := r.cluster.Spec, r.cluster.Status
	version, err := plan.ParseVersion(r.wanted())
	if err != nil {
		return observed{}, err
	}
	o := observed{urls: map[string]string{}, shown: map[string]*x509.Certificate{},
		cut: map[string]bool{}, leaderless: map[string]members.Answer{},
		Cluster: plan.Cluster{Name: r.cluster.Name, Size: int(spec.Size),
			Version: version, Quota: spec.QuotaBytes,
			ReplaceAfter: time.Duration(spec.ReplaceAfterSeconds) * time.Second,
			Paused:       spec.Paused, Compacted: status.CompactedRevision}}
	o.Last, _ = plan.ParseVersion(status.Version)
	if o.Failed, _ = plan.ParseVersion(status.FailedVersion); o.Failed != version {
		o.Failed = plan.Version{} // another one is asked for
	}
	if status.ClusterID != "" {
		if o.id, err = strconv.ParseUint(status.ClusterID, 16, 64); err != nil {
			return observed{}, fmt.Errorf("status.clusterID: %w", err)
		}
	}
	byName := r.objects()
	answers := r.ask(ctx, byName)
	for name, a := range answers {
		o.shown[name] = a.Shown
	}
	o.hear(byName, answers)
	if len(o.urls) > 0 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		o.list, err = r.etcd.List(ctx, slices.Collect(maps.Values(o.urls)))
		o.Listed = err == nil
	}
	if err := r.lookForLoss(ctx, &o, byName); err != nil {
		return observed{}, err
	}
	o.join(byName, answers)
	r.listen(ctx, &o)
	return o, nil
}

// objects returns the members by their objects.
func (r *call) objects() map[string]*plan.Member {
	found := map[string]*plan.Member{}
	member := func(name string) *plan.Member {
		if found[name] == nil {
			found[name] = &plan.Member{Name: name}
		}
		return found[name]
	}
	for claim := range r.claimsOf.Get(r.cluster.UID) {
		m := member(claim.Name)
		m.Claim, m.Broken = presence(claim), claim.Status.Phase == corev1.ClaimLost
	}
	for word := range r.wordsOf.Get(r.cluster.UID) {
		m := member(word.Name)
		m.Told, _ = plan.ParseVersion(word.Annotations[versionNote])
		m.Word = plan.Begin
		if word.Annotations[wordNote] == string(plan.TellRestart) {
			m.Word = plan.Restart
		}
	}
	for _, m := range r.cluster.Status.Members {
		if found[m.Name] != nil {
			found[m.Name].Known = true
		}
	}
	for pod := range r.podsOf.Get(r.cluster.UID) {
		m := member(pod.Name)
		m.Pod, m.Down, m.Broken = presence(pod), down(pod), m.Broken || crashes(pod)
		m.Forcing = pod.Annotations[forcingNote] != ""
		m.Trust = r.trust(pod)
		if host := r.host(pod.Name, pod.Status.PodIP); host != "" {
			m.URL = r.peerURL(host)
		}
		m.Image, _ = versionOf(pod)
	}
	return found
}

func presence(o metav1.Object) plan.Presence {
	if o.GetDeletionTimestamp() != nil {
		return plan.Leaving
	}
	return plan.Present
}

// down is how long the pod has not been ready, as the kubelet and the node controller say.
func down(pod *corev1.Pod) time.Duration {
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			if c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				return 0
			}
			since = c.LastTransitionTime.Time
		}
	}
	if pod.DeletionTimestamp != nil && pod.DeletionTimestamp.After(since) {
		since = pod.DeletionTimestamp.Time
	}
	return max(0, time.Since(since))
}

// crashes reports whether etcd has ended at each of its last starts. An etcd whose disk is empty, and that may not
// begin, ends at once.
func crashes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.RestartCount >= 3 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	})
}

// ask asks all members at the same time. Who does not answer in time, or cannot, is not in the result.
func (r *call) ask(ctx context.Context, byName map[string]*plan.Member) map[string]members.Answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var lock sync.Mutex // guards answers
	var group sync.WaitGroup
	answers := map[string]members.Answer{}
	for name, m := range byName {
		if m.URL == "" {
			continue
		}
		group.Go(func() {
			if a, err := r.etcd.Ask(ctx, askURL(m)); err == nil {
				lock.Lock()
				defer lock.Unlock()
				answers[name] = a
			}
		})
	}
	group.Wait()
	return answers
}

// hear takes the answers of members of this cluster: another etcd may have an address that was theirs.
func (o *observed) hear(byName map[string]*plan.Member, answers map[string]members.Answer) {
	for name, a := range answers {
		if o.id == 0 && a.Leader != 0 {
			o.id = a.Cluster
		}
		if m := byName[name]; a.Cluster == o.id && m.Forcing {
			m.Alone, o.forced = len(a.List) == 1 && a.Leader == a.ID, a
			delete(answers, name)
			continue
		}
		if a.Leader == 0 || a.Cluster != o.id {
			if a.Cluster == o.id && o.id != 0 {
				o.leaderless[name] = a
			}
			delete(answers, name)
			continue
		}
		o.Revision = max(o.Revision, a.Revision)
		if !a.Learner { // which serves no requests
			o.urls[name] = clientURL(byName[name].URL)
		}
	}
	o.Formed = o.id != 0
}

// join puts together what Kubernetes knows of the members, what etcd's list says, and what they say themselves.
func (o *observed) join(byName map[string]*plan.Member, answers map[string]members.Answer) {
	for _, l := range o.list {
		name := l.Name
		for _, m := range byName {
			if name == "" && m.URL == l.PeerURL {
				name = m.Name
			}
		}
		m := byName[name]
		if m == nil {
			m = &plan.Member{Name: l.Name}
			byName[fmt.Sprintf("%s %x", l.Name, l.ID)] = m
		}
		m.ID, m.Learner, m.Started, m.ListedURL = l.ID, l.Learner, l.Name != "", l.PeerURL
	}
	for name, m := range byName {
		if a, ok := answers[name]; ok && (a.ID == m.ID || !o.Listed) {
			m.Healthy, m.Leader = true, a.Leader == a.ID
			m.Version, m.StorageVersion, m.DowngradeTo = a.Version, a.StorageVersion, a.DowngradeTo
			m.DBSize, m.InUse, m.NoSpace = a.DBSize, a.InUse, noSpace(a)
		}
		o.Members = append(o.Members, *m)
		o.Formed = o.Formed || m.Word == plan.Restart
	}
	slices.SortFunc(o.Members, func(a, b plan.Member) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

func noSpace(a members.Answer) bool {
	return slices.ContainsFunc(a.Errors, func(s string) bool { return strings.Contains(s, "NOSPACE") })
}
