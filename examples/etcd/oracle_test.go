package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/reconcile/program"
)

// journalFile is the variable that makes this test binary the operator. It names a file that takes what the operator
// asks etcd to do, also when the operator is killed.
const journalFile = "ETCD_OPERATOR_JOURNAL"

func TestMain(m *testing.M) {
	path := os.Getenv(journalFile)
	if path == "" {
		os.Exit(m.Run())
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	program.Main("", func(ctx context.Context, cfg *rest.Config) error {
		return run(ctx, cfg, options{addresses: true, address: "0", snapshotImage: "snapshot",
			connect: func(c *tls.Config) members.Etcd { return journal{members.Client{TLS: c}, file} }})
	})
}

// journal writes down each request that changes something, before it is sent.
type journal struct {
	members.Client
	file *os.File
}

// deed is something that the operator has done to a member.
type deed struct {
	At     time.Time
	Do     plan.Verb
	Member string
	ID     uint64
}

func (j journal) Do(ctx context.Context, urls []string, a plan.Action) error {
	line, err := json.Marshal(deed{time.Now(), a.Do, a.Member, a.ID})
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return j.Client.Do(ctx, urls, a)
}

func readJournal(t *testing.T, path string) (deeds []deed) {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var d deed
		require.NoError(t, json.Unmarshal(lines.Bytes(), &d))
		deeds = append(deeds, d)
	}
	return deeds
}

// look is what the oracle has seen at a time.
type look struct {
	at      time.Time
	list    []members.Listed // nil: no quorum has served it
	healthy map[uint64]bool  // who answered and knew a leader
	size    int              // that the spec asked for; 0: not seen
}

// oracle watches the pods and the members, and does not trust the operator.
type oracle struct {
	w    *real
	own  func(pod string) bool // reports whether the test itself has restarted a pod just now
	lock sync.Mutex            // guards what follows
	pods map[types.UID]*corev1.Pod
	// looks are in the order of their times.
	looks    []look
	restarts []deed // of pods, by a new image or by deletion
	clusters map[uint64]bool
	// recoveries are the times at which the status had a recovery from a lost quorum that was not finished.
	recoveries []time.Time
	beside     []string // members that ran beside one that began the cluster anew
}

// watch looks until ctx ends.
func (o *oracle) watch(ctx context.Context) {
	for ctx.Err() == nil {
		o.look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (o *oracle) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if list, err := o.w.pods.In(o.w.namespace).List(ctx, metav1.ListOptions{}); err == nil {
		o.compare(list.Items)
	}
	now := look{at: time.Now(), healthy: map[uint64]bool{}}
	if c, err := o.w.clusters.In(o.w.namespace).Get(ctx, "a", metav1.GetOptions{}); err == nil {
		now.size = int(c.Spec.Size)
		if c.Status.Recovery != nil && c.Status.Recovery.Finished == nil {
			o.lock.Lock()
			o.recoveries = append(o.recoveries, now.at)
			o.lock.Unlock()
		}
	}
	var lock sync.Mutex // guards now, urls and clusters
	var group sync.WaitGroup
	var urls []string
	clusters := map[uint64]bool{}
	for _, url := range o.endpoints() {
		group.Go(func() {
			a, err := members.Client{}.Ask(ctx, url)
			if err != nil || a.Leader == 0 {
				return
			}
			lock.Lock()
			defer lock.Unlock()
			now.healthy[a.ID], clusters[a.Cluster] = true, true
			if !a.Learner {
				urls = append(urls, url)
			}
		})
	}
	group.Wait()
	if len(urls) > 0 {
		now.list, _ = members.Client{}.List(ctx, urls)
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	maps.Copy(o.clusters, clusters)
	o.looks = append(o.looks, now)
}

// compare finds the pods that got another image, or were deleted.
func (o *oracle) compare(pods []*corev1.Pod) {
	o.lock.Lock()
	defer o.lock.Unlock()
	before := o.pods
	o.pods = map[types.UID]*corev1.Pod{}
	forcing := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Annotations[forcingNote] != "" })
	for _, pod := range pods {
		if forcing && pod.Annotations[forcingNote] == "" && pod.Labels[v1.ClusterLabel] != "" {
			o.beside = append(o.beside, pod.Name)
		}
		o.pods[pod.UID] = pod
		was := before[pod.UID]
		switch {
		case was == nil:
		case was.Spec.Containers[0].Image != pod.Spec.Containers[0].Image:
			o.restarts = append(o.restarts, deed{At: time.Now(), Do: plan.SetImage, Member: pod.Name})
		case was.DeletionTimestamp == nil && pod.DeletionTimestamp != nil && !o.own(pod.Name):
			o.restarts = append(o.restarts, deed{At: time.Now(), Do: plan.DeletePod, Member: pod.Name})
		}
	}
	for uid, was := range before {
		if o.pods[uid] == nil && was.DeletionTimestamp == nil && !o.own(was.Name) {
			o.restarts = append(o.restarts, deed{At: time.Now(), Do: plan.DeletePod, Member: was.Name})
		}
	}
}

// endpoints are the addresses of the pods, as they were seen last.
func (o *oracle) endpoints() (urls []string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for _, pod := range o.pods {
		if pod.Status.PodIP != "" {
			urls = append(urls, "http://"+pod.Status.PodIP+clientPort)
		}
	}
	slices.Sort(urls)
	return urls
}

// voters returns the list as it was seen last, without learners.
func (o *oracle) voters() (voters []members.Listed) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for _, look := range slices.Backward(o.looks) {
		if look.list != nil {
			return votersOf(look.list)
		}
	}
	return nil
}

// healthy reports whether a member answered when it was last asked.
func (o *oracle) healthy(id uint64) bool {
	o.lock.Lock()
	defer o.lock.Unlock()
	return len(o.looks) > 0 && o.looks[len(o.looks)-1].healthy[id]
}

func votersOf(list []members.Listed) (voters []members.Listed) {
	for _, m := range list {
		if !m.Learner {
			voters = append(voters, m)
		}
	}
	return voters
}

// grace is for members that the test has stopped a moment before the operator did something: it had to believe that
// they answer. Whoever was not healthy for so long counts as unhealthy.
const grace = 10 * time.Second

// judge returns what the operator did that could have cost the quorum.
func (o *oracle) judge(deeds []deed) (wrong []string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if len(o.clusters) > 1 {
		wrong = append(wrong, fmt.Sprintf("%d clusters were seen, and there must be one", len(o.clusters)))
	}
	for _, name := range o.beside {
		wrong = append(wrong, name+" ran while another member began the cluster anew")
	}
	all := slices.DeleteFunc(slices.Concat(deeds, o.restarts), func(d deed) bool {
		return d.Do == plan.DeletePod && permitted(o.recoveries, d.At)
	})
	slices.SortFunc(all, func(a, b deed) int { return a.At.Compare(b.At) })
	for _, d := range all {
		for _, why := range []string{judge(o.looks, d), removesTheLiving(o.looks, d)} {
			if why != "" {
				wrong = append(wrong, why)
			}
		}
	}
	return wrong
}

// permitted reports whether a pod was deleted for a recovery from a lost quorum, which the status has before. The
// oracle sees the deletion up to a look later.
func permitted(recoveries []time.Time, at time.Time) bool {
	return slices.ContainsFunc(recoveries, func(t time.Time) bool { return at.Sub(t).Abs() < 2*time.Second })
}

// judge has a deed, and all looks in the order of their times. A pod may have been restarted or deleted before or after
// the list of members changed, which the oracle saw a moment later: it is wrong if it was so with both lists.
func judge(looks []look, d deed) string {
	var before, after []members.Listed
	recent := map[uint64]bool{}
	for _, l := range looks {
		late := l.at.After(d.At)
		switch {
		case late && l.list != nil && after == nil:
			after = l.list
		case !late && l.list != nil:
			before = l.list
		}
		if !late && d.At.Sub(l.at) <= grace {
			maps.Copy(recent, l.healthy)
		}
	}
	why := judgeBy(before, recent, d)
	if d.ID == 0 && why != "" && after != nil {
		why = judgeBy(after, recent, d)
	}
	return why
}

func judgeBy(list []members.Listed, recent map[uint64]bool, d deed) string {
	voters, healthy := 0, 0
	for _, m := range list {
		about := m.ID == d.ID || d.ID == 0 && m.Name == d.Member
		switch {
		case m.Learner && !(about && d.Do == plan.Promote), about && d.Do == plan.Remove:
			continue
		}
		voters++
		if recent[m.ID] && !(about && interrupts(d.Do)) {
			healthy++
		}
	}
	known := slices.ContainsFunc(list, func(m members.Listed) bool {
		return m.ID == d.ID || d.ID == 0 && m.Name == d.Member && !m.Learner
	})
	if !known || healthy >= plan.Quorum(voters) || voters <= 2 && interrupts(d.Do) {
		return ""
	}
	return fmt.Sprintf("%s %s at %s: %d of %d voters are left", d.Do, d.Member, d.At.Format(time.TimeOnly), healthy,
		voters)
}

// removesTheLiving says that a voter was removed that had answered and known a leader at each look for a while, though
// there were not more voters than the spec asked for: perhaps only the operator could not reach it.
func removesTheLiving(looks []look, d deed) string {
	var before []members.Listed
	size, long := 0, false
	for _, l := range looks {
		if late := l.at.After(d.At); late || d.At.Sub(l.at) > grace {
			if !late && l.list != nil {
				before = l.list
			}
			continue
		}
		if !l.healthy[d.ID] || l.size == 0 {
			return ""
		}
		if size == 0 || l.size < size {
			size = l.size
		}
		long = long || d.At.Sub(l.at) > grace/2
		if l.list != nil {
			before = l.list
		}
	}
	voters := votersOf(before)
	votes := slices.ContainsFunc(voters, func(m members.Listed) bool { return m.ID == d.ID })
	if d.Do != plan.Remove || !votes || !long || len(voters) > size {
		return ""
	}
	return fmt.Sprintf("Remove %s at %s: it was healthy, and one of %d voters", d.Member, d.At.Format(time.TimeOnly),
		len(voters))
}

func interrupts(do plan.Verb) bool {
	switch do {
	case plan.SetImage, plan.DeletePod, plan.Defragment:
		return true
	}
	return false
}

// TestJudge has deeds that cost a quorum, and those that do not.
func TestJudge(t *testing.T) {
	began := time.Now()
	list := []members.Listed{{ID: 1, Name: "a-1"}, {ID: 2, Name: "a-2"}, {ID: 3, Name: "a-3"},
		{ID: 4, Name: "a-4", Learner: true}}
	looks := []look{{began, list, map[uint64]bool{1: true, 2: true, 3: true, 4: true}, 3}}
	for s := range 20 {
		looks = append(looks, look{began.Add(time.Duration(s) * time.Second), list, map[uint64]bool{1: true, 2: true},
			3})
	}
	soon, late := began.Add(5*time.Second), began.Add(19*time.Second)
	o := &oracle{looks: looks, restarts: []deed{{late, plan.DeletePod, "a-1", 0}}}
	require.Len(t, o.judge(nil), 1)
	o.recoveries = []time.Time{began}
	require.Len(t, o.judge(nil), 1)
	o.recoveries = []time.Time{began, late.Add(-time.Second)}
	require.Empty(t, o.judge(nil), "the status had a recovery by then")
	o.beside = []string{"a-2"}
	require.Len(t, o.judge(nil), 1)
	// A fourth voter was removed, and its pod deleted, before the oracle saw the list again.
	more := slices.Concat(list, []members.Listed{{ID: 5, Name: "a-5"}})
	removed := []look{{began, more, map[uint64]bool{1: true, 2: true}, 3},
		{soon.Add(time.Second), list, map[uint64]bool{1: true, 2: true}, 3}}
	require.NotEmpty(t, judge(removed[:1], deed{soon, plan.DeletePod, "a-5", 0}))
	require.Empty(t, judge(removed, deed{soon, plan.DeletePod, "a-5", 0}))
	require.NotEmpty(t, judge(removed, deed{soon, plan.DeletePod, "a-2", 0}))
	for _, c := range []struct {
		d    deed
		want bool
	}{
		{deed{late, plan.Remove, "a-3", 3}, true},
		{deed{late, plan.Remove, "a-2", 2}, false},
		{deed{soon, plan.Remove, "a-2", 2}, true},
		{deed{late, plan.SetImage, "a-2", 0}, false},
		{deed{late, plan.SetImage, "a-3", 0}, true},
		{deed{late, plan.SetImage, "a-4", 0}, true},
		{deed{late, plan.DeletePod, "a-1", 0}, false},
		{deed{late, plan.DeletePod, "a-9", 0}, true},
		{deed{late, plan.Promote, "a-4", 4}, false},
		{deed{soon, plan.Promote, "a-4", 4}, true},
		{deed{late, plan.MoveLeader, "a-2", 2}, true},
	} {
		require.Equal(t, c.want, judge(looks, c.d) == "", "%v", c)
	}
}

// TestJudgeOfRemovals removes a voter that the others need not lose.
func TestJudgeOfRemovals(t *testing.T) {
	began := time.Now()
	list := []members.Listed{{ID: 1, Name: "a-1"}, {ID: 2, Name: "a-2"}, {ID: 3, Name: "a-3"}, {ID: 4, Learner: true}}
	remove := deed{began.Add(20 * time.Second), plan.Remove, "a-3", 3}
	for what, c := range map[string]struct {
		change func(second int, l *look)
		deed
		want bool
	}{
		"a healthy one":             {func(int, *look) {}, remove, false},
		"one that was not just now": {func(s int, l *look) { l.healthy[3] = s != 19 }, remove, true},
		"one that has just come":    {func(s int, l *look) { l.healthy[3] = s > 15 }, remove, true},
		"one before it was needed":  {func(s int, l *look) { l.size = 2 + s/19 }, remove, true},
		"one that was not seen":     {func(s int, l *look) { l.size = 0 }, remove, true},
		"a learner":                 {func(int, *look) {}, deed{remove.At, plan.Remove, "", 4}, true},
		"a promotion":               {func(int, *look) {}, deed{remove.At, plan.Promote, "a-3", 3}, true},
	} {
		var looks []look
		for s := range 25 {
			l := look{began.Add(time.Duration(s) * time.Second), list,
				map[uint64]bool{1: true, 2: true, 3: true, 4: true}, 3}
			c.change(s, &l)
			looks = append(looks, l)
		}
		require.Equal(t, c.want, removesTheLiving(looks, c.deed) == "", what)
	}
}

// actions counts deeds by their verbs.
func actions(deeds []deed) string {
	counts := map[plan.Verb]int{}
	for _, d := range deeds {
		counts[d.Do]++
	}
	return tally(counts)
}

// tally lists the most frequent first.
func tally[K cmp.Ordered](counts map[K]int) (text string) {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for i, name := range names {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d %v", counts[name], name)
	}
	return text
}
