package main

import "regexp"

// program is one of others, with a published bug in a release.
type program struct {
	// name is that of its folder in testdata.
	name     string
	module   string
	old, new string // with the bug, and with its fix; empty: there is none
	// definitions are files with CustomResourceDefinitions, as a pattern in the folder of definitionsOf. That is a
	// module, or empty: the program's.
	definitions, definitionsOf string
	// others are definitions of more modules that the program requires: patterns, by modules.
	others map[string]string
	// below is the folder of the program whose internal packages the test imports. Empty: that of the module.
	below string
	// versions are more folders of this repository, like those of versionsOf.
	versions []string
	// controllers are to be silent in the new version.
	controllers []controller
	// nth is the first try that they are of, from 0; see tries.
	nth int
	// outside: the tests use the API of testdata/outside.
	outside bool
	// wants: they use what testdata/want asks of objects, as those with outside do.
	wants bool
	// apart: the old version is required under the path released.
	apart bool
	bugs  []bug
}

// released is the path of an old Kubernetes.
const released = "released.test/kubernetes"

// bug is a published one.
type bug struct {
	published string // as a link
	about     string
	test      string
	// shows matches what Check prints of a finding that is this bug.
	shows *regexp.Regexp
	// first says what Check said of the version with the fix at the first try.
	first string
}

var programs = []program{
	{
		name: "jobset", module: "sigs.k8s.io/jobset", old: "v0.11.1", new: "v0.12.0",
		definitions: "config/components/crd/bases/*.yaml",
		bugs: []bug{{
			published: "https://github.com/kubernetes-sigs/jobset/pull/1194", test: "TestJobSet",
			about: "a status that could not be written is not written again",
			shows: regexp.MustCompile(`repeats a write that failed`),
			first: `2 findings, both by design: what a third party deletes of a JobSet that is done is not made anew`,
		}},
	},
	{
		name: "jobset", module: "sigs.k8s.io/jobset", old: "v0.11.0", new: "v0.12.0",
		definitions: "config/components/crd/bases/*.yaml",
		bugs: []bug{{
			published: "https://github.com/kubernetes-sigs/jobset/pull/1167", test: "TestJobSet",
			about: "the Jobs of a JobSet that was deleted are taken for its namesake's",
			shows: regexp.MustCompile(`namesake`),
			first: `the same`,
		}},
	},
	{
		name: "external-snapshotter", module: "github.com/kubernetes-csi/external-snapshotter/v8",
		old: "v8.5.0", new: "v8.6.0", definitions: "config/crd/*.k8s.io_*.yaml",
		definitionsOf: "github.com/kubernetes-csi/external-snapshotter/client/v8",
		bugs: []bug{{
			published: "https://github.com/kubernetes-csi/external-snapshotter/issues/1366", test: "TestSnapshots",
			about: "a snapshot that is deleted while it is restored stays",
			shows: regexp.MustCompile(`lets go of what was deleted`),
			first: `1, harmless: its EventBroadcasters stay until the process ends; with that off ` +
				`1, which is real`,
		}, {
			published: "https://github.com/kubernetes-csi/external-snapshotter/issues/1388", test: "TestSlowDriver",
			about: "a snapshot that is deleted while the driver takes it stays",
			shows: regexp.MustCompile(`lets go of what was deleted`),
			first: `1, the same bug: the fix leaves a race`,
		}},
	},
	{
		name: "agent-sandbox", module: "sigs.k8s.io/agent-sandbox", old: "v0.5.3", new: "v0.5.6",
		definitions: "k8s/crds/*.yaml",
		bugs: []bug{{
			published: "https://github.com/kubernetes-sigs/agent-sandbox/issues/1215", test: "TestWarmPool",
			about: "a warm pool makes more Sandboxes than it has replicas",
			shows: regexp.MustCompile(`Sandboxes in a pool of`),
			first: `1, of the test: it counted the Sandboxes of an earlier pool`,
		}},
	},
	{
		name: "lws", module: "sigs.k8s.io/lws", old: "v0.7.0", new: "v0.9.0", definitions: "config/crd/bases/*.yaml",
		bugs: []bug{{
			published: "https://github.com/kubernetes-sigs/lws/issues/776", test: "TestLeaderWorkerSet",
			about: "with maxUnavailable 0 it asks for a StatefulSet that is invalid",
			shows: regexp.MustCompile(`patch statefulsets default/serve: refused with 422`),
			first: `1, a fault of the model: a pod that goes counts for a StatefulSet; ` +
				`since then 1 by cold start, a number in a name`,
		}},
	},
	{
		name: "statefulset", module: "k8s.io/kubernetes", old: "v1.36.0", new: "v1.37.1", apart: true,
		bugs: []bug{{
			published: "https://github.com/kubernetes/kubernetes/issues/137409", test: "TestStatefulSet",
			about: "pods of a broken first revision are never replaced",
			shows: regexp.MustCompile(`has the image broken`),
			first: `3, faults of the model; silent since they are mended`,
		}},
	},
	{
		name: "cert-manager", module: "github.com/cert-manager/cert-manager", old: "v1.20.3", new: "v1.21.0",
		definitions: "deploy/crds/*.yaml",
		bugs: []bug{{
			published: "https://github.com/cert-manager/cert-manager/issues/8514", test: "TestKeys",
			about: "the next private key that the Certificate names is deleted",
			shows: regexp.MustCompile(`names it as its next key`),
			first: `1, a fault of the model: a generated name that is used again`,
		}},
	},
	{
		name: "job", module: "k8s.io/kubernetes", old: "v1.37.1",
		bugs: []bug{{
			published: "https://github.com/kubernetes/kubernetes/issues/131917", test: "TestJob",
			about: "a Job that is made anew under its name gets no pods",
			shows: regexp.MustCompile(`(?s)namesake`),
		}},
	},
	{
		name: "kubernetes", module: "k8s.io/kubernetes", new: "v1.37.1", versions: []string{"internal/controlplane"},
		controllers: []controller{
			{test: "Deployment", first: "1 false alarm: a hash in a name"},
			{test: "ReplicaSet", first: "silent"},
			{test: "ReplicationController", first: "silent"},
			{test: "DaemonSet", first: "of the model: nodes were never ready"},
			{test: "StatefulSet", first: "of the scenario: claims that it may never see"},
			{test: "Job", first: "silent"},
			{test: "CronJob", first: "silent"},
			{test: "TTLAfterFinished", first: "silent"},
			{test: "Endpoints", first: "1 false alarm: an annotation that is a time"},
			{test: "EndpointSlice", first: "1 false alarm: an annotation that is a time"},
			{test: "EndpointSliceMirroring", first: "1 finding, real by a later judgement: annotations of others"},
			{test: "Disruption", first: "silent"},
			{test: "HorizontalPodAutoscaler", first: "silent"},
			{test: "ServiceCIDR", first: "silent"},
			{test: "PersistentVolumeBinder", first: "1 false alarm: which volume is free"},
			{test: "PersistentVolumeProtection", first: "silent"},
			{test: "PersistentVolumeClaimProtection", first: "silent"},
			{test: "VolumeAttributesClassProtection", first: "of the scenario: nothing let go of a claim"},
			{test: "EphemeralVolume", first: "silent"},
			{test: "PersistentVolumeExpander", first: "of the scenario: the volume was not bound"},
			{test: "AttachDetach", first: "of the scenario: the node lacked an annotation"},
			{test: "ResourceClaim", first: "3 findings, real"},
			{test: "DeviceTaintEviction", first: "real: a lock is held during a request"},
			{test: "PodGC", first: "silent"},
			{test: "TTL", first: "silent"},
			{test: "NodeIPAM", first: "of the wiring: defaults of flags"},
			{test: "TaintEviction", first: "of the scenario: an invalid toleration"},
			{test: "NodeLifecycle", first: "of the model: 501, nodes"},
			{test: "ServiceAccount", first: "silent"},
			{test: "RootCACertificatePublisher", first: "1 false alarm: 403 of admission"},
			{test: "ClusterTrustBundlePublisher", first: "silent"},
			{test: "CertificateApproving", first: "silent"},
			{test: "CertificateCleaner", first: "silent"},
			{test: "CertificateSigning", first: "cannot run: inotify"},
			{test: "PodCertificateRequestCleaner", first: "silent"},
			{test: "ClusterRoleAggregation", first: "silent"},
			{test: "BootstrapSigner", first: "of the model: 501, Secrets"},
			{test: "TokenCleaner", first: "of the model: 501, Secrets"},
			{test: "ServiceAccountToken", first: "of the model: 501, Secrets"},
			{test: "LegacyTokenCleaner", first: "of the model: 501, service accounts"},
			{test: "Namespace", first: "of the model: 501, finalize"},
			{test: "ResourceQuota", first: "silent"},
			{test: "GarbageCollector", first: "silent"},
			{test: "ValidatingAdmissionPolicyStatus", first: "silent"},
		},
	},
	{
		name: "cert-manager-controllers", module: "github.com/cert-manager/cert-manager", new: "v1.21.0", nth: 1,
		definitions: "deploy/crds/*.yaml",
		controllers: []controller{
			{test: "Trigger", first: "1 false alarm: a goroutine that waits for a timer"},
			{test: "Readiness", first: "1 false alarm: a goroutine that waits for a timer"},
			{test: "RequestManager", first: "1 false alarm: a goroutine of another program"},
			{test: "Issuing", first: "1 false alarm: a goroutine of another program"},
			{test: "RevisionManager", first: "1 false alarm: a goroutine of another program"},
			{test: "Approver", first: "silent"},
			{test: "RequestsOfCA", first: "silent"},
			{test: "RequestsOfSelfSigned", first: "silent"},
			{test: "SigningRequestsOfCA", first: "of the model: 501, SubjectAccessReviews"},
			{test: "Issuers", first: "silent"},
			{test: "ClusterIssuers", first: "silent"},
			{test: "IngressShim", first: "silent"},
		},
	},
	{
		name: "cloud-provider", module: "k8s.io/cloud-provider", new: "v0.37.2", nth: 1, outside: true,
		controllers: []controller{
			{test: "Service", first: "of the model: 501, type LoadBalancer"},
			{test: "Node", first: "of the scenario: a taint that Kubernetes sets"},
			{test: "NodeLifecycle", first: "silent"},
			{test: "Route", first: "1 false alarm: still blind after a restart"},
		},
	},
	{
		name: "external-attacher", module: "github.com/kubernetes-csi/external-attacher/v4", new: "v4.13.0",
		nth: 1, outside: true,
		controllers: []controller{{test: "Attacher", first: "cannot run: a feature gate that is there twice"}},
	},
	{
		name: "external-resizer", module: "github.com/kubernetes-csi/external-resizer/v2", new: "v2.3.0",
		nth: 1, outside: true,
		controllers: []controller{
			{test: "Resizer", first: "cannot run: a feature gate that is there twice"},
			{test: "Modifier", first: "cannot run: a feature gate that is there twice"},
		},
	},
	{
		name: "provisioner", module: "sigs.k8s.io/sig-storage-lib-external-provisioner/v13", new: "v13.1.0",
		nth: 1, outside: true,
		controllers: []controller{{test: "Provisioner", first: "1 false alarm: a volume that is bound is deleted"}},
	},
	{
		name: "karpenter", module: "sigs.k8s.io/karpenter", new: "v1.14.1", nth: 1,
		definitions: "kwok/*/crds/*.yaml",
		controllers: []controller{
			{test: "Hash", first: "of the wiring: defaults of flags"},
			{test: "Readiness", first: "of the wiring: defaults of flags"},
			{test: "Validation", first: "of the wiring: defaults of flags"},
			{test: "Expiration", first: "of the wiring: defaults of flags"},
		},
	},
	{
		name: "cluster-api", module: "sigs.k8s.io/cluster-api", new: "v1.14.2", nth: 2,
		definitions: "core/config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "MachineSet", first: "of the wiring: a name may be used once in a process"},
			{test: "MachineDeployment", first: "of the wiring: a name may be used once in a process"},
			{test: "Machine", first: "of the wiring: a name may be used once in a process"},
			{test: "MachineHealthCheck", first: "of the wiring: a name may be used once in a process"},
			{test: "MachinePool", first: "of the wiring: a name may be used once in a process"},
			{test: "Cluster", first: "of the wiring: a name may be used once in a process"},
			{test: "ClusterClass", first: "of the wiring: a name may be used once in a process"},
			{test: "ClusterTopology", first: "of the wiring: a name may be used once in a process"},
			{test: "TopologyMachineDeployment", first: "of the wiring: a name may be used once in a process"},
			{test: "TopologyMachineSet", first: "of the wiring: a name may be used once in a process"},
			{test: "ClusterResourceSet", first: "of the wiring: a name may be used once in a process"},
			{test: "ClusterResourceSetBinding", first: "of the wiring: a name may be used once in a process"},
		},
	},
	{
		name: "kueue", module: "sigs.k8s.io/kueue", new: "v0.17.0", nth: 2,
		definitions: "config/components/crd/bases/*.yaml",
		controllers: []controller{
			{test: "ResourceFlavor", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "AdmissionCheck", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "WorkloadPriorityClass", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "LocalQueue", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "Cohort", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "ClusterQueue", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "Workload", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "Topology", first: "real, harmless: a goroutine waits for the end of the process"},
			{test: "PodTermination", first: "real, harmless: a goroutine waits for the end of the process"},
		},
	},
	{
		name: "training-operator", module: "github.com/kubeflow/training-operator", new: "v1.9.3", nth: 3,
		definitions: "manifests/base/crds/*_*.yaml",
		controllers: []controller{
			{test: "PyTorchJob", first: "real: a condition is written into the cache alone, and lost"},
			{test: "TFJob", first: "silent"},
			{test: "XGBoostJob", first: "of the scenario: a pod that is never restarted was deleted"},
			{test: "PaddleJob", first: "silent"},
			{test: "JAXJob", first: "1 false alarm: a condition that is seen by luck"},
		},
	},
	{
		name: "machine-api-operator", module: "github.com/openshift/machine-api-operator",
		new: "v0.2.1-0.20260226113419-88465550a74b", nth: 3, outside: true,
		versions:    []string{"internal/controlplane"},
		definitions: "install/*.Default.crd.yaml",
		controllers: []controller{
			{test: "MachineSet", first: "real: ready nodes are not counted for up to ten minutes"},
			{test: "Machine", first: "real, rare: an instance for a Machine that is gone"},
		},
	},
	{
		name: "cloud-on-k8s", module: "github.com/elastic/cloud-on-k8s/v3", new: "v3.5.0", nth: 3,
		definitions: "config/crds/v1/all-crds.yaml",
		controllers: []controller{
			{test: "Kibana", first: "1 false alarm: a hash of a template in which something is random"},
			{test: "APMServer", first: "1 false alarm: a hash of a template in which something is random"},
			{test: "Beat", first: "of the scenario: a node was not counted"}, {test: "Agent", first: "silent"},
			{test: "Logstash", first: "of the model: a list that keeps unknown fields"},
			{test: "PackageRegistry", first: "1 false alarm: a hash of a template in which something is random"},
		},
	},
	{
		name: "external-provisioner", module: "github.com/kubernetes-csi/external-provisioner/v6", new: "v6.4.0",
		nth: 3, outside: true, definitions: "config/crd/snapshot.storage.k8s.io_volumesnapshots.yaml",
		definitionsOf: "github.com/kubernetes-csi/external-snapshotter/client/v8",
		controllers: []controller{{test: "CloningProtection", first: "silent"},
			{test: "SnapshotFinalizers", first: "silent"}, {test: "Capacity", first: "silent"}},
	},
	{
		name: "istio", module: "istio.io/istio", new: "v0.0.0-20260827124520-eed52ebb66ad", nth: 3,
		wants:       true,
		definitions: "manifests/charts/base/files/crd-all.gen.yaml",
		controllers: []controller{
			{test: "IPAllocator", first: "real: it gives up after five tries"},
			{test: "NodeUntainter", first: "real: it gives up after five tries"},
			{test: "Validation", first: "silent"},
			{test: "RootCertificates", first: "real: it gives up after five tries; and 1 false alarm"},
			{test: "GatewayClasses", first: "1 false alarm: what a user had applied was deleted"},
		},
	},
	{
		name: "prometheus-operator", module: "github.com/prometheus-operator/prometheus-operator", new: "v0.85.0",
		nth: 3, wants: true, definitions: "example/prometheus-operator-crd/*.yaml",
		controllers: []controller{
			{test: "Prometheus", first: "real: times of transitions, mended later"},
			{test: "PrometheusAgent", first: "real: times of transitions, mended later"},
			{test: "Alertmanager", first: "real, harmless: Reconciled is unknown after a restart"},
			{test: "ThanosRuler", first: "real, harmless: Reconciled is unknown after a restart"},
			{test: "Kubelet", first: "silent"},
		},
	},
	{
		name: "whereabouts", module: "github.com/k8snetworkplumbingwg/whereabouts", new: "v0.9.2", nth: 3,
		definitions: "doc/crds/whereabouts*.yaml",
		controllers: []controller{{test: "NodeSlices", first: "real: networks without a name are taken for one"}},
	},
	{
		name: "argo-rollouts", module: "github.com/argoproj/argo-rollouts", new: "v1.10.1", nth: 3, wants: true,
		versions:    []string{"internal/controlplane"},
		definitions: "manifests/crds/*-crd.yaml",
		controllers: []controller{
			{test: "Rollout", first: "1 false alarm: the count of collisions"},
			{test: "Experiment", first: "cannot run: Check hung without a word"},
			{test: "AnalysisRun", first: "cannot run: Check hung without a word"},
		},
	},
	{
		name: "velero", module: "github.com/vmware-tanzu/velero", new: "v1.18.3", nth: 4, wants: true,
		definitions: "config/crd/v1/bases/*.yaml",
		controllers: []controller{
			{test: "Schedule", first: "silent"},
			{test: "BackupStorageLocation", first: "1 false alarm: writes that only change what Mask removes"},
			{test: "BackupSync", first: "silent"},
			{test: "DownloadRequest", first: "silent"},
		},
	},
	{
		name: "knative-serving", module: "knative.dev/serving", new: "v0.50.0", nth: 4, wants: true,
		definitions: "config/core/300-resources/*.yaml",
		controllers: []controller{
			{test: "Configuration", first: "1 false alarm: names that end in a generation"},
			{test: "Labeler", first: "real, and 2 false alarms: a label, and names that end in a generation"},
			{test: "Revision", first: "of the scenario: a status that the server refuses"},
			{test: "NamespaceCertificate", first: "silent"},
			{test: "ServerlessService", first: "cannot run: a lock is held during a request"},
			{test: "Certificate", first: "silent"},
		},
	},
	{
		name: "contour", module: "github.com/projectcontour/contour", new: "v1.33.8", nth: 4, wants: true,
		definitions:   "config/crd/standard/gateway.networking.k8s.io_gatewayclasses.yaml",
		definitionsOf: "sigs.k8s.io/gateway-api",
		controllers: []controller{
			{test: "GatewayClass", first: "silent"},
		},
	},
	{
		name: "kyverno", module: "github.com/kyverno/kyverno", new: "v1.19.1", nth: 4, wants: true,
		controllers: []controller{
			{test: "Certificates", first: "real: given up after 11 tries, of 5 s each"},
		},
	},
	{
		name: "gatekeeper", module: "github.com/open-policy-agent/gatekeeper/v3", new: "v3.23.1", nth: 4, wants: true,
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "ConstraintTemplateStatus", first: "silent"},
			{test: "ExpansionTemplateStatus", first: "silent"},
		},
	},
	{
		name: "trainer", module: "github.com/kubeflow/trainer/v2", new: "v2.0.0", nth: 4, wants: true,
		definitions: "manifests/base/crds/*_*.yaml",
		others:      map[string]string{"sigs.k8s.io/jobset": "config/components/crd/bases/*.yaml"},
		controllers: []controller{
			{test: "TrainJob", first: "real: complete by the JobSet of a namesake"},
			{test: "TrainingRuntime", first: "1 false alarm: hung, as a second incarnation was killed too"},
			{test: "ClusterTrainingRuntime", first: "1 false alarm: hung, as a second incarnation was killed too"},
		},
	},
	{
		name: "kuberay", module: "github.com/ray-project/kuberay/ray-operator", new: "v1.5.0", nth: 4, wants: true,
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "RayCluster", first: "real: two heads for ever, after an old cache"},
			{test: "RayJob", first: "2 false alarms: empty fields, and a status that says Complete"},
			{test: "RayService", first: "of the model: slow requests waited for each other"},
		},
	},
	{
		name: "approver-policy", module: "github.com/cert-manager/approver-policy", new: "v0.28.0", nth: 4,
		wants: true, below: "pkg",
		definitions: "deploy/crds/*.yaml",
		others: map[string]string{
			"github.com/cert-manager/cert-manager": "deploy/crds/cert-manager.io_certificaterequests.yaml"},
		controllers: []controller{
			{test: "CertificateRequests", first: "of the model: discovery without reviews"},
			{test: "CertificateRequestPolicies", first: "silent"},
		},
	},
	{
		name: "kro", module: "github.com/kubernetes-sigs/kro", new: "v0.9.4", nth: 4, wants: true,
		definitions: "helm/crds/*.yaml",
		controllers: []controller{
			{test: "ResourceGraphDefinition", first: "of the model: definitions in protobuf"},
			{test: "Instance", first: "silent"},
		},
	},
	{
		name: "cluster-api-operator", module: "sigs.k8s.io/cluster-api-operator", new: "v0.29.0", nth: 4, wants: true,
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "CoreProvider", first: "real: two ConfigMaps with versions"},
			{test: "InfrastructureProvider", first: "real: an observedGeneration that stays old"},
		},
	},
	{
		name: "cluster-api-kubeadm", module: "sigs.k8s.io/cluster-api", new: "v1.14.2", nth: 4, wants: true,
		definitions: "core/config/crd/bases/*.yaml",
		others:      map[string]string{"sigs.k8s.io/cluster-api": "bootstrap/kubeadm/config/crd/bases/*.yaml"},
		controllers: []controller{
			{test: "KubeadmConfig", first: "3 findings, real"},
			{test: "CRDMigrator", first: "of the model: definitions in protobuf"},
		},
	},
	{
		name: "helm-controller", module: "github.com/k3s-io/helm-controller", new: "v0.17.9", nth: 4, wants: true,
		definitions: "pkg/crds/yaml/generated/*.yaml",
		controllers: []controller{
			{test: "HelmChart", first: "silent"},
		},
	},
	{
		name: "knative-pkg", module: "knative.dev/pkg", new: "v0.0.0-20260727151759-521cb33b33dd", nth: 4, wants: true,
		controllers: []controller{
			{test: "Certificates", first: "silent"},
			{test: "Defaulting", first: "1 false alarm: two workers that wait as they were told"},
			{test: "Validation", first: "1 false alarm: two workers that wait as they were told"},
		},
	},
	{
		name: "dynamic-resource-allocation", module: "k8s.io/dynamic-resource-allocation", new: "v0.37.1", nth: 4,
		wants: true, controllers: []controller{
			{test: "ResourceSlices", first: "of the model: a timer that ends at its very moment"},
		},
	},
	{
		name: "kube-aggregator", module: "k8s.io/kube-aggregator", new: "v0.37.1", nth: 4, wants: true,
		controllers: []controller{
			{test: "AutoRegister", first: "of the model: no APIServices"},
			{test: "LocalAvailability", first: "of the model: no APIServices"},
		},
	},
	{
		name: "cluster-api-provider-aws", module: "sigs.k8s.io/cluster-api-provider-aws/v2", new: "v2.13.0", nth: 4,
		wants: true, definitions: "config/crd/bases/*_awsmanagedc*.yaml",
		others: map[string]string{"sigs.k8s.io/cluster-api": "config/crd/bases/cluster.x-k8s.io_clusters.yaml"},
		controllers: []controller{
			{test: "ManagedCluster", first: "silent"},
		},
	},
	{
		name: "mariadb-operator", module: "github.com/mariadb-operator/mariadb-operator", new: "v0.38.1", nth: 5,
		wants: true, definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "Backup", first: "of the scenario: a claim that outlives its Backup"},
			{test: "Restore", first: "of the scenario: an account that nobody needs any more"},
		},
	},
	{
		name: "spark-operator", module: "github.com/kubeflow/spark-operator/v2", new: "v2.4.0", nth: 5, wants: true,
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "SparkConnect", first: "silent"},
			{test: "MutatingWebhookConfiguration", first: "silent"},
			{test: "ValidatingWebhookConfiguration", first: "silent"},
		},
	},
	{
		name: "frr-k8s", module: "github.com/metallb/frr-k8s", new: "v0.0.21", nth: 5, wants: true,
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "NodeStateCleaner", first: "silent"},
			{test: "BGPSessionState", first: "silent"},
		},
	},
	{
		name: "vault-secrets-operator", module: "github.com/hashicorp/vault-secrets-operator", new: "v0.10.0", nth: 5,
		wants: true, definitions: "chart/crds/*.yaml",
		controllers: []controller{
			{test: "SecretTransformation", first: "silent"},
			{test: "VaultAuth", first: "of the wiring: a definition was missing"},
		},
	},
	{
		name: "kubernetes-ingress-controller", module: "github.com/kong/kubernetes-ingress-controller/v3",
		new: "v3.4.0", nth: 5, wants: true,
		definitions:   "config/crd/standard/gateway.networking.k8s.io_gatewayclasses.yaml",
		definitionsOf: "sigs.k8s.io/gateway-api",
		controllers: []controller{
			{test: "GatewayClass", first: "silent"},
		},
	},
	{
		name: "kubernetes-components", module: "k8s.io/kubernetes", new: "v1.37.1", nth: 5, wants: true,
		versions: []string{"internal/controlplane"},
		controllers: []controller{
			{test: "APIServerLeases", first: "silent"},
			{test: "SystemNamespaces", first: "silent"},
			{test: "DefaultServiceCIDR", first: "silent"},
			{test: "ClusterAuthenticationTrust", first: "real: what others add is overwritten"},
			{test: "PriorityAndFairness", first: "silent"},
			{test: "NodeLease", first: "silent"},
			{test: "Scheduler", first: "silent"},
			{test: "SchedulerPreemption", first: "silent"},
			{test: "SchedulerDevices", first: "of the scenario: nobody gave claims back"},
			{test: "SchedulerVolumes", first: "silent"},
		},
	},
	{
		name: "kube-aggregator-remote", module: "k8s.io/kube-aggregator", new: "v0.37.1", nth: 5, wants: true,
		controllers: []controller{{test: "RemoteAvailability", first: "of the model: no APIServices"}},
	},
	{
		name: "virtual-kubelet", module: "github.com/virtual-kubelet/virtual-kubelet", new: "v1.14.1", nth: 5,
		wants: true, controllers: []controller{
			{test: "Node", first: "silent"},
		},
	},
	{
		name: "cluster-api-extensions", module: "sigs.k8s.io/cluster-api", new: "v1.14.2", nth: 5, wants: true,
		definitions: "core/config/crd/bases/runtime.cluster.x-k8s.io_extensionconfigs.yaml",
		controllers: []controller{
			{test: "ExtensionConfig", first: "silent"},
		},
	},
	{
		name: "karpenter-nodes", module: "sigs.k8s.io/karpenter", new: "v1.14.1", nth: 5, outside: true,
		definitions: "kwok/*/crds/*.yaml",
		controllers: []controller{
			{test: "NodeClaimHydration", first: "silent"},
			{test: "NodeHydration", first: "silent"},
			{test: "RegistrationHealth", first: "silent"},
			{test: "GarbageCollection", first: "silent"},
			{test: "Counter", first: "silent"},
			{test: "NodeOverlay", first: "silent"},
			{test: "CapacityBuffer", first: "silent"},
		},
	},
	{
		name: "machine-api-vsphere", module: "github.com/openshift/machine-api-operator",
		new: "v0.2.1-0.20260226113419-88465550a74b", nth: 5, wants: true,
		versions:    []string{"internal/controlplane"},
		definitions: "install/*machineset.Default.crd.yaml",
		controllers: []controller{
			{test: "MachineSet", first: "silent"},
		},
	},
	{
		name: "cloud-provider-vsphere", module: "k8s.io/cloud-provider-vsphere", new: "v1.32.2", nth: 5, wants: true,
		controllers: []controller{
			{test: "IPAddressAllocation", first: "silent"},
		},
	},
	{
		name: "crossplane", module: "github.com/crossplane/crossplane/v2", new: "v2.2.0", nth: 6, wants: true,
		definitions: "cluster/crds/*.yaml",
		controllers: []controller{
			{test: "ManagedResourceDefinition", first: "of the model: no embedded objects"},
			{test: "Composition", first: "of the model: no embedded objects"},
			{test: "CompositionRevision", first: "of the model: no embedded objects"},
		},
	},
	{
		name: "crossplane-runtime", module: "github.com/crossplane/crossplane-runtime/v2", new: "v2.2.0", nth: 6,
		outside: true,
		controllers: []controller{
			{test: "Managed", first: "silent"},
		},
	},
	{
		name: "koordinator", module: "github.com/koordinator-sh/koordinator", new: "v1.8.0", nth: 6, wants: true,
		versions:    []string{"internal/controlplane"},
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "NodeSLO", first: "silent"},
			{test: "NodeMetric", first: "silent"},
			{test: "QuotaProfile", first: "silent"},
		},
	},
	{
		name: "tekton-triggers", module: "github.com/tektoncd/triggers", new: "v0.32.0", nth: 6, wants: true,
		definitions: "config/300-*.yaml",
		controllers: []controller{
			{test: "EventListener", first: "cannot run: a goroutine of an init function answers in its channels"},
		},
	},
	{
		name: "cluster-api-ipam", module: "sigs.k8s.io/cluster-api-ipam-provider-in-cluster", new: "v1.0.1", nth: 6,
		wants: true, definitions: "config/crd/bases/*.yaml",
		others: map[string]string{
			"sigs.k8s.io/cluster-api": "config/crd/bases/ipam.cluster.x-k8s.io_*.yaml",
		},
		controllers: []controller{
			{test: "InClusterIPPool", first: "false: a pool in use was deleted"},
			{test: "GlobalInClusterIPPool", first: "false: a pool in use was deleted"},
		},
	},
	{
		name: "solr-operator", module: "github.com/apache/solr-operator", new: "v0.9.1", nth: 6, wants: true,
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "SolrPrometheusExporter", first: "silent"},
		},
	},
	{
		name: "notification-controller", module: "github.com/fluxcd/notification-controller", new: "v1.6.0", nth: 6,
		wants: true, definitions: "config/crd/bases/*receivers.yaml",
		controllers: []controller{
			{test: "Receiver", first: "silent"},
		},
	},
	{
		name: "scheduler-plugins", module: "sigs.k8s.io/scheduler-plugins", new: "v0.33.5", nth: 6, wants: true,
		versions:    []string{"internal/controlplane"},
		definitions: "config/crd/bases/*.yaml",
		controllers: []controller{
			{test: "PodGroup", first: "silent"},
			{test: "ElasticQuota", first: "silent"},
		},
	},
	{
		name: "issuer-lib", module: "github.com/cert-manager/issuer-lib", new: "v0.9.0", nth: 6, wants: true,
		definitions: "internal/testapi/crds/*_testissuers.yaml",
		controllers: []controller{
			{test: "Issuer", first: "silent"},
		},
	},
}
