package traces

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Annotation is the annotation of an object that names the span in which it was written, as KEP-5915 proposes.
const Annotation = "tracing.k8s.io/traceparent"

// Options configures a [Tracer].
type Options struct {
	// TracerProvider makes the spans. It decides which are sampled, and where they are sent. It is shut down after Run
	// of the Manager has returned, so that the last spans are sent.
	TracerProvider trace.TracerProvider
	// Traceparent returns the value of [Annotation] of a key's object, or an empty string. It should read a cache,
	// since the worker waits for it. A value that is no traceparent is ignored. Nil: annotations are not read.
	Traceparent func(controller string, key reconcile.Key) string
}

// Tracer makes spans of runs. It may serve several controllers, and then links their runs. Make one with [New].
type Tracer struct {
	// Never changed.
	tracer      trace.Tracer
	traceparent func(controller string, key reconcile.Key) string
	writes      *writeSpans // has a lock of its own
}

// New makes a Tracer. It returns an error if opts has no TracerProvider.
func New(opts Options) (*Tracer, error) {
	if opts.TracerProvider == nil {
		return nil, errors.New("traces.New: Options.TracerProvider is nil; give the one of OpenTelemetry's SDK")
	}
	return &Tracer{tracer: opts.TracerProvider.Tracer("github.com/thermostat-go/thermostat/reconcile/traces"),
		traceparent: opts.Traceparent, writes: newWriteSpans(maxWrites)}, nil
}

// OnRun makes the spans of a run that has ended. It is for [reconcile.Options].OnRun.
func (t *Tracer) OnRun(controller string, key reconcile.Key, run status.Run) {
	if len(run.Writes) == 0 && run.Error == nil {
		return
	}
	ready, ended := readyAt(run), run.Started.Add(run.Took)
	ctx, span := t.tracer.Start(context.Background(), "reconcile "+controller, trace.WithNewRoot(),
		trace.WithTimestamp(ready), trace.WithLinks(t.linksOf(controller, key, run)...))
	if span.IsRecording() {
		span.SetAttributes(attribute.String("thermostat.controller", controller),
			attribute.String("thermostat.key", key.String()), attribute.String("thermostat.result", run.Result),
			attribute.StringSlice("thermostat.causes", causesOf(run)))
		span.SetAttributes(heldBack(run)...)
	}
	fail(span, run.Error)
	for _, w := range run.Waits {
		if ofTheRun(w) {
			t.span(ctx, string(w.For), w.From, w.To)
		}
	}
	during, call := t.tracer.Start(ctx, "run", trace.WithTimestamp(run.Started))
	fail(call, run.Error)
	for _, w := range run.Writes {
		t.write(during, w)
	}
	call.End(trace.WithTimestamp(ended))
	span.End(trace.WithTimestamp(ended))
}

// write makes the span of a request to write, and keeps it for the links of later runs.
func (t *Tracer) write(ctx context.Context, w status.Write) {
	resource := w.Resource
	if w.Subresource != "" {
		resource += "/" + w.Subresource
	}
	_, span := t.tracer.Start(ctx, w.Verb+" "+resource, trace.WithTimestamp(w.At),
		trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(attribute.String("k8s.namespace.name", w.Namespace),
			attribute.String("thermostat.name", w.Name),
			attribute.String("thermostat.resource_version", w.ResourceVersion),
			attribute.StringSlice("thermostat.paths", w.Paths), attribute.Int("http.response.status_code", w.Code))
	}
	fail(span, w.Error)
	span.End(trace.WithTimestamp(w.At.Add(w.Took)))
	if w.ResourceVersion != "" && w.Error == nil && !w.DryRun {
		t.writes.add(version{w.Namespace, w.Name, w.ResourceVersion}, span.SpanContext())
	}
}

// span makes a span without attributes.
func (t *Tracer) span(ctx context.Context, name string, from, to time.Time) {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from))
	span.End(trace.WithTimestamp(to))
}

// fail marks a span as failed, unless e is nil.
func fail(span trace.Span, e *status.Error) {
	if e == nil {
		return
	}
	kind := e.Reason
	if kind == "" {
		kind = e.Type
	}
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, e.Text)
}

// ofTheRun reports whether a wait belongs to the trace: the key was ready, and not held back on purpose.
func ofTheRun(w status.Wait) bool {
	return w.For == status.WaitQueue || w.For == status.WaitParked
}

// readyAt returns when the first wait of the trace began, or the run if there is none.
func readyAt(run status.Run) time.Time {
	ready := run.Started
	for _, w := range run.Waits {
		if ofTheRun(w) && w.From.Before(ready) {
			ready = w.From
		}
	}
	return ready
}

// heldBack returns how long the key was held back on purpose, for each reason.
func heldBack(run status.Run) (all []attribute.KeyValue) {
	total := make(map[status.WaitReason]time.Duration)
	for _, w := range run.Waits {
		if !ofTheRun(w) {
			total[w.For] += w.To.Sub(w.From)
		}
	}
	for reason, d := range total {
		all = append(all, attribute.Float64("thermostat.wait."+string(reason), d.Seconds()))
	}
	return all
}

func causesOf(run status.Run) (all []string) {
	for _, c := range run.Causes {
		all = append(all, c.String())
	}
	if run.MoreCauses > 0 {
		all = append(all, fmt.Sprintf("and %d more", run.MoreCauses))
	}
	return all
}

// linksOf returns links to the spans that have caused a run.
func (t *Tracer) linksOf(controller string, key reconcile.Key, run status.Run) (links []trace.Link) {
	for _, c := range run.Causes {
		if span, ok := t.writes.get(version{c.Namespace, c.Name, c.ResourceVersion}); ok {
			links = append(links, trace.Link{SpanContext: span,
				Attributes: []attribute.KeyValue{attribute.String("thermostat.cause", c.String())}})
		}
	}
	if t.traceparent == nil {
		return links
	}
	carrier := propagation.MapCarrier{"traceparent": t.traceparent(controller, key)}
	from := propagation.TraceContext{}.Extract(context.Background(), carrier)
	if span := trace.SpanContextFromContext(from); span.IsValid() {
		links = append(links, trace.Link{SpanContext: span,
			Attributes: []attribute.KeyValue{attribute.String("thermostat.cause", Annotation)}})
	}
	return links
}
