package traces

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// receiver takes spans by OTLP over HTTP, as a collector does.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex
	spans []*otlp.Span // guarded by mu
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := read(req)
	var export collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		r.t.Errorf("%s: %v", req.URL, err)
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range export.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(answer)
}

func read(req *http.Request) ([]byte, error) {
	if req.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(req.Body)
	}
	body, err := gzip.NewReader(req.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(body)
}

// named returns the spans of a name that have come, in the order of their start.
func (r *receiver) named(name string) (all []*otlp.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *otlp.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	return all
}

// children returns the names of the spans right below a span, in the order of their start.
func (r *receiver) children(parent *otlp.Span) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*otlp.Span
	for _, s := range r.spans {
		if string(s.ParentSpanId) == string(parent.SpanId) && string(s.TraceId) == string(parent.TraceId) {
			all = append(all, s)
			require.GreaterOrEqual(r.t, s.StartTimeUnixNano, parent.StartTimeUnixNano)
			require.LessOrEqual(r.t, s.EndTimeUnixNano, parent.EndTimeUnixNano)
		}
	}
	slices.SortFunc(all, func(a, b *otlp.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

func textOf(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestSpans runs two controllers: one makes a Secret for each ConfigMap, and fails first; the other labels the Secret.
func TestSpans(t *testing.T) {
	r := newReceiver(t)
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(r.URL+"/v1/traces"),
		otlptracehttp.WithInsecure())
	require.NoError(t, err)
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })

	server := reconciletest.NewServer(t, reconciletest.Options{})
	seen := make(chan struct{})
	stop, ended := start(t, server, provider, seen)
	client := kubernetes.NewForConfigOrDie(server.Config())
	web := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web",
		Annotations: map[string]string{Annotation: traceparent}}}
	made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), web, metav1.CreateOptions{})
	require.NoError(t, err)
	came := func(name string, n int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(r.named(name)) == n }, 20*time.Second, time.Millisecond, name)
	}
	came("reconcile maps", 2)
	close(seen)
	came("reconcile secrets", 1)
	stop()
	require.NoError(t, <-ended)
	came("reconcile maps", 2)

	failed, good := r.named("reconcile maps")[0], r.named("reconcile maps")[1]
	require.Equal(t, otlp.Status_STATUS_CODE_ERROR, failed.Status.Code)
	require.Empty(t, failed.Status.Message, "the text may quote a value")
	require.Equal(t, "*errors.errorString", textOf(failed, "error.type"))
	require.Empty(t, failed.ParentSpanId)
	require.Equal(t, []string{"queue", "run"}, r.children(failed))
	require.Len(t, failed.Links, 1, "the annotation")
	require.Equal(t, traceparent[3:35], hex(failed.Links[0].TraceId))
	require.Equal(t, traceparent[36:52], hex(failed.Links[0].SpanId))

	require.Equal(t, "default/web", textOf(good, "thermostat.key"))
	require.Contains(t, r.children(good), "run")
	runs := r.named("run")
	run := runs[slices.IndexFunc(runs, func(s *otlp.Span) bool { return string(s.TraceId) == string(good.TraceId) })]
	require.Equal(t, []string{"create secrets"}, r.children(run))
	create := r.named("create secrets")[0]
	require.Equal(t, "web", textOf(create, "thermostat.name"))
	require.Equal(t, otlp.Span_SPAN_KIND_CLIENT, create.Kind)

	label := r.named("reconcile secrets")[0]
	require.Len(t, label.Links, 1)
	require.Equal(t, hex(create.SpanId), hex(label.Links[0].SpanId), "the write that has caused the run")
	require.NotEqual(t, hex(create.TraceId), hex(label.TraceId), "a link, not the parent")
	require.Equal(t, "metadata", r.named("patch secrets")[0].Attributes[3].Value.GetArrayValue().
		Values[0].GetStringValue())
	now, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, made.ResourceVersion, now.ResourceVersion, "no annotation has been written")
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var s []byte
	for _, c := range b {
		s = append(s, digits[c>>4], digits[c&15])
	}
	return string(s)
}

// start runs the two controllers. That of the Secrets waits for seen before it writes.
func start(t *testing.T, server *reconciletest.Server, provider *sdk.TracerProvider,
	seen <-chan struct{}) (stop func(), ended <-chan error) {
	cfg, err := reconcile.ClientConfig(server.Config())
	require.NoError(t, err)
	client := kubernetes.NewForConfigOrDie(cfg)
	maps, err := informer.New[*corev1.ConfigMap](client.CoreV1().ConfigMaps("default"),
		informer.Options[*corev1.ConfigMap]{})
	require.NoError(t, err)
	secrets, err := informer.New[*corev1.Secret](client.CoreV1().Secrets("default"), informer.Options[*corev1.Secret]{})
	require.NoError(t, err)
	tracer, err := New(Options{TracerProvider: provider,
		Traceparent: func(controller string, key reconcile.Key) string {
			if m, ok := maps.Get(key); ok && controller == "maps" {
				return m.Annotations[Annotation]
			}
			return ""
		}})
	require.NoError(t, err)

	failures := 0
	forMaps, err := reconcile.NewController("maps", reconcile.Func(func(ctx context.Context,
		key reconcile.Key) (reconcile.Result, error) {
		if _, ok := maps.Get(key); !ok {
			return reconcile.Result{}, nil
		}
		if _, ok := secrets.Get(key); ok {
			return reconcile.Result{}, nil
		}
		if failures++; failures == 1 {
			return reconcile.Result{}, errors.New("canary")
		}
		_, err := client.CoreV1().Secrets(key.Namespace).Create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, metav1.CreateOptions{})
		return reconcile.Result{}, err
	}), reconcile.Options{OnRun: tracer.OnRun})
	require.NoError(t, err)
	reconcile.For(forMaps, maps)
	reconcile.DependsOn(forMaps, secrets)

	forSecrets, err := reconcile.NewController("secrets", reconcile.Func(func(ctx context.Context,
		key reconcile.Key) (reconcile.Result, error) {
		s, ok := secrets.Get(key)
		if !ok || s.Labels["seen"] != "" {
			return reconcile.Result{}, nil
		}
		select {
		case <-seen:
		case <-ctx.Done():
		}
		_, err := client.CoreV1().Secrets(key.Namespace).Patch(ctx, key.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{})
		return reconcile.Result{}, err
	}), reconcile.Options{OnRun: tracer.OnRun})
	require.NoError(t, err)
	reconcile.For(forSecrets, secrets)

	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{forMaps, forSecrets}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- m.Run(ctx) }()
	return cancel, result
}

func TestNewNeedsAProvider(t *testing.T) {
	_, err := New(Options{})
	require.EqualError(t, err, "traces.New: Options.TracerProvider is nil; give the one of OpenTelemetry's SDK")
}

// TestTheOldestWritesAreForgotten adds three writes to a store of two, one of them twice.
func TestTheOldestWritesAreForgotten(t *testing.T) {
	s := newWriteSpans(2)
	a, b, c := version{"", "a", "1"}, version{"", "b", "2"}, version{"", "c", "3"}
	none := func(v version) bool { _, ok := s.get(v); return !ok }
	for _, v := range []version{a, b, b, c} {
		s.add(v, trace.SpanContext{})
	}
	require.True(t, none(a))
	require.False(t, none(b))
	require.False(t, none(c))
	require.Len(t, s.order, 2)
}

// TestWaits tells of a run that was held back in every way, by a record of it.
func TestWaits(t *testing.T) {
	r := newReceiver(t)
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(r.URL+"/v1/traces"))
	require.NoError(t, err)
	tracer, err := New(Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(exporter))})
	require.NoError(t, err)
	at := func(s int) time.Time { return time.Date(2026, 3, 14, 9, 26, s, 0, time.UTC) }
	quiet := status.Run{Started: at(5), Took: 2 * time.Second, Result: "success"}
	tracer.OnRun("web", reconcile.Key{Name: "a"}, quiet)
	run := quiet
	run.Result = "error"
	run.Error = &status.Error{Type: "*x.Err", Reason: "Conflict", Code: 409, Text: "asked"}
	run.Waits = []status.Wait{{For: status.WaitBackoff, From: at(0), To: at(2)},
		{For: status.WaitParked, From: at(2), To: at(4)}, {For: status.WaitQueue, From: at(4), To: at(5)}}
	run.Writes = []status.Write{{At: at(6), Took: time.Second, Verb: "update", Resource: "webs",
		Subresource: "status", Name: "a", Code: 409, Error: run.Error}}
	tracer.OnRun("web", reconcile.Key{Name: "a"}, run)
	roots := r.named("reconcile web")
	require.Len(t, roots, 1, "the run that found nothing to do has no span")
	require.Equal(t, []string{"parked", "queue", "run"}, r.children(roots[0]))
	require.EqualValues(t, at(2).UnixNano(), roots[0].StartTimeUnixNano)
	require.EqualValues(t, at(7).UnixNano(), roots[0].EndTimeUnixNano)
	require.Equal(t, "Conflict", textOf(roots[0], "error.type"))
	require.Equal(t, "asked", roots[0].Status.Message)
	require.Equal(t, []string{"update webs/status"}, r.children(r.named("run")[0]))
	last := roots[0].Attributes[len(roots[0].Attributes)-2]
	require.Equal(t, "thermostat.wait.backoff", last.Key)
	require.Equal(t, 2.0, last.Value.GetDoubleValue())
}
