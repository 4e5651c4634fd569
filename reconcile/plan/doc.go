// Package plan says what a program, such as a new version of an operator, would change in a cluster, before it changes
// anything. The program runs as it is, in any language, on a fork of the cluster:
//
//	fork, err := plan.Fork(ctx, base, plan.Options{})
//	defer fork.Close()
//	go program(ctx, fork.Config()) // another binary: fork.Kubeconfig()
//	report, err := fork.Settle(ctx, 10*time.Second)
//	report.WriteText(os.Stdout)
//
// [Run] does this for a function, [RunCommand] for a binary, and the command cmd/plan for a terminal or a pipeline:
//
//	go run github.com/thermostat-go/thermostat/reconcile/plan/cmd/plan@latest -context prod -- \
//		./new-operator --its --flags
//
// [Flag] adds a flag to a program of your own, so that it plans itself.
//
// # What the cluster sees
//
// The cluster sees GETs: get, list, and discovery, by the rights of the configuration that it is called with. It sees
// no write, no watch and no access review, and a dry run only with [Options].Admission. A resource is listed once, when
// the program first asks for it, and stays at that state: what changes in the cluster afterwards is not seen. Two
// resources may be of two moments.
//
// # What the program sees
//
// A server that holds what the cluster held, and what the program has written since. It answers as a real one, by the
// code of package reconciletest: versions, conflicts, generations, managed fields and server-side apply, status and
// scale, finalizers, generated names, watches, garbage collection by owner references, the deletion of namespaces.
// Discovery and OpenAPI are the cluster's, so custom resources and aggregated APIs need not be declared.
//
// A Lease is held by nobody once the program asks for it by its name: the program leads at once, and the one that runs
// in the cluster goes on leading. Leases of nodes, and those that are only listed, are as they are.
//
// The world stands still: no Deployment is rolled out, no pod starts and no Job ends. A program of several steps that
// waits for such is seen up to there. With [Options].World [Healthy] what the program writes is carried out at once, as
// if nothing ever failed: ReplicaSets, pods and claims are made, replaced and deleted, pods are ready, and so says the
// status of a Deployment, a StatefulSet, a DaemonSet, a Job or a claim. None of that is a change in the report. Pods
// have addresses of a network for documentation, where nobody answers. Endpoints, EndpointSlices, ControllerRevisions,
// volumes and the pods of Jobs are not made. The ControllerRevisions that the cluster has say which pods are of which
// template, so that a set which is made anew as it was keeps its pods.
//
// # What is not exact
//
// The report has a list of where the cluster may do otherwise, with the reason, under Approximate:
//
//   - a field or a kind of Kubernetes that package reconciletest does not model has no defaults and no checks. An
//     update of a whole object that leaves out what the cluster would fill in then shows that as removed.
//   - a custom resource whose definition cannot be read, or is not modelled, is handled without its schema. Rules in
//     CEL are checked with [Options].Rules only.
//   - without [Options].Admission webhooks are not called, and those that would be are named
//   - what a CustomResourceDefinition that the program writes would serve is not served
//   - without [Options].Account access reviews of the program's own rights are answered with yes, and no request is
//     refused for want of a right
//   - what goes with a deleted object of a kind that the plan may not list
//
// What is refused, with code 501 and as a part of the report: a kind in two versions that no definition joins, a kind
// with a conversion webhook in a second version, subresources other than status, scale and binding (logs, exec,
// evictions), requests for what cannot be listed, such as TokenReviews.
//
// A program that elects its leader by another object than a Lease, such as an annotation of a ConfigMap, waits for the
// one that runs in the cluster, and seems to change nothing.
//
// Not looked at, and not listed, without [Options].Admission: quotas, limit ranges, pod security, admission policies.
//
// # Admission
//
// With [Options].Admission the fork sends each write to the cluster as a dry run before it makes it: a creation, the
// update of the whole object, or a deletion. Defaults, validation, webhooks, admission policies and quotas are then the
// cluster's, of whatever version, and what it refuses the program sees refused. Nothing is stored there, but what is
// sent stands in the cluster's audit log, Secrets included if its policy says so, and its webhooks see it. Once 40
// dry runs have been sent, at most 20 a second are, and each has 30 s, with the wait for its turn.
//
// The cluster judges each write against what it has itself, not against what the fork has. The report names these
// differences:
//
//   - a webhook that has side effects without dry runs refuses the request. The fork goes on without the cluster.
//   - an object that is on the fork only cannot be updated there: the cluster is asked about its creation, and what may
//     change is judged by the fork. Its status is not sent, nor is an object that needs another one of the fork.
//   - an object that was deleted on the fork, and is made anew, is sent under another name
//   - a quota is compared with each new object alone
//   - what another server than the cluster's own has, behind an APIService, is not sent: it may not know dry runs
//
// It is the plan's account that asks, also with [Options].Account, and no report says where that matters: a policy may
// judge the program's account otherwise. A quota does not look at it. To ask in the name of the program's account, the
// plan would need the right to impersonate it, and with that it could do whatever the account can.
//
// A webhook that says that it has no side effects, and has some, has them for a dry run as well.
//
// The Lease and the Events of the program are not sent, nor are what a healthy world writes and what the garbage
// collector deletes.
//
// # What the program does elsewhere
//
// Only the requests that a program makes by the configuration of the fork are kept from the world. One that acts on
// something else, such as the databases that it looks after, does so. Package program's Planned, or the variable
// THERMOSTAT_PLANNED of its environment, tells a program that it has to look only. The report names, on Linux, what
// the process was connected to, and says so if nobody has looked: for a function, say.
//
// With [Command].Isolated it has no network but one of its own, in which the fork answers and nothing else, on Linux.
// /run and /var/run are empty but for what a program in a pod finds there, the token and the certificate of its service
// account. The names of a cluster, such as kubernetes.default.svc, are not known. Sockets in other folders answer,
// other files are there, and the machine's processes are seen: this is against accidents, and not against a program
// that means harm. It needs a kernel that lets users make namespaces, and no other right; that of Ubuntu and the
// profiles of most containers do not, and the error says what to allow.
//
// # The report
//
// A report says first which cluster it is of, and with which options. Two reports that differ in that, but for the name
// of the context, do not compare.
//
// Changes come in waves: what the program wrote until it made no request for a second. In each there is one entry for
// an object, with the fields that its writes have changed together, from the old value to the new one. The entries of a
// wave are in the order of kinds, namespaces and names, which does not change from run to run. Text, Markdown and the
// page say changes that are the same once, with the names of the objects; JSON has each.
//
// What the fork draws, the cluster draws otherwise: the address of a Service and its node ports, UIDs, generated names,
// and in a healthy world the addresses of pods and the hashes of templates. Where a change shows such a value, also as
// a part of another one, of a name or of a path, it is marked as invented, and does not count in a comparison; the rest
// of the text does. A node port is known in a field of that name, behind a colon, and where it is all of a text. What
// is computed from a drawn value, such as its hash, is not known.
//
// What the controllers of the cluster make of new objects, such as the EndpointSlices of a Service and the pods of a
// Deployment, is not among the changes. The report says so once for each resource.
//
// A change of the
// pod template of a Deployment, a StatefulSet or a DaemonSet says how many pods that restarts, and which fields do so.
// One that is deleted without its pods, and made anew with another template, also under another name, restarts those
// that it takes over; if the other one was made before, the deletion does.
// The deletion of a PersistentVolumeClaim, a PersistentVolume, a Secret, a Namespace or a CustomResourceDefinition is
// marked as one of data, also if the garbage collector would do it. What the collector would delete is found by the
// metadata of everything in the namespace of a deleted object.
//
// Values of a Secret are in no report: of its fields only the type, labels, finalizers, owner references and such are
// shown, of any other nothing but the name of the top-level field. Nor is the annotation of kubectl apply that holds
// the last object. Values of other kinds are shown, so a password that stands in a Deployment is.
//
// The program's Lease and its Events are no changes. [Report.Without] sets apart what another report has as well, such
// as what the version that runs now would do anyway.
//
// A report is written as text, which is in colours on a terminal, as Markdown, as JSON, and as a page: one file without
// a script.
//
// # Reading order
//
//	fork.go      the server, its configuration, Settle; certificate.go
//	base.go      the cluster below: GETs; admission.go: dry runs; account.go: the rights that the program has there
//	recorder.go  requests and writes; changes.go: what becomes of them, with fields.go, restarts.go, adoption.go,
//	             invented.go: what is drawn, and order.go
//	lease.go     who leads; tracer.go: what goes with a deleted object
//	world.go     what comes of a written one: see package internal/world
//	report.go    what is said, setup.go: of what; group.go, text.go, page.go: how
//	run.go       a function; flag.go: by a flag of its own
//	command.go   a process, with group_unix.go and group_other.go; rights.go, what it may read;
//	             namespaces_linux.go: alone; connections_linux.go: what else it talks to; other.go: not on Linux
package plan
