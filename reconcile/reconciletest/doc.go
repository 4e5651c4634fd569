// Package reconciletest is a Kubernetes API server in memory, for tests of controllers, in virtual time. Clients of
// every kind (typed, dynamic, metadata, REST; of controller-runtime, too) talk to it through their own transport, in
// JSON or protobuf:
//
//	synctest.Test(t, func(t *testing.T) {
//		server := reconciletest.NewServer(t, reconciletest.Options{CRDs: []string{"config/crd"}})
//		clients := kubernetes.NewForConfigOrDie(server.Config())
//		...
//		made, ok := reconciletest.Get[*corev1.Pod](server, "pods", "default", "a")
//	})
//
// The examples show the three ways to test a controller: a unit test with client-go's fakes, this server, and a real
// control plane, which package reconciletest/cluster starts.
//
// # The parts
//
//   - [NewServer] and [Options]: a server that ends with its test, with custom resources and roles
//   - [Start]: the same server in a program that is no test
//   - [Server]: clients without faults, and the faults that all clients see
//   - [Link] and [Fault]: the way of one client or process to the server, and what goes wrong on it
//   - [Get] and [List]: what the server holds, for assertions, past every link
//   - [Check] and [Scenario]: a program, run again and again with other things going wrong
//   - [Program], [World] and [API]: several programs at once, the cluster around them, and HTTP APIs of others
//   - [Resource] and [ReadCRDs]: custom resources that are not read from files, or have hooks in place of webhooks
//   - [Options.Base]: a server that is a fork of another cluster
//   - [Options.Webhooks] and [Link.Context]: where the server finds webhooks; [Server.InjectWebhooks]: their failures
//
// # What it promises
//
// What the server answers, a real server would have answered: codes and reasons, resourceVersions and their order,
// generations, managed fields, the events of watches. The tests send the requests of a corpus (corpus_test.go) to both
// and compare the answers; more requests are generated from the modelled fields of each kind
// (corpus_generated_test.go). The server refuses what it does not model, with code 501 and a message that begins with
// "not modelled". So a test does not pass because the server has guessed.
//
// Modelled are
//
//   - storage: one resourceVersion that each write moves by one, every version of every object, lists as they were at a
//     version, compaction with 410, pages that stay at the version of the first, restores that turn the version back
//   - watches: from a version, from now, or with the list in front; selectors, bookmarks, timeouts; each event once and
//     in order
//   - writes: conflicts, preconditions, generated names, dry runs, writes that change nothing, generations, the status
//     subresource, finalizers, pods that take time to go, JSON, merge and strategic merge patches, server-side apply
//   - the scale subresource, the binding of a pod to a node, the finalizing of a namespace, and field validation,
//     strict or with warnings
//   - custom resources in several versions, by the manifests of their definitions, with the defaults, the pruning and
//     the validation that their schemas ask for; rules in CEL with package reconciletest/cel, see [Options.Rules]
//   - many more kinds of Kubernetes with package reconciletest/builtin, see [Options.Kinds]
//   - kinds that come and go while a program runs, with their definitions: [Options.Uninstalled], [Server.Install]
//   - webhooks for conversion, defaults and validation, called as the real server calls them
//   - discovery, and of OpenAPI as much as kubectl needs
//   - authorization by the roles of manifests: [Options.Roles], [Server.LinkAs]
//   - aggregated APIs, such as metrics.k8s.io, which the test serves itself: [Options.Aggregated]
//   - garbage collection by owner references, and the deletion of namespaces: some time after the write that is the
//     reason for it
//   - of the built-in kinds the fields that modelled.go lists, with all of their defaults and checks; an object that
//     sets another one, to more than its zero value, is refused
//
// The built-in kinds are
//
//	admissionregistration.k8s.io/v1
//	                        MutatingWebhookConfiguration, ValidatingWebhookConfiguration (no matchConditions)
//	apiextensions.k8s.io/v1 CustomResourceDefinition: of the spec, the conversion and the storage version may be changed
//	v1                      ConfigMap, Event, LimitRange (of containers), Namespace, Node, PersistentVolumeClaim, Pod,
//	                        ResourceQuota (of pods and what they ask for; nothing counts), Secret, ServiceAccount,
//	                        Service (of all types; IPv4 only; nothing makes its EndpointSlices)
//	apps/v1                 Deployment, ReplicaSet,
//	                        StatefulSet (no volumeClaimTemplates, conditions or ordinals)
//	autoscaling/v2          HorizontalPodAutoscaler (not served at v1)
//	batch/v1                CronJob, Job (no podFailurePolicy, successPolicy, managedBy, completedIndexes)
//	coordination.k8s.io/v1  Lease
//	networking.k8s.io/v1    NetworkPolicy (no ipBlock, no endPort)
//	policy/v1               PodDisruptionBudget
//	rbac.authorization.k8s.io/v1
//	                        RoleBinding, by who has the verb bind on its role; it gives nobody a right: only those of
//	                        [Options.Roles] do
//
// and of a pod or a pod template the containers with command, env, envFrom, ports, probes (exec, httpGet, tcpSocket),
// resources (cpu, memory, ephemeral-storage), securityContext and volumeMounts; volumes of kind emptyDir, configMap,
// secret and persistentVolumeClaim; nodeSelector, restartPolicy and serviceAccountName; and of a pod hostname,
// subdomain and preferred podAntiAffinity. Init containers, other affinity and tolerations are refused.
//
// A test with another kind of Kubernetes, such as an Ingress, or with other fields of these sets [Options.Kinds] to the
// Kinds of package reconciletest/builtin: Kubernetes' own code, with all fields. That is a module of its own, since it
// is large. What it lacks needs a real control plane: package reconciletest/cluster.
//
// Of admission there are webhooks, namespaces, and the protection and size of PersistentVolumeClaims. A pod is refused,
// as not modelled, in a namespace with a ResourceQuota or a LimitRange, which would count or change it. There is no
// controller but the garbage collector: no scheduler, no kubelet. A [World], for Check, has them.
//
// # kubectl
//
// kubectl works against the server, over [Link.Listen] (kubectl_test.go):
//
//	get, get --watch, wait, describe, -o     work; tables have the columns NAME and AGE: the server makes no Table
//	apply, apply --server-side, diff         work
//	create, patch, label, annotate           work
//	scale, autoscale, set image              work
//	rollout status/pause/resume/history      work, as far as there is a controller that rolls out
//	create job --from, delete, delete --all  work
//	api-resources, api-versions, version     work
//	auth can-i                               works
//	explain                                  works for custom resources; it knows no fields of built-in kinds
//	logs, exec, attach, port-forward, cp     do not work: the server has no such subresources of pods
//	cluster-info                             works
//	drain, top                               do not work: the server has no evictions and no metrics
//
// # Time
//
// Only the test moves time. The server reads the clock of package time, and has no goroutine and no buffer: it serves a
// request on the goroutine of the client, and a watch looks for its next event in the history when the client reads.
// Only the garbage collector is started by a timer. In a bubble of testing/synctest that is virtual time: time.Sleep of
// a minute in the test lets a minute pass for the server, its watches and the controller, and takes no real time;
// synctest.Wait returns when all of them wait for something. With the same [Options.Seed], and requests in the same
// order, each run is the same. Outside of a bubble time is real.
//
// [Link.Listen] serves processes and programs in other languages over HTTP, and is for real time only.
//
// # Faults
//
// A [Link] has the faults of one client: requests that are delayed, refused, or served without an answer
// ([Link.Inject]), watches that bring every event late or never ([Link.DelayWatches]) or end ([Link.CutWatches]), a
// process that dies ([Link.Close]). The [Server] has the faults that all clients see: [Server.Compact],
// [Server.Restore], [Server.CutWatches], and those of webhooks: [Server.InjectWebhooks].
//
// # Webhooks
//
// A MutatingWebhookConfiguration, a ValidatingWebhookConfiguration or the conversion of a CustomResourceDefinition says
// by a Service or a URL where a webhook is. That leads to the handler that [Options.Webhooks] names for it, or else to
// what a program listens on that runs with [Link.Context], over TLS: its certificate has to be one of the caBundle.
// What leads nowhere is refused, as not modelled, as long as no program has such a context; then it is a connection
// that is refused. The user of [Check] whose step meets that tries again when the program is up. If no program ever
// listens, that is a finding of Check which names the webhook.
//
// The server calls mutating webhooks one after the other and validating ones at once, with the rules, selectors,
// policies and timeouts of their configurations, and refuses in the words of the real server. It does not call them for
// the subresources scale and binding, and refuses such a request if a webhook would have to be. It names its own
// controllers by the service accounts of a real cluster, and does not tell webhooks that a namespace is finalized.
//
// A write takes at most 34 s, and the deletion of a collection a minute. After that the answer is 504, and nothing more
// is stored. A real server has no other bound for a patch that is made again since its webhook writes the same object.
//
// A change of the spec of a CustomResourceDefinition, such as a new caBundle, ends the watches of all of its versions a
// second later.
//
// As on a real server, a GET and a write convert an object each time, one by one, and fail with 500 if that fails.
// Lists and watches come from a cache for each version, into which an object is converted once. If that fails, a list
// is answered with 500 and a watch with 504, and watches that are open end. A real server fills the cache at once, and
// answers lists at resourceVersion 0 from one that is old; here it is filled when it is asked.
//
// # Check
//
// [Check] finds what tests of single cases do not: it takes a program and the steps of a user, and runs them hundreds
// of times, each time with other things going wrong. This is a whole test:
//
//	func TestOperator(t *testing.T) {
//		reconciletest.Check(t, reconciletest.Scenario{
//			Run:    run, // what main calls: func(ctx context.Context, cfg *rest.Config) error
//			Server: reconciletest.Options{CRDs: []string{"config/crd"}, Roles: []string{"config/rbac.yaml"}},
//			User:   reconciletest.ServiceAccount("operators", "mine"),
//			Steps:  reconciletest.Apply("testdata/good.yaml", "testdata/bad.yaml", "testdata/good.yaml"),
//		})
//	}
//
// The program may use any library, client-go and controller-runtime included. It makes its clients from cfg, and it
// returns when ctx ends. What it asks of other APIs is answered by [Scenario.Outside]. What package reconcile/webhook
// serves is reached in memory, by the server, with the certificates that the program makes.
//
// Of an operator on controller-runtime the test lies in the operator's own module, as its packages are internal:
//
//	func run(ctx context.Context, cfg *rest.Config) error {
//		again := true // each incarnation makes the controllers anew, under the names that they had
//		mgr, err := ctrl.NewManager(cfg, ctrl.Options{
//			Scheme:                 scheme, // client-go's kinds, and the operator's own
//			Metrics:                metricsserver.Options{BindAddress: "0"},
//			HealthProbeBindAddress: "0",
//			Controller:             config.Controller{SkipNameValidation: &again},
//		})
//		if err != nil {
//			return err
//		}
//		if err := (&controller.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr); err != nil {
//			return err
//		}
//		return mgr.Start(ctx)
//	}
//
//	func TestMain(m *testing.M) {
//		ctrl.SetLogger(logr.Discard())
//		klog.SetLogger(logr.Discard())
//		os.Exit(m.Run())
//	}
//
// Options.CRDs and Options.Roles take kustomize's directories, such as "../config/crd/bases" and "../config/rbac". The
// tests of this project run controller-runtime 0.25.2 with client-go 0.37; 0.22 does not compile with that.
//
// Every run has to end as the one in which nothing goes wrong. [Scenario.Settled] says more about that end, and
// [Scenario.Always] says what no write may do.
//
// The server runs no other controllers. With a [World] there is a cluster around the program, which does one thing
// after the other, between the requests of the program, so that the timeline has it:
//
//	World: &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 5 * time.Second }},
//
//	   30.006s  1: create jobs default/: 201, migrate made
//	   30.059s  the world: jobs default/migrate active, 0 pods failed
//	   35.059s  the world: jobs default/migrate complete
//
// A program that makes what the world would make, such as a controller of Deployments, names that in [World.Except].
// [Scenario.Beside] is for what else it waits for, such as the controller of somebody else's custom resource.
//
// Several programs that write the same objects are run together with [Scenario.Programs]. Each disturbance hits each of
// them, and its text begins with the name of that one; so do the lines of the timeline:
//
//	Programs: []reconciletest.Program{{Name: "deployer", Run: deploy}, {Name: "scaler", Run: scale}},
//
//	   30.002s  scaler 1: update sets default/a: 200
//	   30.002s  deployer: crash after update sets #1
//	   30.003s  deployer 1: update sets default/a: 200
//
// "held at" lets one program do all that it has to do while a request of another one is on its way. Two that overwrite
// each other for ever do not come to rest: the finding names both, and the field.
//
// A program that gives a field back what it had before another one changed it is a finding if it does not do so when
// nothing goes wrong, since that is how some programs ask and answer. Check looks at the last change of the field only,
// so what undoes several at once is silent. Disturbances at a step hit one program at a time; only [Scenario.Replay]
// takes "down in step 2" for all of them. The bounds of "comes to rest" and "is quiet at rest" are those of one program
// times their number, for the sum of what they do. "slow" makes the requests of others wait as well.
//
// # The world outside
//
// A controller that keeps something in a cloud or a DNS server has to do so once, and to take it away, although answers
// get lost, and although it may crash between a request and the write that remembers it. [Scenario.Outside] stands in
// for such an API, with a handler and a State:
//
//	Outside: map[string]func() reconciletest.API{
//		"cloud.example.com": func() reconciletest.API { return &cloud{buckets: map[string]string{}} },
//	},
//
//	   30.003s  lose answer to POST cloud.example.com #1
//	   30.003s  1: POST https://cloud.example.com/buckets: 200
//	   31.004s  1: POST https://cloud.example.com/buckets: 200
//
//	two runs end differently: A, in which nothing goes wrong, and B, which is below
//	cloud.example.com /photos .value: A has 1, B has 2
//
// The program does not know: http.DefaultTransport, its clones, and all clients that have no transport of their own
// lead there, over HTTP and HTTPS, with no connection and no certificate. An SDK that makes its own transport takes
// http.DefaultClient as an option; what it makes when the test binary starts is too early. Time is virtual for the
// handler as well, which may sleep; Check calls it for one request after the other, and the next one waits also for a
// handler whose client has not waited. A request without the ctx of Run is known by its goroutine, which has a label of
// runtime/pprof: pprof.Do with another ctx takes that away. The example "outside" of Check
// has a controller that makes nothing twice and leaves nothing.
//
// # What stops a program
//
// In a bubble time passes when all goroutines wait for each other, for time, or for the server. A run in which one
// waits for something else stands still. Check looks at that in real time, and fails after some seconds, or after 30 s
// if that may end by itself, as another process does, with the line of the program and with what to do:
//
//	a port that it opens       A manager of controller-runtime needs the bind address "0" for metrics and probes.
//	a connection               Scenario.Outside, for HTTP; for others a fake.
//	a goroutine from outside   A worker, a channel, a ticker or a limiter in a variable of a package belongs to no run,
//	                           and its clock is the real one. Make it within Run.
//	a lock                     Who waits for a time or for an answer with a lock held keeps time from passing for the
//	                           others that want it. A channel with one element does the same, and may be held. Where
//	                           workers wait for each other so, one worker may do.
//	another process, a pipe    Leave it out, or see below.
//	work without a pause       Work takes no virtual time: a loop that asks for the time until it has come never ends.
//	                           Check believes that after a minute.
//
// Go ends the test with a fatal error about synctest if a goroutine from outside uses a channel or a timer of a run, or
// a run those of an earlier one; its stack has the line. Files are those of the machine: they stay from one run to the
// next, and a program that keeps something in them is not deterministic, which go test -v says. A program that ends by
// itself since a file is missing, or a port is taken, is a finding that says so.
//
// # Programs in other languages
//
// Check runs programs in Go, in its own process. After each step it waits for 30 s in which nothing is written, and for
// as long as ten minutes in the end, in hundreds of runs: that takes no time in a bubble, and days outside. It also
// has to know when a program waits, which another process does not tell, so no schedule would be the same run twice.
//
// Such a program is tested run by run: [Link.Listen] serves it over HTTP, in real time, with the faults of its [Link]
// and of the [Server], and the test looks with [Get] and [List]. What goes wrong, and what must hold then, is in the
// test; nothing searches.
//
// # All schedules
//
// Check searches for a time. With [Scenario.Explore] it runs all that there is, within bounds, and says that it has:
//
//	Explore: reconciletest.Exhaustive{Crashes: 1, Stale: 1},
//
//	Exhaustive{Crashes: 1, Stale: 1} is done: of the schedules were run 25 of 25 with 1, 155 of 155 with 2 disturbances;
//	in 25 and 155 of them all happened
//
// The requests of the program wait at gates, and the driver lets one after the other through, so that a schedule says
// everything about a run:
//
//	crash before, crash after   the program dies at a write, and starts anew; a second incarnation lives on
//	lose answer to, late 504    the server has done it, and the program cannot know
//	429, 500, 504               the server has not done it
//	no answer, late answer to   of an API: nothing for 60 s, and it has not seen the request; or it has, and says so
//	                            20 s later
//	held at                     with several programs: the request waits for 5 s, and the others go on
//	500 for 20 s from           nor any request like it in the next 20 s
//	webhook down, slow, wrong   the server cannot call the webhooks that it would have to for this and in the next 20 s;
//	webhook certificate ended   only where a request of the program has the server call one
//	touch before                a third party changes the object first: a conflict
//	second at                   a second incarnation starts, and the first one dies 5 s later
//	next step at                the user does not wait until the program is done
//	down in, down over          the program is down while the user does a step, or two
//	unseen, cut in              watches end, with all that happened in between, or without
//	late, frozen                the events of one resource come later than those of others
//	old cache after, back to    the program starts anew, and lists from a cache that was left behind
//	namesake after              an object is deleted, and made anew under its name, a namespace with what users had
//	other order in              the manifests of a step in the reverse order of their kinds, with a rest after each
//	delete                      a third party deletes what the program has made, and no user has applied since
//	world slow with             the world sees what is written of a resource 60 s later, for 2 minutes
//	world fails                 pods are not ready for 60 s, also those that were; the first pod of a Job fails
//	cold start                  all steps are done before the program starts; it is up while a user waits for it
//	unseen steps                all steps are done while its watches are broken
//	slow                        requests take 1.2 s
//
// A request to an API is disturbed as a write is, or as a read: "500 to GET dns.example.com #2". [Scenario.Off]
// switches a disturbance off by its words here, without the "to", "at", "in", "from" or "with" at their end: "lose
// answer", "500 for 20 s", "cold start". A [Wait] among the steps lets time pass: minutes for what is due every minute,
// days for what lives for days.
//
// testdata/effects.txt has a run of a small program with each of them.
//
// A client that lists at resourceVersion 0, as client-go's reflector does where lists are not streamed, meets "back
// to". Informers of this library list at the newest version, and do not. Lists of informers are streamed, and never
// old, where the server is of Kubernetes 1.34 or newer and client-go of 0.35 or newer, with their default feature
// gates: a program that needs both, and lists nothing at resourceVersion 0 itself, has "back to" and "old cache after"
// in Off.
//
// What a program on this library does by a schedule is the same each time, on any machine, unless the program itself
// draws random numbers, or ranges over a map or over what an informer's All or an Index's Get returns, which have no
// order, between two requests. The library draws its own from the time, which is virtual. Programs on other libraries
// differ a little from run to run; there a finding counts if it is found again in 9 of 10 replays, and one by "Always"
// in one of 10: a write that must not happen is a fact, and an end may differ by luck.
//
// # How to read a failure of Check
//
// This is what Check has printed of a published bug. An operator cleans up after a deleted object, and deletes the
// volumes of an object that was made anew under its name:
//
//	after 17 runs in 273ms, and by 3 schedules in all, by the rule "Always":
//	    delete volumes default/a-0 by incarnation 2: a-0 is in use, and its data is lost
//	what happened:
//	      0.000s  start of incarnation 1
//	     30.000s  step 1: apply Set a
//	     30.002s  1: create volumes default/: 201, a-0 made
//	     30.003s  1: create volumes default/: 201, a-1 made
//	     30.004s  1: create sets default/: 201, a made
//	     62.014s  namesake at once after step 1
//	     62.014s  CRASH of incarnation 1
//	     62.014s  step 1: apply Set a
//	     62.014s  start of incarnation 2
//	     63.017s  2: create sets default/: 201, a made
//	     64.019s  2: delete volumes default/a-0: 200, a-0 gone
//	             20 more lines, of reads and of writes far from this, are left out; Replay shows all
//	again, alone: Replay: "v1 seed=0 steps=1: namesake at once after step 1"
//
// Read it in this order:
//
//   - The first line has the rule that the program breaks; the doc comment of Check explains each. It also says how
//     many schedules have shown the same by the same kind of disturbance.
//   - The lines below say how. After "Always" and "converges" they are the errors of the scenario's own functions.
//     After "ends alike" they compare the objects of two runs: A, in which nothing goes wrong, and B, which the
//     timeline shows. Which of the two is right is for you to say. If it is B, the mistake is in what the program does
//     when nothing goes wrong; if both are, [Scenario.Mask] takes out what may differ.
//   - In the timeline, look for the disturbance, which has the words of the table above: here the object is deleted and
//     made anew while the program is down. What the program does after it is the mistake, or leads to it.
//   - The time is that of the program, since the begin of the run. A write begins with the incarnation that makes it
//     and ends with the code of the answer and the names of the objects that it makes or removes.
//   - The last line is the schedule. Below it may be others, of other disturbances that show the same. Set
//     [Scenario.Replay] to it while you mend the program: then Check makes this run, and the few that say what may
//     differ, which takes milliseconds, prints the whole timeline, with the reads, and a debugger may stop in it.
//
// # Reading order
//
//	the surface        server.go (NewServer), link.go with fault.go and request.go, listen.go, contents.go (Get, List)
//	storage            store.go: versions, history, compaction; resource.go: what tells kinds apart; resources.go
//	a request          serve.go, codec.go, errors.go, deadline.go; strict.go: unknown and repeated fields
//	reading            list.go, watch.go
//	writing            write.go, patch.go with managers.go, delete.go, scale.go, binding.go
//	custom resources   manifest.go, crd.go with definition.go, kinds.go, schema.go with embedded.go, rules.go;
//	                   versions.go with conversion.go
//	webhooks           webhookkinds.go, admission.go, webhook.go with host.go
//	around requests    rbac.go: rights; collector.go: garbage collection, with protection.go: what is in use;
//	                   discovery.go with openapi.go; aggregated.go: groups that handlers serve;
//	                   fork.go with forkadmit.go: the cluster below
//	Check              check.go with pairs.go and explore.go, scenario.go with step.go, off.go, program.go and world.go;
//	                   run.go with steps.go, namesake.go, process.go, gate.go, surroundings.go,
//	                   outside.go with caller.go; still.go;
//	                   disturbance.go, judge.go with idempotent.go, manners.go, authors.go, rights.go, leaks.go,
//	                   done.go, snapshot.go with hashes.go and aligned.go, variance.go with
//	                   guarded.go, shortcut.go and drawn.go;
//	                   finding.go with timeline.go, coverage.go, inorder.go
//	built-in kinds     builtin.go, deployment.go, batch.go, autoscaling.go, claim.go, disruption.go,
//	                   service.go with servicepool.go, serviceaddress.go, serviceports.go and servicecheck.go,
//	                   platform.go: quotas, limits, network policies, bindings,
//	                   pod.go with podspec.go; modelled.go: the fields that are modelled
//	                   kind.go: those that Kubernetes' own code serves
package reconciletest
