package reconcile_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

var (
	ownWritesFor  = flag.Duration("own-writes", 8*time.Second, "how long TestRandomOwnWrites writes")
	ownWritesSeed = flag.Uint64("own-writes-seed", 0, "of the writes of TestRandomOwnWrites; 0: a new one")
)

// TestRandomOwnWrites runs a Reconciler that writes whatever can be written, by every kind of client, on a network that
// brings watches late, breaks them and loses answers. No call may see, in any cache, a state older than what its key
// has written before: that is what the server has when a call has ended, since only the key writes its objects. A
// client without TrackWrites is found out, so the judge is able to. make test-long lets it write for minutes.
func TestRandomOwnWrites(t *testing.T) {
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true,
		Controllers: []string{"serviceaccount-controller"}})
	definition := &unstructured.Unstructured{}
	require.NoError(t, definition.UnmarshalJSON([]byte(thingDefinition)))
	require.NoError(t, cluster.Apply(t.Context(), definition))
	seed := *ownWritesSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-own-writes-seed %d", seed)
	t.Run("not tracked", func(t *testing.T) {
		j := newOwnJudge(t, cluster, seed, func(cfg *rest.Config) *rest.Config { return cfg })
		j.run(3*time.Minute, 0, func() bool { return j.violations() >= 10 }) // a busy machine makes few calls
		require.NotZero(t, j.violations(), "nothing went wrong without TrackWrites either")
	})
	t.Run("tracked", func(t *testing.T) {
		j := newOwnJudge(t, cluster, seed, func(cfg *rest.Config) *rest.Config {
			cfg, err := reconcile.ClientConfig(cfg)
			require.NoError(t, err)
			return cfg
		})
		j.run(*ownWritesFor, 300, func() bool { return false })
		require.Zero(t, j.violations(), "calls that saw a state older than own writes")
		require.Greater(t, j.requests.Load(), int64(300), "the test has hardly begun")
	})
}

// ownJudge has a controller, and knows what its keys have written.
type ownJudge struct {
	*ownWorld
	t          *testing.T
	network    *badNetwork
	manager    *reconcile.Manager
	controller *reconcile.Controller
	hints      chan string
	keys       map[string]*ownKey // the call for a key has its entry to itself

	calls, requests, refused, stale atomic.Int64
	quiet                           atomic.Bool // calls write no more

	mu     sync.Mutex
	byRow  map[string]*rowCount // guarded by mu, the map itself not changed
	lines  []string             // guarded by mu: of violations
	looked map[string]bool      // guarded by mu: the keys of which there has been a call since quiet
}

type rowCount struct {
	row                         ownWrite
	writes, refused, violations int
}

// ownKey is what the server has of the objects of a key, by kind and name.
type ownKey struct {
	random  *rand.Rand
	objects map[*ownKind]map[string]*unstructured.Unstructured
	last    map[string]string // which row wrote an object last, by kind and name
}

const ownKeys, ownWorkers = 100, 8

func newOwnJudge(t *testing.T, cluster *testcluster.Cluster, seed uint64, track func(*rest.Config) *rest.Config,
) *ownJudge {
	j := &ownJudge{t: t, hints: make(chan string), keys: map[string]*ownKey{}, byRow: map[string]*rowCount{},
		looked: map[string]bool{}}
	j.network = &badNetwork{calm: make(chan struct{})}
	through := cluster.Config()
	through.Wrap(j.network.over)
	j.ownWorld = newOwnWorld(t, cluster, track(through))
	var err error
	j.controller, err = reconcile.NewController("own-writes", reconcile.Func(j.reconcile),
		reconcile.Options{Workers: ownWorkers, AllowHotLoops: true})
	require.NoError(t, err)
	j.follow(j.controller)
	reconcile.WatchesChan(j.controller, "hints", j.hints, func(key string) []reconcile.Key {
		return []reconcile.Key{{Namespace: j.namespace, Name: key}}
	})
	j.manager, err = reconcile.NewManager(
		reconcile.ManagerOptions{Controllers: []*reconcile.Controller{j.controller}})
	require.NoError(t, err)
	for i := range ownKeys {
		j.keys[fmt.Sprintf("k%d", i)] = &ownKey{random: rand.New(rand.NewPCG(seed, uint64(i))),
			objects: map[*ownKind]map[string]*unstructured.Unstructured{}, last: map[string]string{}}
	}
	for _, row := range ownWrites {
		j.byRow[row.name] = &rowCount{row: row}
	}
	j.byRow[""] = &rowCount{} // of objects that come and go in one write
	return j
}

// run runs the controller for a while, or until enough has happened; in any case, for some minutes more, until there
// were more requests than least. Then the network is calm and calls write no more, and there must be a call for each
// key: no write is waited for in vain.
func (j *ownJudge) run(d time.Duration, least int64, enough func() bool) {
	ctx, cancel := context.WithCancel(j.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- j.manager.Run(ctx) }()
	ends := time.Now().Add(d)
	names := slices.Sorted(maps.Keys(j.keys))
	hint := func() {
		time.Sleep(time.Millisecond)
		select {
		case j.hints <- names[rand.IntN(len(names))]:
		case <-time.After(time.Second):
		}
	}
	few := func() bool { return j.requests.Load() <= least && time.Now().Before(ends.Add(4*time.Minute)) }
	for time.Now().Before(ends) && !enough() || few() {
		hint()
	}
	j.quiet.Store(true)
	close(j.network.calm)
	for ends = time.Now().Add(2 * time.Minute); time.Now().Before(ends) && len(j.unlooked()) > 0 && !enough(); {
		hint()
	}
	why := ""
	for _, key := range j.unlooked() {
		why += "\n" + j.controller.Why(reconcile.Key{Namespace: j.namespace, Name: key})
	}
	cancel()
	require.NoError(j.t, <-done)
	j.report()
	if !enough() {
		require.Empty(j.t, why, "there is no call for a key, although all that it has written can be seen")
	}
}

// unlooked returns the keys of which there has been no call since calls write no more.
func (j *ownJudge) unlooked() (keys []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key := range j.keys {
		if !j.looked[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

func (j *ownJudge) violations() int64 { return j.stale.Load() }

func (j *ownJudge) report() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.t.Logf("%d calls and %d requests to write, of which %d failed or were refused; %d answers lost, %d watches "+
		"broken; %d calls saw a state older than own writes", j.calls.Load(), j.requests.Load(), j.refused.Load(),
		j.network.lost.Load(), j.network.broke.Load(), j.stale.Load())
	for _, row := range ownWrites {
		c := j.byRow[row.name]
		j.t.Logf("%5d writes, %4d failed, %4d older states: %s", c.writes, c.refused, c.violations, row.name)
	}
	if len(j.lines) > 0 {
		j.t.Log(strings.Join(j.lines, "\n"))
	}
}

// reconcile looks at the caches, and then writes once or more.
func (j *ownJudge) reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	k := j.keys[key.Name]
	if k == nil {
		return reconcile.Result{}, nil
	}
	j.calls.Add(1)
	j.look(key.Name, k)
	if j.quiet.Load() {
		j.mu.Lock()
		j.looked[key.Name] = true
		j.mu.Unlock()
		return reconcile.Result{}, nil
	}
	for range 1 + k.random.IntN(3) {
		j.write(ctx, key.Name, k)
	}
	return reconcile.Result{}, nil
}

// write makes one write of a row that suits the objects of the key, and asks the server what has become of it.
func (j *ownJudge) write(ctx context.Context, key string, k *ownKey) {
	kind := j.kinds[k.random.IntN(len(j.kinds))]
	type choice struct {
		row ownWrite
		o   *unstructured.Unstructured
	}
	var choices []choice
	objects := k.objects[kind]
	for _, row := range ownWrites {
		switch {
		case row.kinds != nil && !slices.Contains(row.kinds, kind.name):
		case row.of == nil && len(objects) < 4:
			choices = append(choices, choice{row, nil})
		case row.of != nil:
			for _, name := range slices.Sorted(maps.Keys(objects)) {
				if row.of(objects[name]) {
					choices = append(choices, choice{row, objects[name]})
				}
			}
		}
	}
	if len(choices) == 0 {
		return
	}
	chosen := choices[k.random.IntN(len(choices))]
	c := &ownCall{ctx: ctx, random: k.random, key: key, namespace: j.namespace, kind: kind,
		client: kind.writers[k.random.IntN(len(kind.writers))], typed: j.typed}
	err := chosen.row.do(c, chosen.o)
	j.requests.Add(1)
	if err != nil {
		j.refused.Add(1)
	}
	j.mu.Lock()
	count := j.byRow[chosen.row.name]
	count.writes++
	if err != nil {
		count.refused++
	}
	j.mu.Unlock()
	j.learn(k, kind, key, chosen.row.name)
}

// learn asks the server for the objects of a kind that a key has.
func (j *ownJudge) learn(k *ownKey, kind *ownKind, key, row string) {
	list, err := kind.direct.List(context.WithoutCancel(j.t.Context()), metav1.ListOptions{LabelSelector: "key=" + key})
	if err != nil {
		j.t.Errorf("ask the server for the %s of %s: %v", kind.name, key, err)
		return
	}
	before, now := k.objects[kind], map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		o := &list.Items[i]
		now[o.GetName()] = o
		if was := before[o.GetName()]; was == nil || was.GetResourceVersion() != o.GetResourceVersion() {
			k.last[kind.name+"/"+o.GetName()] = row
		}
	}
	for name := range before {
		if now[name] == nil {
			k.last[kind.name+"/"+name] = row
		}
	}
	k.objects[kind] = now
}
