// Package serve answers requests about a Manager over HTTP: health checks, metrics, pages and handlers of yours.
//
//	server, err := serve.New(serve.Options{Address: "0.0.0.0:8080", Metrics: collector})
//	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: ..., Serve: server.Run})
//
// It answers
//
//	/healthz      200, or 500 and what fails, one line each: a restart would help
//	/readyz       200, or 503 and what fails: this process cannot do its work, or could not lead
//	/metrics      Options.Metrics
//	what else     Options.Handlers
//
// from the beginning of the Manager's Run, before the first list, until the informers have ended.
//
// # What is promised
//
//   - Whoever can connect may read /healthz and /readyz, so they show kinds of errors and no text of one. Checks of
//     yours are shown as they are.
//   - With Options.AccessReviews nobody reads anything else whom the API server does not allow it. What cannot be found
//     out is refused.
//   - A handler's call is waited for at the end, for StopGrace; one that does not return is named in the error of the
//     Manager's Run. One that panics is logged, and its request is answered with 500.
//   - A server that ends by itself ends the Manager: without health checks nobody would notice what else goes wrong.
//   - A connection that is idle is closed after 2 minutes. A request whose header takes longer than 5 s is given up.
//
// # Locks and goroutines
//
// Server.Run waits for its handlers and for the server. Each lock is held for memory only, but for that of the
// certificate's files, which are read with it held.
//
// # Reading order
//
// server.go, access.go (who may read), tls.go (certificates from files).
package serve
