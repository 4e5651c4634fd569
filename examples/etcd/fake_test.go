package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/certs"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// fake is a kubelet and etcd at once: a process for each pod that has its word, and a cluster for each EtcdCluster.
type fake struct {
	lock      sync.Mutex // guards all below
	clusters  map[string]*fakeCluster
	disks     map[types.UID]data   // what a claim has on it
	processes map[string]*process  // by pod
	cut       map[string]bool      // pods that the operator cannot reach
	unready   map[string]bool      // pods whose kubelets say that they are not ready
	mute      bool                 // the leader does not say of whom it hears
	frozen    map[string]bool      // pods whose processes do not answer
	accepts   map[string]time.Time // until when who trusts a bundle accepts a certificate
	late      map[string]bool      // pods that do not get what is new in their Secrets
	empty     map[string]bool      // members that may not begin, and have an empty disk
	begun     []string             // members that have begun a cluster anew
	log       []string             // of what Do was asked for
	wrong     []string             // what must not happen
}

// fakeCluster is one cluster, by its token.
type fakeCluster struct {
	*fake
	id, nextID uint64
	list       map[uint64]*fakeMember
	leader     uint64
	distrust   bool              // members may not accept each other
	committed  map[uint64]uint64 // what members know to be committed
	discarded  map[uint64]bool   // members of the time before the cluster began anew
	to         plan.Version      // of the downgrade that is under way
}

type fakeMember struct {
	members.Listed
	since time.Time
}

type data struct {
	of *fakeCluster
	id uint64
}

type process struct {
	data
	pod     types.UID
	url     string // for clients
	version plan.Version
	leaf    map[string][]byte // content of its Secret; nil: no TLS
	trusts  []byte
	served  bool // it has seen a quorum since it started; before that etcd answers no client
	forces  bool // it has begun the cluster anew
}

// etcd is the fake of the present run, behind the interface of the operator. A new run has a new one.
var etcd struct {
	sync.Mutex
	now *fake
}

// kubelet runs a new fake until ctx ends. It looks a second after each event.
func kubelet(ctx context.Context, cfg *rest.Config) error {
	core := corev1.SchemeGroupVersion
	pods, err1 := informer.NewCached(cfg, core.WithResource("pods"), informer.Options[*corev1.Pod]{})
	words, err2 := informer.NewCached(cfg, core.WithResource("configmaps"), informer.Options[*corev1.ConfigMap]{})
	claims, err3 := informer.NewCached(cfg, core.WithResource("persistentvolumeclaims"),
		informer.Options[*corev1.PersistentVolumeClaim]{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	secrets, err := informer.NewCached(cfg, core.WithResource("secrets"), informer.Options[*corev1.Secret]{})
	if err != nil {
		return err
	}
	bindings, err := informer.NewSubresource[*corev1.Binding](pods.Resource, "binding")
	if err != nil {
		return err
	}
	f := &fake{clusters: map[string]*fakeCluster{}, disks: map[types.UID]data{}, processes: map[string]*process{},
		cut: map[string]bool{}, unready: map[string]bool{}, frozen: map[string]bool{}, empty: map[string]bool{},
		accepts: map[string]time.Time{}, late: map[string]bool{}}
	etcd.Lock()
	etcd.now = f
	etcd.Unlock()
	c, err := reconcile.NewController("kubelet", reconcile.Func(
		func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			time.Sleep(time.Second)
			alive := slices.DeleteFunc(slices.Collect(pods.Cache.All()), func(pod *corev1.Pod) bool {
				return pod.DeletionTimestamp != nil
			})
			f.sync(alive, slices.Collect(words.Cache.All()),
				slices.Collect(claims.Cache.All()), slices.Collect(secrets.Cache.All()))
			for pod := range pods.Cache.All() {
				member := pod.Labels[v1.ClusterLabel] != "" // pods of Jobs are not its own: see say
				if pod.Spec.NodeName == "" && member {
					_, _ = bindings.In(pod.Namespace).Create(ctx, pod.Name, &corev1.Binding{
						ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
						Target:     corev1.ObjectReference{Kind: "Node", Name: "node"}}, metav1.CreateOptions{})
				}
				if pod.DeletionTimestamp != nil {
					_ = pods.In(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
						GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
					continue
				}
				if member {
					f.ready(ctx, pods.In(pod.Namespace), pod.DeepCopy())
				}
			}
			return reconcile.Result{}, nil
		}), reconcile.Options{})
	if err != nil {
		return err
	}
	node := []reconcile.Key{{Name: "node"}}
	reconcile.Watches(c, pods.Cache, func(*corev1.Pod) []reconcile.Key { return node })
	reconcile.Watches(c, words.Cache, func(*corev1.ConfigMap) []reconcile.Key { return node })
	reconcile.Watches(c, claims.Cache, func(*corev1.PersistentVolumeClaim) []reconcile.Key { return node })
	reconcile.Watches(c, secrets.Cache, func(*corev1.Secret) []reconcile.Key { return node })
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// sync lets processes start and end.
func (f *fake) sync(pods []*corev1.Pod, words []*corev1.ConfigMap, claims []*corev1.PersistentVolumeClaim,
	secrets []*corev1.Secret) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for name, process := range f.processes {
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == process.pod }) {
			delete(f.processes, name)
			delete(f.frozen, name)
		}
	}
	for _, pod := range pods {
		w := slices.IndexFunc(words, func(w *corev1.ConfigMap) bool { return w.Name == pod.Name })
		c := slices.IndexFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == pod.Name })
		if w < 0 || c < 0 {
			continue
		}
		scheme, leaf, trusts := "http://", map[string][]byte(nil), []byte(pod.Annotations[trustNote])
		if len(trusts) > 0 {
			s := slices.IndexFunc(secrets, func(s *corev1.Secret) bool { return s.Name == pod.Name })
			was := f.processes[pod.Name]
			switch {
			case f.late[pod.Name] && was != nil && was.pod == pod.UID:
				leaf = was.leaf
			case s < 0:
				continue // the kubelet waits for it
			default:
				leaf = secrets[s].Data
			}
			scheme = "https://"
		}
		host := scheme + pod.Spec.Hostname + "." + pod.Spec.Subdomain + "." + pod.Namespace + ".svc"
		url := host + clientPort
		if forces(pod) {
			url = host + forcingPort
		}
		version, _ := plan.ParseVersion(pod.Spec.Containers[0].Image[strings.LastIndex(pod.Spec.Containers[0].Image,
			":v")+2:])
		f.empty[pod.Name] = f.disks[claims[c].UID].id == 0 && words[w].Annotations[wordNote] == string(plan.TellRestart)
		d := f.start(pod, host+":2380", words[w].Data, claims[c].UID)
		now := process{data: d, pod: pod.UID, url: url, version: version, forces: forces(pod), leaf: leaf,
			trusts: trusts}
		if was := f.processes[pod.Name]; was != nil {
			now.served = was.served && was.pod == now.pod && was.version == now.version
		}
		if delete(f.processes, pod.Name); d.id != 0 {
			f.processes[pod.Name] = &now
		}
	}
	for _, c := range f.clusters {
		ended := c.to != plan.Version{}
		for _, p := range f.processes {
			ended = ended && (p.of != c || p.version.Minor == c.to.Minor)
		}
		if ended {
			c.to = plan.Version{}
		}
		c.elect()
		c.meet()
	}
}

// accept reports whether two members let each other in.
func (f *fake) accept(p, q *process) bool { return f.lets(p, q.leaf) && f.lets(q, p.leaf) }

// lets reports whether a member lets a certificate in.
func (f *fake) lets(p *process, leaf map[string][]byte) bool {
	if p.leaf == nil {
		return leaf == nil
	}
	pair := certs.Fingerprint(p.trusts) + certs.Fingerprint(leaf[certs.CertKey])
	until, known := f.accepts[pair]
	if !known {
		if certs.Accepts(p.trusts, leaf, time.Now()) == nil {
			until = certs.End(leaf)
		}
		f.accepts[pair] = until
	}
	return time.Now().Before(until)
}

// meet says which of the members that run do not accept each other.
func (c *fakeCluster) meet() {
	for name, p := range c.processes {
		for other, q := range c.processes {
			if p.of == c && q.of == c && name < other && !c.distrust && !c.accept(p, q) {
				c.wrong = append(c.wrong, name+" and "+other+" do not accept each other")
			}
		}
	}
}

// cluster returns the one of a pod's token.
func (f *fake) cluster(pod *corev1.Pod) *fakeCluster {
	token := ""
	for _, env := range pod.Spec.Containers[0].Env {
		if env.Name == "ETCD_INITIAL_CLUSTER_TOKEN" {
			token = env.Value
		}
	}
	if f.clusters[token] == nil {
		f.clusters[token] = &fakeCluster{fake: f, id: uint64(len(f.clusters) + 1), list: map[uint64]*fakeMember{},
			committed: map[uint64]uint64{}, discarded: map[uint64]bool{}}
	}
	return f.clusters[token]
}

// start returns what is on the disk of a member when it has started; none: it ends at once.
func (f *fake) start(pod *corev1.Pod, url string, word map[string]string, disk types.UID) data {
	if d := f.disks[disk]; d.id != 0 {
		if d.of.discarded[d.id] {
			f.wrong = append(f.wrong, pod.Name+" starts with the data of the old cluster")
		}
		if d.of.list[d.id] == nil {
			return data{}
		}
		if forces(pod) {
			f.force(pod, d)
		}
		return d
	}
	if forces(pod) {
		return data{}
	}
	name, c := pod.Name, f.cluster(pod)
	if !strings.Contains(word["ETCD_INITIAL_CLUSTER"], name+"=") {
		return data{}
	}
	for id, m := range c.list {
		if m.PeerURL == url {
			if m.Name != "" && !m.Learner {
				f.wrong = append(f.wrong, name+" votes, and has started on an empty disk")
			}
			m.Name, m.since, f.disks[disk] = name, time.Now(), data{c, id}
			return data{c, id}
		}
	}
	if word["ETCD_INITIAL_CLUSTER_STATE"] != "new" {
		return data{}
	}
	if len(c.list) > 0 {
		f.wrong = append(f.wrong, name+" has begun a second cluster")
	}
	c.nextID++
	c.list[c.nextID] = &fakeMember{members.Listed{ID: c.nextID, Name: name, PeerURL: url}, time.Now()}
	f.disks[disk] = data{c, c.nextID}
	return data{c, c.nextID}
}

// ready writes whether a pod's process runs.
func (f *fake) ready(ctx context.Context, pods *informer.Resource[*corev1.Pod], pod *corev1.Pod) {
	f.lock.Lock()
	want := corev1.ConditionFalse
	p := f.processes[pod.Name]
	if p != nil && p.served && !f.frozen[pod.Name] && !f.unready[pod.Name] {
		want = corev1.ConditionTrue
	}
	said := ""
	if p == nil && f.empty[pod.Name] {
		said = `couldn't find local name in the initial cluster configuration`
	}
	f.lock.Unlock()
	same := false
	for _, c := range pod.Status.Conditions {
		same = same || c.Type == corev1.PodReady && c.Status == want
	}
	if same && (said != "") == (len(pod.Status.ContainerStatuses) > 0) {
		return
	}
	pod.Status.ContainerStatuses = nil
	if said != "" {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, Image: "etcd", ImageID: "etcd",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: said}}}}
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: want,
		LastTransitionTime: metav1.Now()}}
	_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
}

func (c *fakeCluster) healthy(id uint64) bool {
	for pod, p := range c.processes {
		if p.of == c && p.id == id && !c.frozen[pod] {
			return p.leaf == nil || c.company(p)
		}
	}
	return false
}

// company reports whether a quorum of voters accepts a member.
func (c *fakeCluster) company(p *process) bool {
	voters, accepting := 0, 0
	for _, m := range c.list {
		if !m.Learner {
			voters++
		}
	}
	for _, q := range c.processes {
		if m := c.list[q.id]; q.of == c && m != nil && !m.Learner && c.accept(p, q) {
			accepting++
		}
	}
	return accepting > voters/2
}

func (c *fakeCluster) quorum() bool {
	voters, healthy := 0, 0
	for id, m := range c.list {
		if !m.Learner {
			if voters++; c.healthy(id) {
				healthy++
			}
		}
	}
	return healthy > voters/2
}

func (c *fakeCluster) elect() {
	if m := c.list[c.leader]; m == nil || !c.healthy(c.leader) {
		c.leader = 0
	}
	for id, m := range c.list {
		if c.leader == 0 && c.quorum() && !m.Learner && c.healthy(id) {
			c.leader = id
		}
	}
	if !c.quorum() {
		c.leader = 0
	}
	for _, p := range c.processes {
		p.served = p.served || p.of == c && c.leader != 0
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
type fakeClient struct{ config *tls.Config }

// meets reports whether a member and the client let each other in.
func (c fakeClient) meets(p *process) bool {
	if p.leaf == nil || c.config == nil {
		return p.leaf == nil && c.config == nil
	}
	if len(c.config.Certificates) == 0 {
		return false
	}
	mine := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.config.Certificates[0].Certificate[0]})
	if certs.Accepts(p.trusts, map[string][]byte{certs.CertKey: mine}, time.Now()) != nil {
		return false
	}
	_, err := certificateOf(p).Verify(x509.VerifyOptions{Roots: c.config.RootCAs, CurrentTime: time.Now(),
		DNSName: strings.Split(strings.TrimPrefix(p.url, "https://"), ":")[0]})
	return err == nil
}

// certificateOf is the certificate that a member shows. nil: no TLS.
func certificateOf(p *process) *x509.Certificate {
	block, _ := pem.Decode(p.leaf[certs.CertKey])
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return cert
}

// at returns what runs at one of the URLs, with the lock held; the caller has to unlock it.
func (c fakeClient) at(urls ...string) (p *process, unlock func(), err error) {
	etcd.Lock()
	defer etcd.Unlock()
	if etcd.now == nil {
		return nil, nil, errors.New("there is no etcd yet")
	}
	f := etcd.now
	f.lock.Lock()
	for name, p := range f.processes {
		if slices.Contains(urls, p.url) && p.of.list[p.id] != nil && p.served && !f.frozen[name] && !f.cut[name] &&
			c.meets(p) {
			return p, f.lock.Unlock, nil
		}
	}
	f.lock.Unlock()
	return nil, nil, errors.New("connection refused")
}

func (c fakeClient) Ask(_ context.Context, url string) (members.Answer, error) {
	p, unlock, err := c.at(url)
	if err != nil {
		return members.Answer{}, err
	}
	defer unlock()
	p.of.elect()
	a := members.Answer{Cluster: p.of.id, ID: p.id, Leader: p.of.leader, Learner: p.of.list[p.id].Learner,
		Version: p.version, StorageVersion: plan.Version{Major: 3, Minor: p.version.Minor}, DowngradeTo: p.of.to,
		Index: p.of.committed[p.id], Revision: int64(p.of.committed[p.id]),
		Shown: certificateOf(p)}
	if a.Leader == 0 || a.Leader == a.ID {
		a.List = p.of.listed()
	}
	if p.of.to != (plan.Version{}) {
		a.StorageVersion = p.of.to
	}
	return a, nil
}

func (c fakeClient) List(_ context.Context, urls []string) (list []members.Listed, err error) {
	p, unlock, err := c.at(urls...)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !p.of.quorum() {
		return nil, errors.New("no leader")
	}
	return p.of.listed(), nil
}

func (c *fakeCluster) listed() (list []members.Listed) {
	for _, m := range c.list {
		list = append(list, m.Listed)
	}
	slices.SortFunc(list, func(a, b members.Listed) int { return int(a.ID) - int(b.ID) })
	return list
}

// Heard says that the leader hears of all members that run.
func (c fakeClient) Heard(_ context.Context, url string) (map[uint64]float64, error) {
	p, unlock, err := c.at(url)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if p.of.mute {
		return nil, errors.New("there are no metrics")
	}
	heard := map[uint64]float64{}
	for _, other := range p.of.processes {
		if other.of == p.of && other.id != p.id && p.of.leader == p.id {
			heard[other.id] = float64(time.Now().UnixMilli())
		}
	}
	return heard, nil
}

func (c fakeClient) Do(_ context.Context, urls []string, a plan.Action) error {
	p, unlock, err := c.at(urls...)
	if err != nil {
		return err
	}
	defer unlock()
	if !p.of.quorum() {
		return errors.New("no leader")
	}
	if err := p.of.do(a); err != nil {
		return err
	}
	p.of.log = append(p.of.log, a.String())
	if !p.of.quorum() {
		p.of.wrong = append(p.of.wrong, a.String()+" has cost the quorum")
	}
	p.of.elect()
	return nil
}

func (c *fakeCluster) do(a plan.Action) error {
	switch m := c.list[a.ID]; a.Do {
	case plan.AddLearner:
		c.nextID++
		c.list[c.nextID] = &fakeMember{members.Listed{ID: c.nextID, PeerURL: a.URL, Learner: true}, time.Now()}
	case plan.Promote:
		if time.Since(m.since) < 2*time.Second {
			return fmt.Errorf("%w: not in sync", members.ErrNotYet)
		}
		m.Learner = false
	case plan.Remove:
		delete(c.list, a.ID)
		for name, p := range c.processes {
			if p.of == c && p.id == a.ID {
				delete(c.processes, name)
			}
		}
	case plan.MoveLeader:
		c.leader = a.ID
	case plan.Downgrade:
		c.to = a.Version
	case plan.CancelDowngrade:
		c.to = plan.Version{}
	default:
		return fmt.Errorf("%s is not faked", a.Do)
	}
	return nil
}

// forces reports whether a pod begins the cluster anew.
func forces(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].Env, func(e corev1.EnvVar) bool {
		return e.Name == "ETCD_FORCE_NEW_CLUSTER" && e.Value == "true"
	})
}

// force begins a cluster anew: the member removes all others. If another one runs, there are two clusters.
func (f *fake) force(pod *corev1.Pod, d data) {
	for name, p := range f.processes {
		if p.of == d.of && name != pod.Name {
			f.wrong = append(f.wrong, pod.Name+" begins the cluster anew, and "+name+" runs")
		}
	}
	if was := f.processes[pod.Name]; was == nil || was.pod != pod.UID {
		f.begun = append(f.begun, pod.Name)
	}
	for id := range d.of.list {
		if id != d.id {
			d.of.discarded[id] = true
		}
	}
	d.of.list = map[uint64]*fakeMember{d.id: d.of.list[d.id]}
}
