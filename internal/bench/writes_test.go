package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
)

// step is the annotation that each run of BenchmarkWrites counts up by one.
const step = "bench/step"

// writesLoad is how many pods there are, and how often each is written. Slower watches get less, so that a run takes
// seconds: controller-runtime's worker waits for each watch event.
var writesLoad = map[time.Duration]struct{ pods, steps int }{
	0:                      {500, 20},
	10 * time.Millisecond:  {500, 4},
	200 * time.Millisecond: {100, 2},
}

// BenchmarkWrites is a controller of which each run reads a pod from the cache, writes it once and asks to be called
// again, until each pod has been written some times. No run may see a state from before the write of the run before: a
// write of such a state is refused with a conflict, and counted. Ours waits by TrackWrites, controller-runtime by its
// option EnableReadYourWritesConsistency. The server tells its watch of each write after a delay.
func BenchmarkWrites(b *testing.B) {
	for _, delay := range []time.Duration{0, 10 * time.Millisecond, 200 * time.Millisecond} {
		for _, workers := range []int{5, 50} {
			b.Run(fmt.Sprintf("delay=%s,workers=%d", delay, workers), func(b *testing.B) {
				b.Run("thermostat", func(b *testing.B) { writes(b, delay, workers, ourWriter) })
				b.Run("controller-runtime", func(b *testing.B) { writes(b, delay, workers, peerWriter) })
			})
		}
	}
}

// writer counts what the runs do.
type writer struct {
	steps           int
	open            atomic.Int64 // writes to come
	runs, conflicts atomic.Int64
	begin, done     chan struct{}
}

// next returns the pod to write, or nil if it has been written often enough.
func (w *writer) next(p *corev1.Pod) *corev1.Pod {
	<-w.begin
	w.runs.Add(1)
	n, _ := strconv.Atoi(p.Annotations[step])
	if n >= w.steps {
		return nil
	}
	p = p.DeepCopy()
	p.Annotations = map[string]string{step: strconv.Itoa(n + 1)}
	return p
}

func (w *writer) wrote(err error) {
	if err != nil {
		w.conflicts.Add(1)
	} else if w.open.Add(-1) == 0 {
		close(w.done)
	}
}

func writes(b *testing.B, delay time.Duration, workers int,
	start func(*testing.B, *rest.Config, *writer, int)) {
	load := writesLoad[delay]
	c := startServer(b, serverOptions{Pods: load.pods, Plain: true, Writes: true, Delay: delay})
	w := &writer{steps: load.steps, begin: make(chan struct{}), done: make(chan struct{})}
	total := load.pods * load.steps
	w.open.Store(int64(total))
	start(b, c, w, workers)
	cpu := cpuTime(b)
	b.ResetTimer()
	close(w.begin)
	<-w.done
	b.StopTimer()
	b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "writes/s")
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(total), "cpu-ns/write")
	b.ReportMetric(float64(w.runs.Load())/float64(total), "runs/write")
	b.ReportMetric(float64(w.conflicts.Load()), "conflicts/op")
}

func ourWriter(b *testing.B, c *rest.Config, w *writer, workers int) {
	c, err := reconcile.ClientConfig(c)
	must(b, err)
	pods := podClient(b, c)
	inf, err := informer.New[*corev1.Pod](pods, informer.Options[*corev1.Pod]{})
	must(b, err)
	r := reconcile.Func(func(ctx context.Context, k reconcile.Key) (reconcile.Result, error) {
		held, ok := inf.Get(k)
		if !ok {
			return reconcile.Result{}, nil
		}
		p := w.next(held)
		if p == nil {
			return reconcile.Result{}, nil
		}
		_, err := pods.In(k.Namespace).Update(ctx, p, metav1.UpdateOptions{})
		w.wrote(err)
		return reconcile.Result{RequeueAfter: time.Nanosecond}, err
	})
	controller, err := reconcile.NewController("bench", r, reconcile.Options{Workers: workers})
	must(b, err)
	reconcile.For(controller, inf)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{controller}})
	must(b, err)
	background(b, m.Run)
	must(b, inf.WaitForSync(b.Context()))
}

func peerWriter(b *testing.B, c *rest.Config, w *writer, workers int) {
	ctrl.SetLogger(logr.Discard())
	m, err := ctrl.NewManager(c, ctrl.Options{
		Metrics:        metricsserver.Options{BindAddress: "0"},
		MapperProvider: onlyPods,
		Client:         client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
	})
	must(b, err)
	pods := m.GetClient()
	must(b, ctrl.NewControllerManagedBy(m).Named("bench").For(&corev1.Pod{}).WithOptions(
		controller.Options{MaxConcurrentReconciles: workers, SkipNameValidation: ptr.To(true)}).
		Complete(ctrlreconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			held := new(corev1.Pod)
			if err := pods.Get(ctx, r.NamespacedName, held); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			p := w.next(held)
			if p == nil {
				return ctrl.Result{}, nil
			}
			err := pods.Update(ctx, p)
			w.wrote(err)
			return ctrl.Result{RequeueAfter: time.Nanosecond}, err
		})))
	background(b, m.Start)
	if !m.GetCache().WaitForCacheSync(b.Context()) {
		b.Fatal("not synced")
	}
	inf, err := m.GetCache().GetInformer(b.Context(), &corev1.Pod{})
	must(b, err)
	for !inf.HasSynced() {
		time.Sleep(time.Millisecond)
	}
}

// writable is a server of small pods in protobuf that can be written. A watch is told of a write after a delay.
type writable struct {
	server
	mu       sync.Mutex
	byName   map[string]*corev1.Pod
	version  int
	events   []delayedEvent // all that there were
	watchers []chan delayedEvent
}

type delayedEvent struct {
	due   time.Time
	frame []byte
}

func serveWrites(o serverOptions) {
	s := &writable{server: server{serverOptions: o}, byName: map[string]*corev1.Pod{}, version: firstVersion + o.Pods}
	for i := range o.Pods {
		p := smallPod(i, firstVersion+i+1)
		s.byName[p.Namespace+"/"+p.Name] = p
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(err)
	http.HandleFunc("GET /api/v1/pods", s.read)
	http.HandleFunc("PUT /api/v1/namespaces/{namespace}/pods/{name}", s.update)
	go func() { try(http.Serve(l, nil)) }()
	fmt.Println(l.Addr())
	io.Copy(io.Discard, os.Stdin)
}

// read answers a plain list, or a watch that begins after what has been listed.
func (s *writable) read(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case query.Get("watch") == "":
		s.pods, s.server.version = nil, strconv.Itoa(s.version)
		for _, p := range s.byName {
			s.pods = append(s.pods, s.item(p))
		}
		s.list(w, r)
	case query.Get("sendInitialEvents") == "true":
		s.refuseStream(w)
	default:
		from, err := strconv.Atoi(query.Get("resourceVersion"))
		try(err)
		events := make(chan delayedEvent, 1<<20)
		for _, e := range s.events[from-firstVersion-s.Pods:] {
			events <- e
		}
		s.watchers = append(s.watchers, events)
		s.mu.Unlock()
		s.sendWrites(w, r, events)
		s.mu.Lock()
	}
}

// sendWrites sends events when they are due, until the client goes.
func (s *writable) sendWrites(w http.ResponseWriter, r *http.Request, events <-chan delayedEvent) {
	w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf+";stream=watch")
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-events:
			time.Sleep(time.Until(e.due))
			w.Write(e.frame)
			if len(events) == 0 || s.Delay > 0 {
				w.(http.Flusher).Flush()
			}
		case <-r.Context().Done():
			return
		}
	}
}

func (s *writable) update(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	try(err)
	var envelope k8sruntime.Unknown
	try(envelope.Unmarshal(body[4:])) // after "k8s" and a zero byte
	p := new(corev1.Pod)
	try(p.Unmarshal(envelope.Raw))
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("namespace") + "/" + r.PathValue("name")
	if s.byName[name].ResourceVersion != p.ResourceVersion {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.byName[name] = p
	item := s.item(p)
	e := delayedEvent{time.Now().Add(s.Delay), s.event("MODIFIED", item)}
	s.events = append(s.events, e)
	for _, events := range s.watchers {
		events <- e
	}
	w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf)
	w.Write(append(envelopeOf("Pod", len(item)), item...))
}
