package reconcile_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

var (
	ownWritesFor  = flag.Duration("own-writes", 20*time.Second, "how long TestRandomOwnWrites writes")
	ownWritesSeed = flag.Uint64("own-writes-seed", 0, "of the writes of TestRandomOwnWrites; 0: a new one")
	ownWritesRows = flag.String("own-writes-rows", "",
		"TestRandomOwnWrites has only the rows that match, and those that make and change objects; unmended ones, too")
)

// TestRandomOwnWrites runs a Reconciler that writes whatever can be written, by every kind of client, on a network that
// brings watches late, breaks them and loses answers. No call may see, in any cache, a state older than what its key
// has written before: that is what the server has when a call has ended, since only the key writes its objects. A
// client without TrackWrites is found out, so the judge is able to.
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
		j.run(20*time.Second, func() bool { return j.violations() >= 10 })
		require.NotZero(t, j.violations(), "nothing went wrong without TrackWrites either")
	})
	t.Run("tracked", func(t *testing.T) {
		j := newOwnJudge(t, cluster, seed, func(cfg *rest.Config) *rest.Config {
			cfg, err := reconcile.ClientConfig(cfg)
			require.NoError(t, err)
			return cfg
		})
		j.run(*ownWritesFor, func() bool { return false })
		require.Zero(t, j.violations(), "calls that saw a state older than own writes")
	})
}

const thingDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
	"metadata":{"name":"things.own.example.com"},
	"spec":{"group":"own.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
	"versions":[{"name":"v1","served":true,"storage":true,
	"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
	"schema":{"openAPIV3Schema":{"type":"object","properties":{
	"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},
	"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}`

// ownKind is a kind of objects, with the clients that write them.
type ownKind struct {
	name     string
	manifest string
	direct   dynamic.ResourceInterface // past the bad network and past TrackWrites
	dynamic  writer
	writers  []writer // dynamic is one of them
}

// ownCache is a cache that the controller follows.
type ownCache struct {
	name   string
	kind   *ownKind
	admits func(*unstructured.Unstructured) bool
	of     func(key string) map[string]version // the objects of a key
}

// version is an object at a time.
type version struct {
	uid    string
	number uint64
}

func (v version) String() string { return fmt.Sprintf("%s at version %d", v.uid, v.number) }

// ownJudge has a controller, and knows what its keys have written.
type ownJudge struct {
	t          *testing.T
	namespace  string
	network    *badNetwork
	kinds      []*ownKind
	caches     []*ownCache
	rows       []ownWrite
	typed      kubernetes.Interface
	manager    *reconcile.Manager
	controller *reconcile.Controller
	hints      chan string
	keys       map[string]*ownKey // the call for a key has its entry to itself

	calls, requests, refused, stale atomic.Int64
	quiet                           atomic.Bool // calls write no more

	mu     sync.Mutex
	byRow  map[string]*rowCount // guarded by mu
	lines  []string             // guarded by mu: of violations
	looked map[string]bool      // guarded by mu: the keys of which there has been a call since quiet
}

type rowCount struct{ writes, refused, violations int }

// ownKey is what the server has of the objects of a key: by cache name, and by name of the object.
type ownKey struct {
	random  *rand.Rand
	objects map[*ownKind]map[string]*unstructured.Unstructured
	last    map[string]string // which row wrote an object last, by kind and name
}

const ownKeys, ownWorkers = 100, 8

func newOwnJudge(t *testing.T, cluster *testcluster.Cluster, seed uint64, track func(*rest.Config) *rest.Config,
) *ownJudge {
	j := &ownJudge{t: t, namespace: cluster.Namespace(t), hints: make(chan string),
		keys: map[string]*ownKey{}, byRow: map[string]*rowCount{}, looked: map[string]bool{}}
	j.network = &badNetwork{calm: make(chan struct{}), longSilence: unmended || *ownWritesRows != ""}
	base := cluster.Config()
	base.Wrap(j.network.over)
	cfg := track(base)
	direct := dynamic.NewForConfigOrDie(cluster.Config())
	writers := dynamic.NewForConfigOrDie(cfg)
	protobuf := rest.CopyConfig(cfg)
	protobuf.ContentType = "application/vnd.kubernetes.protobuf"
	j.typed = kubernetes.NewForConfigOrDie(protobuf)
	kind := func(gvr schema.GroupVersionResource, manifest string) *ownKind {
		k := &ownKind{name: gvr.Resource, manifest: manifest, direct: direct.Resource(gvr).Namespace(j.namespace),
			dynamic: writerOf[*unstructured.Unstructured](dynamicClient{writers.Resource(gvr).Namespace(j.namespace)})}
		k.writers = []writer{k.dynamic}
		j.kinds = append(j.kinds, k)
		return k
	}
	const container = `"containers":[{"name":"c","image":"i"}]`
	maps := kind(corev1.SchemeGroupVersion.WithResource("configmaps"), `{"apiVersion":"v1","kind":"ConfigMap"}`)
	mapResource := resourceOf[*corev1.ConfigMap](j, cfg, corev1.SchemeGroupVersion.WithResource("configmaps"))
	maps.writers = append(maps.writers, writerOf(j.typed.CoreV1().ConfigMaps(j.namespace)), writerOf(mapResource))
	things := kind(schema.GroupVersionResource{Group: "own.example.com", Version: "v1", Resource: "things"},
		`{"apiVersion":"own.example.com/v1","kind":"Thing","spec":{"replicas":0}}`)
	thingResource := resourceOf[*unstructured.Unstructured](j, cfg,
		schema.GroupVersionResource{Group: "own.example.com", Version: "v1", Resource: "things"})
	things.writers = append(things.writers, writerOf(thingResource))
	pods := kind(corev1.SchemeGroupVersion.WithResource("pods"),
		`{"apiVersion":"v1","kind":"Pod","spec":{`+container+`}}`)
	pods.writers = append(pods.writers, writerOf(j.typed.CoreV1().Pods(j.namespace)))
	deployments := kind(appsv1.SchemeGroupVersion.WithResource("deployments"), `{"apiVersion":"apps/v1",
		"kind":"Deployment","spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{`+container+`}}}}`)
	deployments.writers = append(deployments.writers, writerOf(j.typed.AppsV1().Deployments(j.namespace)))
	deploymentResource := resourceOf[*appsv1.Deployment](j, cfg, appsv1.SchemeGroupVersion.WithResource("deployments"))

	c, err := reconcile.NewController("own-writes", reconcile.Func(j.reconcile),
		reconcile.Options{Workers: ownWorkers, AllowHotLoops: true})
	require.NoError(t, err)
	follow[*corev1.ConfigMap](j, c, maps, "configmaps", j.typed.CoreV1().ConfigMaps(j.namespace), nil)
	follow[*unstructured.Unstructured](j, c, things, "things", thingResource, nil)
	in := labels.SelectorFromSet(labels.Set{"in": "yes"})
	follow[*unstructured.Unstructured](j, c, things, "things in the selector", thingResource, in)
	follow[*corev1.ConfigMap](j, c, maps, "configmaps in the selector", mapResource, in)
	follow[*corev1.Pod](j, c, pods, "pods", j.typed.CoreV1().Pods(j.namespace), nil)
	follow[*appsv1.Deployment](j, c, deployments, "deployments", deploymentResource, nil)
	reconcile.WatchesChan(c, "hints", j.hints, func(key string) []reconcile.Key {
		return []reconcile.Key{{Namespace: j.namespace, Name: key}}
	})
	j.controller = c
	j.manager, err = reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	require.NoError(t, err)
	for i := range ownKeys {
		j.keys[fmt.Sprintf("k%d", i)] = &ownKey{random: rand.New(rand.NewPCG(seed, uint64(i))),
			objects: map[*ownKind]map[string]*unstructured.Unstructured{}, last: map[string]string{}}
	}
	wanted := regexp.MustCompile(*ownWritesRows)
	for _, row := range ownWrites {
		switch {
		case *ownWritesRows == "" && (unmended || !row.unmended):
		case *ownWritesRows != "" && (wanted.MatchString(row.name) || !row.unmended):
		default:
			continue
		}
		j.rows = append(j.rows, row)
		j.byRow[row.name] = &rowCount{}
	}
	return j
}

// dynamicClient has the methods of a typed client.
type dynamicClient struct{ dynamic.ResourceInterface }

func (c dynamicClient) Create(ctx context.Context, o *unstructured.Unstructured, opts metav1.CreateOptions,
) (*unstructured.Unstructured, error) {
	return c.ResourceInterface.Create(ctx, o, opts)
}

func (c dynamicClient) Update(ctx context.Context, o *unstructured.Unstructured, opts metav1.UpdateOptions,
) (*unstructured.Unstructured, error) {
	return c.ResourceInterface.Update(ctx, o, opts)
}

func (c dynamicClient) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.ResourceInterface.Delete(ctx, name, opts)
}

func resourceOf[T informer.Object](j *ownJudge, cfg *rest.Config, gvr schema.GroupVersionResource,
) *informer.Resource[T] {
	r, err := informer.NewResource[T](cfg, gvr, informer.ResourceOptions{})
	require.NoError(j.t, err)
	return r.In(j.namespace)
}

// follow makes an informer a source of the controller.
func follow[T informer.Object, L runtime.Object](j *ownJudge, c *reconcile.Controller, kind *ownKind, name string,
	client informer.Client[L], selector labels.Selector) {
	inf, err := informer.New(client, informer.Options[T]{Name: name, LabelSelector: selector})
	require.NoError(j.t, err)
	byKey, err := informer.AddIndex(inf, func(o T) []string { return []string{o.GetLabels()["key"]} })
	require.NoError(j.t, err)
	reconcile.Watches(c, inf, func(o T) []reconcile.Key {
		return []reconcile.Key{{Namespace: j.namespace, Name: o.GetLabels()["key"]}}
	})
	cache := &ownCache{name: name, kind: kind, of: func(key string) map[string]version {
		found := map[string]version{}
		for o := range byKey.Get(key) {
			found[o.GetName()] = version{string(o.GetUID()), number(o.GetResourceVersion())}
		}
		return found
	}}
	cache.admits = func(o *unstructured.Unstructured) bool {
		return selector == nil || selector.Matches(labels.Set(o.GetLabels()))
	}
	j.caches = append(j.caches, cache)
}

// run runs the controller for a while, or until enough has happened. Then the network is calm and calls write no more,
// and there must be a call for each key: no write is waited for in vain.
func (j *ownJudge) run(d time.Duration, enough func() bool) {
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
	for time.Now().Before(ends) && !enough() {
		hint()
	}
	j.quiet.Store(true)
	close(j.network.calm)
	for ends = time.Now().Add(time.Minute); time.Now().Before(ends) && len(j.unlooked()) > 0 && !enough(); {
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
	for _, row := range j.rows {
		c := j.byRow[row.name]
		j.t.Logf("%5d writes, %4d failed, %4d older states: %s", c.writes, c.refused, c.violations, row.name)
	}
	j.t.Log(strings.Join(j.lines, "\n"))
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

// look compares the caches with what the server had when the last call ended.
func (j *ownJudge) look(key string, k *ownKey) {
	older := map[string]string{} // the rows that wrote what is older
	var lines []string
	for _, c := range j.caches {
		note := func(name, format string, args ...any) {
			row := k.last[c.kind.name+"/"+name]
			older[row] = name
			lines = append(lines, fmt.Sprintf("%s %s, after %q: ", c.name, name, row)+fmt.Sprintf(format, args...))
		}
		cached := c.of(key)
		for name, o := range k.objects[c.kind] {
			is := version{string(o.GetUID()), number(o.GetResourceVersion())}
			has, held := cached[name]
			switch {
			case !c.admits(o):
				if held {
					note(name, "the cache has %s, and the server has taken it out of the selector in %s", has, is)
				}
			case !held:
				note(name, "the cache has nothing, the server %s", is)
			case has.uid != is.uid || has.number < is.number:
				note(name, "the cache has %s, the server %s", has, is)
			}
		}
		for name, has := range cached {
			if _, ok := k.objects[c.kind][name]; !ok {
				note(name, "the cache has %s, and it is gone", has)
			}
		}
	}
	if len(lines) == 0 {
		return
	}
	j.stale.Add(1)
	j.mu.Lock()
	defer j.mu.Unlock()
	for row := range older {
		if c := j.byRow[row]; c != nil {
			c.violations++
		}
	}
	if len(j.lines) < 20 {
		j.lines = append(j.lines, lines...)
	}
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
	for _, row := range j.rows {
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
