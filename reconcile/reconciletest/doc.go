// Package reconciletest is a Kubernetes API server in memory, for unit tests in virtual time. Clients of every kind (typed,
// dynamic, metadata, REST) talk to it through their own transport, in JSON or protobuf, and cannot tell it from a real
// one:
//
//	synctest.Test(t, func(t *testing.T) {
//		server, err := reconciletest.New(reconciletest.Options{})
//		clients := kubernetes.NewForConfigOrDie(server.Config())
//		...
//	})
//
// # What it promises
//
// It is no approximation. What it answers, a real server would have answered: codes and reasons, resourceVersions and
// their order, generations, managed fields, the events of watches. The corpus (corpus_test.go) is a list of requests
// that the tests send to both, and compare the answers; more requests are made up of the modelled fields of each kind
// (corpus_generated_test.go). What the server does not model it refuses, with code 501 and a message that begins with
// "not modelled"; so a test that passes has not passed by accident.
//
// Modelled are
//
//   - storage: one resourceVersion that each write moves by one, every version of every object, lists as they were at a
//     version, compaction with 410, pages that stay at the version of the first, restores that turn the version back
//   - watches: from a version, from now, or with the list in front; selectors, bookmarks, timeouts; each event once and
//     in order
//   - writes: conflicts, preconditions, generated names, dry runs, writes that change nothing, generations, the status
//     subresource, finalizers, pods that take time to go, JSON, merge and strategic merge patches, server-side apply
//   - the scale subresource, and field validation, strict or with warnings
//   - custom resources, which are registered in [Options]; [ReadCRDs] makes them from their manifests, with the
//     defaults, the pruning and the validation that their schemas ask for
//   - discovery, and of OpenAPI as much as kubectl needs
//   - authorization by the roles of manifests: [ReadAccess], [Server.LinkAs]
//   - garbage collection by owner references, and the deletion of namespaces: some time after the write that is the
//     reason for it
//   - of the built-in kinds the fields that modelled.go lists, with all of their defaults and checks; an object that
//     sets another one, to more than its zero value, is refused
//
// The built-in kinds are
//
//	v1                      ConfigMap, Event, Namespace, Node, PersistentVolumeClaim, Pod, Secret, ServiceAccount
//	apps/v1                 Deployment, ReplicaSet, StatefulSet (no volumeClaimTemplates, status of a rollout or ordinals)
//	autoscaling/v2          HorizontalPodAutoscaler (not served at v1)
//	batch/v1                CronJob, Job (no podFailurePolicy, successPolicy, managedBy, completedIndexes)
//	coordination.k8s.io/v1  Lease
//	policy/v1               PodDisruptionBudget
//
// and of a pod or a pod template the containers with command, env, envFrom, ports, probes (exec, httpGet, tcpSocket),
// resources (cpu, memory, ephemeral-storage), securityContext and volumeMounts; volumes of kind emptyDir, configMap,
// secret and persistentVolumeClaim; nodeSelector, restartPolicy and serviceAccountName. Init containers, affinity and
// tolerations are refused.
//
// Of admission there are namespaces and the protection and size of PersistentVolumeClaims. There is no controller but
// the garbage collector: no scheduler, no kubelet. A [Listener] serves processes and other languages over HTTP.
//
// # kubectl
//
// kubectl works against a [Listener] (kubectl_test.go):
//
//	get, get --watch, wait, describe, -o yaml/json/name/jsonpath         work; tables have the columns NAME and AGE, since the server makes no Table
//	apply, apply --server-side, diff, create, patch, label, annotate     work
//	scale, autoscale, set image, rollout status/pause/resume/history     work, as far as there is a controller that rolls out
//	create job --from, delete, delete --all, delete -f                   work
//	api-resources, api-versions, version, auth can-i                     work
//	explain                                                              works for custom resources; of built-in kinds it knows no fields
//	logs, exec, attach, port-forward, cp, drain, top, cluster-info       do not work: there are no Services, metrics and subresources of pods for them
//
// # Time
//
// Nothing happens by itself but by the clock of the bubble. The server has no goroutine and no buffer: a request is
// served on the goroutine of the client, and a watch finds its next event in the history when somebody reads. Only the
// garbage collector is started by a timer. So a test decides what happens when, and the same test does the same each
// time.
//
// # Faults
//
// A [Link] is the way of one client to the server, and has the faults: requests that are delayed, refused, or served
// without an answer ([Link.Inject]), watches that bring everything late or never ([Link.DelayWatches]) or end
// ([Link.CutWatches]), a process that dies ([Link.Close]). The [Server] has those that all clients see:
// [Server.Compact], [Server.Restore], [Server.CutWatches].
//
// # Reading order
//
// store.go, resource.go; request.go, link.go with fault.go, serve.go, codec.go; list.go, watch.go; write.go, patch.go
// with managers.go, delete.go; strict.go, scale.go, crd.go with schema.go; collector.go; rbac.go, discovery.go with
// openapi.go, listen.go; builtin.go, deployment.go, batch.go, autoscaling.go, claim.go and disruption.go, pod.go with
// podspec.go, and modelled.go.
package reconciletest
