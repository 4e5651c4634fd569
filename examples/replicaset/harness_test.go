package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"github.com/thermostat-go/thermostat/internal/testcluster"
	"github.com/thermostat-go/thermostat/reconcile"
)

// TestMain lets the test binary be the command, for the tests of what a user sees of it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// soak is set for the long variants.
var soak = os.Getenv("THERMOSTAT_SOAK") != ""

// world is a namespace with a controller at work in it, and somebody who keeps an eye on it.
type world struct {
	t         *testing.T
	cluster   *testcluster.Cluster
	client    kubernetes.Interface
	namespace string
	overseer  *overseer
}

func newWorld(t *testing.T, cluster *testcluster.Cluster) *world {
	w := &world{t: t, cluster: cluster, client: cluster.Client(), namespace: cluster.Namespace(t)}
	w.overseer = oversee(t, w.client, w.namespace)
	return w
}

// options are the controller's, for one namespace and without an election.
func (w *world) options() options {
	return options{namespace: w.namespace, workers: 5, qps: 500, burst: 1000, metricsAddress: "0", startupTimeout: 30 * time.Second}
}

// control starts a controller, with transports wrapped around its own. stop ends it; so does the end of the test.
func (w *world) control(wrap ...transport.WrapperFunc) (stop func()) {
	return w.controlWith(append([]transport.WrapperFunc{reconcile.TrackWrites}, wrap...)...)
}

// controlWith starts a controller that has only these transports: without TrackWrites it is a broken one.
func (w *world) controlWith(wrap ...transport.WrapperFunc) (stop func()) {
	cfg := w.cluster.Config()
	cfg.QPS, cfg.Burst = 500, 1000
	for _, f := range wrap {
		cfg.Wrap(f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go pprof.Do(ctx, pprof.Labels("controller", w.namespace), func(ctx context.Context) { ended <- operate(ctx, cfg, nil, w.options()) })
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(w.t, err)
		case <-time.After(30 * time.Second):
			require.Fail(w.t, "the controller does not end")
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// goroutines counts the ones that the controller has started, and those that they have started, except for the ones of
// connections: these are pooled for the whole process, and belong to whoever happened to need one first.
func (w *world) goroutines() (n int, dump string) {
	var profile bytes.Buffer
	require.NoError(w.t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	entry := regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: .*"controller":"` + w.namespace + `"(?:.*\n#.*)*`)
	for _, match := range entry.FindAllStringSubmatch(profile.String(), -1) {
		if strings.Contains(match[0], "lientConn).readLoop") || strings.Contains(match[0], "net/http.(*persistConn)") {
			continue
		}
		count, err := strconv.Atoi(match[1])
		require.NoError(w.t, err)
		n += count
		dump += match[0] + "\n"
	}
	return n, dump
}

// create makes a ReplicaSet of n pods labelled app=name.
func (w *world) create(name string, n int32, change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	w.t.Helper()
	grace := int64(1)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	for _, f := range change {
		f(rs)
	}
	w.overseer.allow(name, int(n))
	created, err := w.client.AppsV1().ReplicaSets(w.namespace).Create(w.t.Context(), rs, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return created
}

// scale changes the number of replicas. The overseer allows for what there was until the new number is reached.
func (w *world) scale(name string, n int32) {
	w.t.Helper()
	w.overseer.allow(name, max(int(n), w.overseer.allowed(name)))
	w.scaleFreely(name, n)
}

// scaleFreely scales without a word to the overseer.
func (w *world) scaleFreely(name string, n int32) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	_, err := w.client.AppsV1().ReplicaSets(w.namespace).Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(w.t, err)
}

func (w *world) get(name string) *appsv1.ReplicaSet {
	w.t.Helper()
	rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return rs
}

// pods are the active ones that the ReplicaSet controls, by the API server's word.
func (w *world) pods(name string) (owned []*corev1.Pod) {
	w.t.Helper()
	rs := w.get(name)
	list, err := w.client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for i := range list.Items {
		if pod := &list.Items[i]; active(pod) && metav1.IsControlledBy(pod, rs) {
			owned = append(owned, pod)
		}
	}
	return owned
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pod
}

func (w *world) delete(pod string) {
	w.t.Helper()
	require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), pod, metav1.DeleteOptions{}))
}

func (w *world) patch(pod, patch string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Pods(w.namespace).Patch(w.t.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// settled waits until the ReplicaSet has n pods, all available, and says so in its status.
func (w *world) settled(name string, n int32) {
	w.t.Helper()
	var status appsv1.ReplicaSetStatus
	require.Eventually(w.t, func() bool {
		rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		status = rs.Status
		return status.ObservedGeneration == rs.Generation && status.Replicas == n && status.AvailableReplicas == n && len(w.pods(name)) == int(n)
	}, 60*time.Second, 20*time.Millisecond, "%s should have %d pods, available and reported", name, n)
	w.overseer.allow(name, int(n))
}

// An overseer watches the pods of a namespace, by its own means, and notes each moment at which a ReplicaSet had more
// of them than allowed.
type overseer struct {
	mu         sync.Mutex
	limits     map[string]int                       // by the name of a ReplicaSet
	owned      map[string]map[types.UID]*corev1.Pod // active pods, by the name of their controller
	violations []string
}

func oversee(t *testing.T, client kubernetes.Interface, namespace string) *overseer {
	o := &overseer{limits: map[string]int{}, owned: map[string]map[types.UID]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			o.follow(ctx, client, namespace)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond): // while the API server is away
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
		require.Empty(t, o.violations, "too many pods")
	})
	return o
}

// forgive returns what has been noted so far, and forgets it.
func (o *overseer) forgive() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	noted := o.violations
	o.violations = nil
	return noted
}

// follow lists and watches until the watch breaks.
func (o *overseer) follow(ctx context.Context, client kubernetes.Interface, namespace string) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	o.mu.Lock()
	clear(o.owned)
	o.mu.Unlock()
	for i := range list.Items {
		o.see(&list.Items[i], false)
	}
	w, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return
		}
		o.see(pod, event.Type == watch.Deleted)
	}
}

func (o *overseer) see(pod *corev1.Pod, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, pods := range o.owned {
		delete(pods, pod.UID)
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if gone || owner == nil || !active(pod) {
		return
	}
	if o.owned[owner.Name] == nil {
		o.owned[owner.Name] = map[types.UID]*corev1.Pod{}
	}
	o.owned[owner.Name][pod.UID] = pod
	if limit, known := o.limits[owner.Name]; known && len(o.owned[owner.Name]) > limit {
		o.violations = append(o.violations, fmt.Sprintf("%s: %s has %d pods, %d are allowed", time.Now().Format(time.StampMilli), owner.Name, len(o.owned[owner.Name]), limit))
	}
}

func (o *overseer) allow(name string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limits[name] = n
}

func (o *overseer) allowed(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limits[name]
}

// A cutter is a transport whose watches can be cut, all at once.
type cutter struct {
	mu      sync.Mutex
	watches []*cuttable
	cuts    int
}

func (c *cutter) wrap(next http.RoundTripper) http.RoundTripper { return &cutting{c, next} }

type cutting struct {
	cutter *cutter
	next   http.RoundTripper
}

func (c *cutting) WrappedRoundTripper() http.RoundTripper { return c.next }

func (c *cutting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil || req.URL.Query().Get("watch") == "" {
		return resp, err
	}
	body := &cuttable{ReadCloser: resp.Body, cutter: c.cutter}
	resp.Body = body
	c.cutter.mu.Lock()
	defer c.cutter.mu.Unlock()
	c.cutter.watches = append(c.cutter.watches, body)
	return resp, nil
}

type cuttable struct {
	io.ReadCloser
	cutter *cutter
}

func (b *cuttable) Close() error {
	b.cutter.mu.Lock()
	b.cutter.watches = slices.DeleteFunc(b.cutter.watches, func(w *cuttable) bool { return w == b })
	b.cutter.mu.Unlock()
	return b.ReadCloser.Close()
}

func (c *cutter) cut() {
	c.mu.Lock()
	doomed := c.watches
	c.watches = nil
	c.cuts += len(doomed)
	c.mu.Unlock()
	for _, body := range doomed {
		body.ReadCloser.Close()
	}
}

// lossy is a transport that loses some answers: what was asked for has happened, and the client hears of an error.
type lossy struct {
	mu   sync.Mutex
	left int // how many creations of pods are still to be lost
}

func (l *lossy) wrap(next http.RoundTripper) http.RoundTripper { return &losing{l, next} }

type losing struct {
	lossy *lossy
	next  http.RoundTripper
}

func (l *losing) WrappedRoundTripper() http.RoundTripper { return l.next }

func (l *losing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/pods") {
		return resp, err
	}
	l.lossy.mu.Lock()
	defer l.lossy.mu.Unlock()
	if l.lossy.left <= 0 {
		return resp, nil
	}
	l.lossy.left--
	resp.Body.Close()
	return nil, io.ErrUnexpectedEOF
}

// slowPosts is a transport that takes its time before it sends a POST.
func slowPosts(by time.Duration) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &slow{next, by} }
}

type slow struct {
	next http.RoundTripper
	by   time.Duration
}

func (s *slow) WrappedRoundTripper() http.RoundTripper { return s.next }

func (s *slow) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost {
		select {
		case <-req.Context().Done():
			return nil, req.Context().Err()
		case <-time.After(s.by):
		}
	}
	return s.next.RoundTrip(req)
}

// beLate is a transport whose watches tell everything late, though not slower.
func beLate(by time.Duration) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &late{next, by} }
}

type late struct {
	next http.RoundTripper
	by   time.Duration
}

func (l *late) WrappedRoundTripper() http.RoundTripper { return l.next }

func (l *late) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil && req.URL.Query().Get("watch") != "" {
		body := &lateBody{ReadCloser: resp.Body, by: l.by, chunks: make(chan lateChunk, 10_000)}
		go body.pump() // ends when the body does, by error or by Close
		resp.Body = body
	}
	return resp, err
}

type lateBody struct {
	io.ReadCloser
	by     time.Duration
	chunks chan lateChunk
	rest   []byte
}

type lateChunk struct {
	data []byte
	err  error
	at   time.Time
}

func (b *lateBody) pump() {
	defer close(b.chunks)
	for {
		buffer := make([]byte, 32<<10)
		n, err := b.ReadCloser.Read(buffer)
		b.chunks <- lateChunk{buffer[:n], err, time.Now()}
		if err != nil {
			return
		}
	}
}

func (b *lateBody) Read(p []byte) (int, error) {
	var err error
	if len(b.rest) == 0 {
		chunk, ok := <-b.chunks
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(chunk.at.Add(b.by)))
		b.rest, err = chunk.data, chunk.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) > 0 {
		err = nil
	}
	return n, err
}
