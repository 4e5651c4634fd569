package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is a naive etcd on a naive Kubernetes. It knows nothing of the planner: a member is healthy if its process runs
// on the disk that it has written to, and a change of the list needs a majority of healthy voters.
type model struct {
	size    int
	version Version
	formed  bool
	last    Version
	failed  Version
	list    map[uint64]*listed // etcd's
	disks   map[string]*disk
	pods    map[string]*process
	words   map[string]Word
	told    map[string]Version
	known   map[string]uint64 // the ID that the list last had for a name
	leader  uint64
	nextID  uint64
	to      Version // of the downgrade that is under way
	ca      int     // that members should trust
	history []string
}

type listed struct {
	id               uint64
	name, url        string // the name is known when it has started
	learner, started bool
}

type disk struct {
	member  uint64 // whose data it has; 0: none
	storage int    // minor version of the format
	leaving bool   // its claim is deleted, and goes when its pod does
}

type process struct {
	url     string
	image   Version
	runs    Version // zero: it does not run
	down    time.Duration
	starts  int
	frozen  bool
	fat     bool // its file could be smaller
	leaving int  // ticks until it is gone; it answers until there are two left
	trusts  int
}

func (w *model) url(name string) string { return fmt.Sprintf("http://%s.%d", name, w.nextID) }

func (w *model) member(name string) *listed {
	for _, m := range w.list {
		if p := w.pods[name]; m.name == name || m.name == "" && p != nil && m.url == p.url {
			return m
		}
	}
	return nil
}

func (w *model) healthy(m *listed) bool {
	p, d := w.pods[m.name], w.disks[m.name]
	return p != nil && d != nil && m.started && p.runs != Version{} && !p.frozen && d.member == m.id
}

func (w *model) count() (voters, healthy int) {
	for _, m := range w.list {
		if !m.learner {
			voters++
			if w.healthy(m) {
				healthy++
			}
		}
	}
	return voters, healthy
}

// lasts reports whether a quorum is left without the pods that are going.
func (w *model) lasts() bool {
	voters, healthy := w.count()
	for _, m := range w.list {
		if !m.learner && w.healthy(m) && w.pods[m.name].leaving > 0 {
			healthy--
		}
	}
	return healthy > voters/2
}

func (w *model) quorum() bool { voters, healthy := w.count(); return voters > 0 && healthy > voters/2 }

// observe shows the model to the planner, as the reconciler would.
func (w *model) observe() Cluster {
	c := Cluster{Name: "e", Size: w.size, Version: w.version, ReplaceAfter: 30 * time.Second, Formed: w.formed,
		Last: w.last, Failed: w.failed, Listed: w.quorum(), Quota: 1 << 30}
	names := map[string]bool{}
	for name := range w.disks {
		names[name] = true
	}
	for name := range w.pods {
		names[name] = true
	}
	for name := range w.words {
		names[name] = true
	}
	for _, m := range w.list {
		if m.name != "" && c.Listed {
			names[m.name] = true
		}
	}
	seen := map[uint64]bool{}
	for name := range names {
		o := Member{Name: name, Word: w.words[name], Told: w.told[name]}
		d, p := w.disks[name], w.pods[name]
		if d != nil {
			if o.Claim = Present; d.leaving {
				o.Claim = Leaving
			}
			o.Known = w.known[name] == d.member && d.member != 0
		}
		if p != nil {
			if p.fat {
				o.DBSize = 1 << 29
			}
			o.Pod, o.URL, o.Image, o.Down, o.Broken = Present, p.url, p.image, p.down, p.starts >= 3
			if p.leaving > 0 {
				o.Pod = Leaving
			}
			if p.trusts != w.ca {
				o.Trust = TrustsSome
			}
		}
		if m := w.member(name); m != nil && c.Listed {
			seen[m.id] = true
			o.ID, o.Learner, o.Started, o.ListedURL = m.id, m.learner, m.started, m.url
			w.known[name] = m.id
			if o.Healthy = w.healthy(m); o.Healthy {
				o.Version, o.StorageVersion, o.Leader = p.runs, Version{3, d.storage, 0}, m.id == w.leader
				o.DowngradeTo = w.to
			}
		}
		c.Members = append(c.Members, o)
	}
	for _, m := range w.list {
		if !seen[m.id] && c.Listed {
			c.Members = append(c.Members, Member{ID: m.id, Learner: m.learner, ListedURL: m.url})
		}
	}
	slices.SortFunc(c.Members, func(a, b Member) int { return cmpNames(a.Name, b.Name) })
	if oldest, _ := c.versions(); oldest != (Version{}) {
		w.last = oldest
	}
	return c
}

func cmpNames(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return slices.Compare([]byte(a), []byte(b))
}

// tick lets a second pass: processes start, or fail to.
func (w *model) tick(t *testing.T) {
	for name, p := range w.pods {
		if p.leaving > 0 {
			if p.leaving <= 2 {
				p.runs = Version{}
			}
			if p.runs == (Version{}) {
				p.down += time.Second
			}
			if p.leaving--; p.leaving == 0 {
				delete(w.pods, name)
			}
			continue
		}
		if p.runs != (Version{}) && !p.frozen {
			p.down, p.starts = 0, 0
			continue
		}
		p.down += time.Second
		if !p.frozen {
			w.start(t, name, p)
		}
	}
	for name, d := range w.disks {
		if d.leaving && w.pods[name] == nil {
			delete(w.disks, name)
		}
	}
	w.elect()
	w.formats()
}

func (w *model) start(t *testing.T, name string, p *process) {
	m, d, word := w.member(name), w.disks[name], w.words[name]
	switch {
	case word == Untold || d == nil:
		return
	case d.member == 0 && word == Restart, m == nil && w.formed, m != nil && d.member != 0 && d.member != m.id,
		d.member != 0 && p.image.Minor < d.storage:
		require.False(t, d.member != 0 && p.image.Minor < d.storage, "too old for its disk: %v", w.history)
		p.starts++
		return
	case d.member == 0 && m != nil && w.to != Version{}: // etcd takes no new member while it is being downgraded
		p.starts++
		return
	case m == nil: // forms the cluster
		w.nextID++
		m = &listed{id: w.nextID, name: name, url: p.url}
		w.list[m.id], w.formed = m, true
		d.storage = p.image.Minor
	}
	if d.member == 0 {
		require.False(t, m.started && !m.learner, "a voter has started on an empty disk: %v", w.history)
	}
	m.name, m.started, d.member, p.runs = name, true, m.id, p.image
	if d.storage == 0 {
		d.storage = p.image.Minor
	}
}

func (w *model) elect() {
	if m := w.list[w.leader]; m != nil && !m.learner && w.healthy(m) {
		return
	}
	w.leader = 0
	for id, m := range w.list {
		if !m.learner && w.healthy(m) && w.quorum() {
			w.leader = max(w.leader, id)
		}
	}
}

// formats lets disks follow the cluster's version.
func (w *model) formats() {
	oldest, same := 99, true
	for _, m := range w.list {
		if p := w.pods[m.name]; p != nil && w.healthy(m) {
			oldest = min(oldest, p.runs.Minor)
			same = same && p.runs.Minor == w.to.Minor
		} else {
			return
		}
	}
	if len(w.list) == 0 {
		return
	}
	if w.to != (Version{}) && same {
		w.to = Version{}
	}
	if w.to != (Version{}) {
		oldest = w.to.Minor
	}
	for _, m := range w.list {
		w.disks[m.name].storage = oldest
	}
}

// act does what the planner says, and checks that it costs no quorum.
func (w *model) act(t *testing.T, a Action) {
	before, lasted, m, p := w.quorum(), w.lasts(), w.list[a.ID], w.pods[a.Member]
	switch a.Do {
	case CreateClaim:
		require.Nil(t, w.disks[a.Member])
		w.disks[a.Member] = &disk{}
	case CreatePod:
		require.Nil(t, p)
		w.nextID++
		w.pods[a.Member] = &process{url: w.url(a.Member), image: a.Version, trusts: w.ca}
	case DeletePod:
		p.leaving = 2
	case RenewTrust:
		require.NotEqual(t, w.ca, p.trusts)
		p.leaving = 4
	case DeleteClaim:
		w.disks[a.Member].leaving = true
	case DeleteWord:
		delete(w.words, a.Member)
		delete(w.told, a.Member)
	case Form, TellBegin:
		w.words[a.Member], w.told[a.Member] = Begin, a.Version
	case TellRestart:
		w.words[a.Member], w.told[a.Member] = Restart, a.Version
	case SetImage, RollBack:
		if a.Do == RollBack {
			w.failed = p.image
		}
		p.image, p.runs, w.told[a.Member] = a.Version, Version{}, a.Version
	case Defragment:
		p.fat, p.runs = false, Version{}
	case AddLearner:
		require.True(t, before)
		w.nextID++
		w.list[w.nextID] = &listed{id: w.nextID, url: a.URL, learner: true}
	case Promote:
		require.True(t, before && m.learner && w.healthy(m), "%v", a)
		require.Equal(t, Restart, w.words[a.Member], "%v", a)
		m.learner = false
	case Remove:
		require.True(t, before)
		delete(w.list, a.ID)
	case Readdress:
		m.url = a.URL
	case MoveLeader:
		w.leader = a.ID
	case Downgrade:
		for _, m := range w.list {
			refused := w.healthy(m) && w.pods[m.name].runs.Minor <= a.Version.Minor
			require.False(t, refused, "etcd refuses a version that a member runs: %v", w.history)
		}
		w.to = a.Version
	case CancelDowngrade:
		w.to = Version{}
	case Rest, Wait, Refuse:
	default:
		t.Fatalf("unexpected %v", a)
	}
	voters, _ := w.count()
	if interrupted := a.Do != Remove && voters <= 2; before && !interrupted {
		require.True(t, w.quorum(), "%v costs the quorum: %v", a, w.history)
		require.True(t, !lasted || a.Do != RenewTrust || w.lasts(), "%v will cost the quorum: %v", a, w.history)
	}
}

// fault breaks something. Disks are lost only as long as a quorum of the voters keeps theirs.
func (w *model) fault(r *rand.Rand) string {
	names := slices.Collect(func(yield func(string) bool) {
		for name := range w.pods {
			if !yield(name) {
				return
			}
		}
	})
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	name := names[r.IntN(len(names))]
	voters, intact := 0, 0
	for _, m := range w.list {
		if d := w.disks[m.name]; !m.learner {
			gone := w.pods[m.name] != nil && w.pods[m.name].leaving > 10 // with its node
			if voters++; d != nil && d.member == m.id && !d.leaving && m.name != name && !gone {
				intact++
			}
		}
	}
	p, spare := w.pods[name], intact > voters/2
	if d := w.disks[name]; d != nil && d.leaving && !spare {
		return "" // it would go with its pod
	}
	switch r.IntN(10) {
	case 0:
		p.runs = Version{}
		return "kill " + name
	case 1:
		delete(w.pods, name)
		return "delete pod " + name
	case 2:
		p.frozen = true
		return "freeze " + name
	case 3:
		if d := w.disks[name]; spare && d != nil {
			*d, p.runs = disk{leaving: d.leaving}, Version{}
			return "lose disk " + name
		}
	case 4:
		if spare {
			delete(w.disks, name)
			delete(w.pods, name)
			return "delete claim " + name
		}
	case 5:
		w.nextID++
		p.url, p.runs = w.url(name), Version{}
		return "move " + name
	case 6:
		p.fat = true
		return "fatten " + name
	case 7:
		p.leaving, p.runs = 1<<30, Version{}
		if spare {
			return "lose node of " + name
		}
		p.leaving = 1
		return "evict " + name
	case 8:
		if d := w.disks[name]; spare && d != nil {
			d.leaving = true
			return "delete claim in use " + name
		}
	case 9: // before the list has its name, nobody knows whether it has started
		if d := w.disks[name]; d != nil && d.member != 0 && w.known[name] == d.member {
			delete(w.words, name)
			delete(w.told, name)
			return "lose word of " + name
		}
	}
	return ""
}

// TestNext lets random histories happen to the model: no action costs a quorum, no voter starts on an empty disk, and
// when the faults stop the cluster is as the spec says.
func TestNext(t *testing.T) {
	versions := []Version{{3, 5, 30}, {3, 6, 10}, {3, 6, 16}, {3, 7, 3}}
	const seeds = 600
	refused := 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 22))
		at := r.IntN(len(versions))
		w := &model{size: 1 + r.IntN(5), version: versions[at], list: map[uint64]*listed{}, disks: map[string]*disk{},
			pods: map[string]*process{}, words: map[string]Word{}, told: map[string]Version{},
			known: map[string]uint64{}}
		run := func(ticks int, disturbed bool) (a Action) {
			for range ticks {
				a = Next(w.observe())
				if a.Changes() {
					w.history = append(w.history, a.String())
				}
				if !disturbed || r.IntN(10) > 0 { // otherwise the operator dies first
					w.act(t, a)
				}
				w.tick(t)
				if disturbed && r.IntN(12) == 0 {
					w.history = append(w.history, w.fault(r))
				}
				if disturbed && r.IntN(60) == 0 {
					w.size = 1 + r.IntN(5)
				}
				if disturbed && r.IntN(60) == 0 {
					w.ca++
				}
				if next := at + r.IntN(3) - 1; disturbed && r.IntN(60) == 0 && next >= 0 && next < len(versions) {
					at, w.version = next, versions[next]
				}
			}
			return a
		}
		run(150, true)
		for _, p := range w.pods {
			p.frozen = false
		}
		a := run(500, false)
		// The version was changed twice before the first change was through, or a disk was lost in the middle of one.
		if a.Do == Refuse {
			refused++
		} else if a.Do != Rest {
			t.Fatalf("seed %d: %v\n%+v\n%q", seed, a, w.observe(), w.history)
		}
		voters, healthy := w.count()
		require.Equal(t, []int{w.size, w.size, w.size}, []int{len(w.list), voters, healthy}, "seed %d", seed)
		for _, m := range w.list {
			require.True(t, a.Do == Refuse || w.pods[m.name].runs == w.version, "seed %d", seed)
			require.Equal(t, w.ca, w.pods[m.name].trusts, "seed %d", seed)
		}
	}
	t.Logf("%d of %d versions were refused in the end", refused, seeds)
}
