// Package traces makes OpenTelemetry spans of what the controllers of a program do. It is a module of its own, so that
// a program without traces does not depend on OpenTelemetry.
//
//	tracer, err := traces.New(traces.Options{TracerProvider: provider})
//	...
//	webs, err := reconcile.NewController("web", r, reconcile.Options{OnRun: tracer.OnRun})
//
// Runs that wrote something or failed become traces, one for each run. All other runs, which are most of them, found
// nothing to do; they have no spans.
//
//	reconcile web              from the time when the key was ready to the end of the run
//	|- queue                   the key waited for a worker
//	|- parked                  the key waited for a cache to show what the run before it wrote
//	`- run                     the call of Reconcile
//	   |- create pods          each request to write, refused ones included
//	   `- patch webs/status
//
// The first span has a link to each span that caused the run: to a request to write of an earlier run, of any
// controller that has the same Tracer, whose event named the key. So the way of a change can be followed from
// controller to controller. The link is missing if the earlier run ended after this one, if it is not among the 10,000
// latest writes, or if another program made the write.
//
// For writes of other programs there is the annotation tracing.k8s.io/traceparent, which KEP-5915 proposes: with
// [Options].Traceparent the first span has a link to the span that the annotation of the key's object names. It is a
// link, not the parent, since many runs can follow from one write. This package only reads annotations. It never writes
// one: a controller that writes an annotation with each run would cause its own next run.
//
// # The attributes
//
//	thermostat.controller, thermostat.key     of the first span, as is what follows
//	thermostat.result                         as in status.Run: success, error, terminal ...
//	thermostat.causes                         what has named the key, such as "Owns pods default/web-x@4711"
//	thermostat.wait.backoff and its like      how long the key was held back before it was ready, in seconds
//	error.type                                of a span that failed: the reason of the API server, such as Conflict, or
//	                                          the Go type of the error
//	k8s.namespace.name, thermostat.name       of the object of a request to write
//	thermostat.resource_version               after the write
//	thermostat.paths                          the fields that it changes, as far as they are known
//	http.response.status_code                 0 if the answer was lost
//
// No attribute has a value of an object. The text of an error may quote one, so it is the description of a span only
// if ManagerOptions.ErrorTexts is set.
//
// # Reading order
//
// traces.go (the spans of a run), links.go (the writes that later runs link to).
package traces
