// Package builtin gives the API server in memory of package reconciletest the built-in kinds of Kubernetes 1.37 by
// Kubernetes' own code:
//
//	server := reconciletest.NewServer(t, reconciletest.Options{Kinds: builtin.Kinds()})
//
// What a real server does with an object when it is written is a matter of Go packages of the module k8s.io/kubernetes:
// defaults and conversions (pkg/apis), validation, generations, what a write to the status leaves alone, which fields
// nobody owns, short names and discovery (pkg/registry). They are linked here. So all fields of a kind work, and an
// invalid object is refused in the words of the real server. For the kinds that package reconciletest has a model of,
// such as pods and Deployments, this takes the model's place.
//
// # The kinds
//
//	v1                            ConfigMap, Endpoints, LimitRange, Node, PersistentVolume, PersistentVolumeClaim, Pod,
//	                              PodTemplate, ReplicationController, ResourceQuota, Secret, ServiceAccount
//	admissionregistration.k8s.io  webhook configurations, admission policies and their bindings
//	apiregistration.k8s.io        APIService
//	apps                          ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet
//	autoscaling/v2                HorizontalPodAutoscaler (not served at v1)
//	batch                         CronJob, Job
//	certificates.k8s.io           CertificateSigningRequest with approval, ClusterTrustBundle, PodCertificateRequest
//	coordination.k8s.io           Lease
//	discovery.k8s.io              EndpointSlice
//	events.k8s.io                 Event
//	flowcontrol.apiserver.k8s.io  FlowSchema, PriorityLevelConfiguration
//	networking.k8s.io             Ingress, IngressClass, IPAddress, NetworkPolicy, ServiceCIDR
//	node.k8s.io                   RuntimeClass
//	policy                        PodDisruptionBudget
//	rbac.authorization.k8s.io     Role, ClusterRole and their bindings
//	resource.k8s.io               DeviceClass, DeviceTaintRule, ResourceClaim and its template, ResourceSlice
//	scheduling.k8s.io             PriorityClass
//	storage.k8s.io                StorageClass, VolumeAttachment, VolumeAttributesClass, CSIDriver, CSINode,
//	                              CSIStorageCapacity
//
// Each of them at its version v1, but where another one is named. Namespaces, Services and Events of the core group
// stay the models of package reconciletest, which hold the same promise for fewer fields. A real server stores the
// Events of both groups as one: what is written as one can be read as the other. Here they are two kinds, in Get and
// List "events" and "events.events.k8s.io".
//
// # What is not here
//
//   - Versions that are beta or alpha, and kinds that are answered and not stored, such as TokenReview.
//   - Of pods the subresources eviction, log, exec, attach, portforward and proxy, of nodes proxy, and of service
//     accounts token: discovery names them, as on a real server, and a request for one is refused with 501.
//   - Admission, but for the taint of new nodes and the finalizers that protect what is in use (a claim by a pod, a
//     PersistentVolume by its phase Bound, a VolumeAttributesClass by claims and volumes): a pod gets no service
//     account, tolerations or priority, and a claim no default StorageClass. A pod in a namespace with a ResourceQuota
//     or a LimitRange is refused with 501, since it would be counted or given requests. Admission policies are stored
//     and checked, and have no effect.
//   - Of webhooks matchConditions and the AdmissionReview of v1beta1, if that is their first version: the server in
//     memory asks them, and refuses such a configuration with 501.
//   - Users who have not all rights, beyond [reconciletest.Options.Roles], which say who may do what: a Role is not
//     checked for escalation, and a binding by a user who has not the verb bind on its role is refused with 501.
//   - What a real server makes when it starts, such as the ClusterRoles cluster-admin and view, the PriorityClasses
//     of the system, FlowSchemas, the ServiceCIDR kubernetes, and the APIServices of its own groups.
//   - What an APIService does: it is stored, and leads no request anywhere, which [reconciletest.Options.Aggregated]
//     does; so what it says of discovery and of priorities has no effect. The controllers inside of a real server make
//     one for each version of a custom resource, say of one with a Service whether that answers, and of one that has
//     lost its Service that it is available. Nobody does that here: a program or a test has to. A new one without a
//     Service is available at once, as on a real server.
//   - An order of what is invalid: Kubernetes walks through some fields, such as labels and quantities, in the order
//     of a Go map, so that of an object with several such mistakes the causes and the message differ from run to run,
//     here as on a real server.
//   - A fork: Options.Base cannot be combined with Kinds.
//
// # Why registries, and why no server
//
// There were three seams to choose from: the strategies of the kinds by themselves, the stores around them
// (pkg/registry/generic), or the handlers of the whole API server. A store does more than its strategy: the status, the
// approval and the resizing of an object have stores of their own that are not exported, and some, such as those of
// Roles, stand in front of another one. So a storage is asked to create or update as the handlers of the real server
// ask it, and the etcd that it writes to is one transaction with one object: see transaction. It has no goroutine, no
// clock and no objects of its own, so that virtual time and the promise of the same run for the same seed hold, and
// all servers of a process share the kinds. The handlers would have brought watches of their own, with goroutines and
// buffers, and faults could not be injected as exactly as in package reconciletest.
//
// Which kinds there are, their names, verbs and subresources is asked of the storage providers of the real server; only
// those of the core group are named here, since the provider of that starts allocators. The tests hold a conversation
// about each kind with this server and a real one, and compare all answers, and discovery.
//
// # What the import does
//
// The packages of Kubernetes change the process that they are linked into, that of the program under test:
//
//   - They register defaults, conversions and field labels with the schemes' builders of k8s.io/api. A scheme that a
//     program makes itself afterwards, such as by appsv1.AddToScheme, has them, and without the import has not; those
//     of client-go (kubernetes/scheme) are made before, and stay what they are.
//   - They put their own feature gates in the place of client-go's, so that the variables KUBE_FEATURE_* would have no
//     effect. This package puts client-go's back.
//   - They add their gates and metrics to those of k8s.io/component-base that all of a process share.
//
// The tests compile Kubernetes and its libraries at 1.37.1, the version of the real server that they compare with. Who
// gets this module has the libraries of 0.37.2 beside it, as its go.mod requires: their Go code differs from that in
// four files of k8s.io/apiserver about serving HTTP, which are linked and not used here. No test compiles that, nor
// newer versions of other modules.
//
// # How a module requires it
//
//	go get -t ./...
//
// in a module whose tests import this package. go mod tidy fails with
//
//	k8s.io/cri-client@v0.0.0: reading https://...: 403 Forbidden
//
// and changes nothing: it also reads what the tests of dependencies import, and those of k8s.io/kubernetes want its
// own staging modules at v0.0.0, which are in no registry. go mod tidy -e says the same, goes on, and leaves a right
// go.mod; that also ends "updates to go.mod needed". With two lines in go.mod go mod tidy works by itself:
//
//	replace k8s.io/cri-api => k8s.io/cri-api v0.37.2
//	replace k8s.io/cri-client => k8s.io/cri-client v0.37.2
//
// go list -m all, which some tools run, fails without a line for each such module of k8s.io/kubernetes.
//
// # What it costs
//
// Measured on two cores of an EPYC that others used as well, so that the ratios count. Making the kinds takes 25 ms,
// once in a process. A server takes 6.3 ms and 750 kB to start, and without Kinds 3.8 ms and 330 kB
// (BenchmarkNewServer); to create, update and delete a ReplicaSet takes 1.5 times as long as with its model
// (BenchmarkWrites), since each write converts the object to the internal version and back. 1,678 packages are linked.
// To compile those of them that the build cache did not have after a build of the control plane took 130 s of processor
// time, when pods, claims and the other kinds of the core group were not among them. A module with other versions of
// the dependencies pays again, since the build cache keeps packages by what they import. A binary that does not import
// this package has none of that.
package builtin
