package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
)

// fake is a kubelet and etcd at once: a process for each pod that has its word, and one cluster of them.
type fake struct {
	lock      sync.Mutex // guards all below
	list      map[uint64]*fakeMember
	disks     map[types.UID]uint64 // whose data a claim has
	processes map[string]*process  // by pod
	leader    uint64
	nextID    uint64
	to        plan.Version // of the downgrade that is under way
	log       []string     // of what Do was asked for
	wrong     []string     // what must not happen
}

type fakeMember struct {
	members.Listed
	since time.Time
}

type process struct {
	pod     types.UID
	id      uint64
	url     string // for clients
	version plan.Version
}

// etcd is the fake of the present run, behind the interface of the operator. A new run has a new one.
var etcd struct {
	sync.Mutex
	now *fake
}

// kubelet runs a new fake until ctx ends.
func kubelet(ctx context.Context, cfg *rest.Config) error {
	core := corev1.SchemeGroupVersion
	pods, err1 := informer.NewCached(cfg, core.WithResource("pods"), informer.Options[*corev1.Pod]{})
	words, err2 := informer.NewCached(cfg, core.WithResource("configmaps"), informer.Options[*corev1.ConfigMap]{})
	claims, err3 := informer.NewCached(cfg, core.WithResource("persistentvolumeclaims"),
		informer.Options[*corev1.PersistentVolumeClaim]{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	f := &fake{list: map[uint64]*fakeMember{}, disks: map[types.UID]uint64{}, processes: map[string]*process{}}
	etcd.Lock()
	etcd.now = f
	etcd.Unlock()
	var group sync.WaitGroup
	defer group.Wait()
	for _, run := range []func(context.Context) error{pods.Cache.Run, words.Cache.Run, claims.Cache.Run} {
		group.Go(func() { _ = run(ctx) })
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		f.sync(slices.Collect(pods.Cache.All()), slices.Collect(words.Cache.All()), slices.Collect(claims.Cache.All()))
		for pod := range pods.Cache.All() {
			f.ready(ctx, pods.In(pod.Namespace), pod.DeepCopy())
		}
	}
}

// sync lets processes start and end.
func (f *fake) sync(pods []*corev1.Pod, words []*corev1.ConfigMap, claims []*corev1.PersistentVolumeClaim) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for name, process := range f.processes {
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == process.pod }) {
			delete(f.processes, name)
		}
	}
	for _, pod := range pods {
		w := slices.IndexFunc(words, func(w *corev1.ConfigMap) bool { return w.Name == pod.Name })
		c := slices.IndexFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == pod.Name })
		if w < 0 || c < 0 {
			continue
		}
		url := "http://" + pod.Spec.Hostname + "." + pod.Spec.Subdomain + "." + pod.Namespace + ".svc:2379"
		version, _ := plan.ParseVersion(pod.Spec.Containers[0].Image[strings.LastIndex(pod.Spec.Containers[0].Image,
			":v")+2:])
		if id := f.start(pod.Name, strings.Replace(url, ":2379", ":2380", 1), words[w].Data, claims[c].UID); id != 0 {
			f.processes[pod.Name] = &process{pod.UID, id, url, version}
		}
	}
	ended := f.to != plan.Version{}
	for _, p := range f.processes {
		ended = ended && p.version.Minor == f.to.Minor
	}
	if ended {
		f.to = plan.Version{}
	}
	f.elect()
}

// start returns the ID of the member that starts on a disk; 0: it ends at once.
func (f *fake) start(name, url string, word map[string]string, disk types.UID) uint64 {
	if id := f.disks[disk]; id != 0 {
		if f.list[id] == nil {
			return 0
		}
		return id
	}
	if !strings.Contains(word["ETCD_INITIAL_CLUSTER"], name+"=") {
		return 0
	}
	for id, m := range f.list {
		if m.PeerURL == url {
			if m.Name != "" && !m.Learner {
				f.wrong = append(f.wrong, name+" votes, and has started on an empty disk")
			}
			m.Name, m.since, f.disks[disk] = name, time.Now(), id
			return id
		}
	}
	if word["ETCD_INITIAL_CLUSTER_STATE"] != "new" {
		return 0
	}
	if len(f.list) > 0 {
		f.wrong = append(f.wrong, name+" has begun a second cluster")
	}
	f.nextID++
	f.list[f.nextID] = &fakeMember{members.Listed{ID: f.nextID, Name: name, PeerURL: url}, time.Now()}
	f.disks[disk] = f.nextID
	return f.nextID
}

// ready writes whether a pod's process runs.
func (f *fake) ready(ctx context.Context, pods *informer.Resource[*corev1.Pod], pod *corev1.Pod) {
	f.lock.Lock()
	want := corev1.ConditionFalse
	if f.processes[pod.Name] != nil {
		want = corev1.ConditionTrue
	}
	f.lock.Unlock()
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == want {
			return
		}
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: want,
		LastTransitionTime: metav1.Now()}}
	_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
}

func (f *fake) healthy(id uint64) bool {
	for _, p := range f.processes {
		if p.id == id {
			return true
		}
	}
	return false
}

func (f *fake) quorum() bool {
	voters, healthy := 0, 0
	for id, m := range f.list {
		if !m.Learner {
			if voters++; f.healthy(id) {
				healthy++
			}
		}
	}
	return healthy > voters/2
}

func (f *fake) elect() {
	if m := f.list[f.leader]; m == nil || !f.healthy(f.leader) {
		f.leader = 0
	}
	for id, m := range f.list {
		if f.leader == 0 && f.quorum() && !m.Learner && f.healthy(id) {
			f.leader = id
		}
	}
}

// said returns what etcd was asked to do since the last call.
func (f *fake) said() []string {
	f.lock.Lock()
	defer f.lock.Unlock()
	said := f.log
	f.log = nil
	return said
}

// mistakes returns what must not have happened.
func (f *fake) mistakes() []string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return slices.Clone(f.wrong)
}

// fakeClient is the interface to the fake of the present run.
type fakeClient struct{}

func (fakeClient) lock() (*fake, error) {
	etcd.Lock()
	defer etcd.Unlock()
	if etcd.now == nil {
		return nil, errors.New("there is no etcd yet")
	}
	etcd.now.lock.Lock()
	return etcd.now, nil
}

func (c fakeClient) Ask(_ context.Context, url string) (members.Answer, error) {
	f, err := c.lock()
	if err != nil {
		return members.Answer{}, err
	}
	defer f.lock.Unlock()
	for _, p := range f.processes {
		if m := f.list[p.id]; p.url == url && m != nil {
			f.elect()
			a := members.Answer{Cluster: 1, ID: p.id, Leader: f.leader, Learner: m.Learner, Version: p.version,
				StorageVersion: plan.Version{Major: 3, Minor: p.version.Minor}, DowngradeTo: f.to}
			if f.to != (plan.Version{}) {
				a.StorageVersion = f.to
			}
			return a, nil
		}
	}
	return members.Answer{}, errors.New("connection refused")
}

func (c fakeClient) List(_ context.Context, urls []string) (list []members.Listed, err error) {
	f, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer f.lock.Unlock()
	if !f.quorum() {
		return nil, errors.New("no leader")
	}
	for _, m := range f.list {
		list = append(list, m.Listed)
	}
	slices.SortFunc(list, func(a, b members.Listed) int { return int(a.ID) - int(b.ID) })
	return list, nil
}

func (c fakeClient) Do(_ context.Context, urls []string, a plan.Action) error {
	f, err := c.lock()
	if err != nil {
		return err
	}
	defer f.lock.Unlock()
	if !f.quorum() {
		return errors.New("no leader")
	}
	m := f.list[a.ID]
	switch a.Do {
	case plan.AddLearner:
		f.nextID++
		f.list[f.nextID] = &fakeMember{members.Listed{ID: f.nextID, PeerURL: a.URL, Learner: true}, time.Now()}
	case plan.Promote:
		if time.Since(m.since) < 2*time.Second {
			return fmt.Errorf("%w: not in sync", members.ErrNotYet)
		}
		m.Learner = false
	case plan.Remove:
		delete(f.list, a.ID)
		for name, p := range f.processes {
			if p.id == a.ID {
				delete(f.processes, name)
			}
		}
	case plan.MoveLeader:
		f.leader = a.ID
	case plan.Downgrade:
		f.to = a.Version
	case plan.CancelDowngrade:
		f.to = plan.Version{}
	default:
		return fmt.Errorf("%s is not faked", a.Do)
	}
	f.log = append(f.log, a.String())
	if !f.quorum() {
		f.wrong = append(f.wrong, a.String()+" has cost the quorum")
	}
	f.elect()
	return nil
}
