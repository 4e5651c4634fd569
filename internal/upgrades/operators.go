package main

// operator is a program of others in two versions.
type operator struct {
	name string
	// program is the path of the package, and module that of its module.
	program, module string
	// definitions are files with CustomResourceDefinitions, as patterns in the folder of a module: the operator's,
	// or the one that definitionsOf names.
	definitions   []string
	definitionsOf string
	old, new      string
	// ours: what it depends on is taken in the versions of this module, if they are newer than its own. They are
	// compiled for the tests anyway. The old version is compiled with what the new one depends on.
	ours bool
	// version is the variable that the makefile of the operator sets to the version, less its v, when it links a
	// release: what an operator writes may have it, like the tag of an image.
	version string
	args    []string
	// files are in testdata: what the operator is to work on, each applied when the cluster is at rest after the last.
	files []string
	// needs are objects of which there have to be some when the old version is at rest: PLURAL.GROUP.
	needs []string
}

var prometheusOperator = []string{"--web.listen-address=127.0.0.1:0", "--kubelet-service=kube-system/kubelet",
	"--kubelet-endpointslice=true", "--kubelet-endpoints=false"}

// operators are the ones that are tried.
var operators = []operator{
	{
		name: "prometheus-operator", module: "github.com/prometheus-operator/prometheus-operator",
		program: "github.com/prometheus-operator/prometheus-operator/cmd/operator", old: "v0.84.0", new: "v0.85.0",
		ours: true, version: "github.com/prometheus/common/version.Version",
		definitions: []string{"example/prometheus-operator-crd/*.yaml"}, args: prometheusOperator,
		files: []string{"prometheus.yaml"}, needs: []string{"statefulsets.apps"},
	},
	{
		name: "prometheus-operator", module: "github.com/prometheus-operator/prometheus-operator",
		program: "github.com/prometheus-operator/prometheus-operator/cmd/operator", old: "v0.83.0", new: "v0.84.0",
		ours: true, version: "github.com/prometheus/common/version.Version",
		definitions: []string{"example/prometheus-operator-crd/*.yaml"},
		args:        append(prometheusOperator, "--feature-gates=PrometheusAgentDaemonSet=true"),
		files:       []string{"prometheus.yaml", "prometheus-agents.yaml"},
		needs:       []string{"statefulsets.apps", "daemonsets.apps"},
	},
	{
		name: "cloud-on-k8s", module: "github.com/elastic/cloud-on-k8s/v3",
		program: "github.com/elastic/cloud-on-k8s/v3/cmd", old: "v3.4.0", new: "v3.5.0",
		version:     "github.com/elastic/cloud-on-k8s/v3/pkg/about.version",
		definitions: []string{"config/crds/v1/all-crds.yaml"},
		args: []string{"manager", "--operator-namespace=elastic-system", "--metrics-port=0",
			"--enable-leader-election=false", "--disable-telemetry"},
		files: []string{"elastic.yaml"},
		needs: []string{"deployments.apps", "statefulsets.apps", "daemonsets.apps"},
	},
	{
		name: "kro", module: "github.com/kubernetes-sigs/kro", program: "github.com/kubernetes-sigs/kro/cmd/controller",
		old: "v0.9.3", new: "v0.9.4", definitions: []string{"helm/crds/*.yaml"},
		args:  []string{"--metrics-bind-address=0", "--health-probe-bind-address=0"},
		files: []string{"kro.yaml", "kro-instances.yaml"}, needs: []string{"deployments.apps"},
	},
	{
		name: "external-snapshotter", module: "github.com/kubernetes-csi/external-snapshotter/v8",
		program: "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
		old:     "v8.6.0", new: "v8.7.0",
		ours:          true,
		definitions:   []string{"config/crd/*.k8s.io_*.yaml"},
		definitionsOf: "github.com/kubernetes-csi/external-snapshotter/client/v8",
		args:          []string{"--kubeconfig={kubeconfig}"},
		files:         []string{"snapshots.yaml"}, needs: []string{"volumesnapshotcontents.snapshot.storage.k8s.io"},
	},
}
