// Package cluster gives tests a real Kubernetes control plane on this machine: etcd, kube-apiserver with RBAC,
// kube-controller-manager with all its controllers (the garbage collector among them), and a stand-in for a node that
// makes pods Running and Ready. It needs the go command, and neither a container runtime nor a download of binaries.
//
//	func TestMine(t *testing.T) {
//		c := cluster.Shared(t)
//		namespace := c.Namespace(t)
//		config, err := c.ServiceAccount(t.Context(), namespace, rules...)
//		... // run the controller with config, and make objects with c.Client()
//	}
//
// [Shared] is one cluster for all tests of a process, each in a namespace of its own. A test that stops, kills or
// restarts components, or that chooses the controllers, takes a cluster of its own from [New]. A program calls [Start].
// [Cluster.Apply] applies manifests, CustomResourceDefinitions and roles among them, and
// [Cluster.Config] can be that of the account in those manifests: the controller under test has their rights and no
// others. [Cluster.ServiceAccount] makes
// an account with rules of the test. [Cluster.Run] runs a binary, so that a test can kill and restart the controller as
// well.
//
// A cluster starts in about 5 seconds and takes about half a gigabyte of memory. It runs in real time. For most tests
// the server in memory of package reconciletest is the better one: it starts at once, in virtual time, and a test
// decides what fails.
//
// # The first build
//
// The first use on a machine compiles the control plane, of Kubernetes' own Go modules, and shows its progress. The
// sources are part of this package. The build takes about 12 minutes of CPU time: 2 minutes on 8 idle cores, 6 on 2. It
// leaves 190 MB in the user's cache folder (see [os.UserCacheDir]; on Linux ~/.cache/thermostat), up to 4 GB in the
// build cache of the go command, and 500 MB in its module cache. After that a use takes no time.
//
// The control plane is compiled again when a new version of this module brings other sources, and with another version
// of Go. In the first case the go command finds almost all of it in its cache, and takes half a minute. What no test
// has used for 30 days is removed by the next build.
//
// The go.mod, go.sum and vendor folder of the module under test play no part in this build and stay as they are.
//
// To build before the tests, as in CI or in an image, and to show the progress, which go test holds back until a
// package is done:
//
//	go run github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/assets
//
// In CI keep ~/.cache/thermostat between runs, by the hash of go.sum, say. With it no other cache is needed.
//
// # Versions of Kubernetes
//
// The newest version is the default. [Options].Version selects another minor version for one cluster, and the variable
// THERMOSTAT_KUBERNETES for all clusters whose Options name none, those of [Shared] included; so that all tests of an
// operator run against what its users have:
//
//	THERMOSTAT_KUBERNETES=1.33 go test ./...
//
// A version is a minor one: its patch version is chosen here, as is its etcd. An unknown version is an error that lists
// those that there are. Each is built when it is first asked for, like the newest, and kept beside it: 12 more minutes
// of CPU time and 190 MB. The node stand-in is the same for all.
//
//	           Kubernetes  etcd     streamed lists  bookmarks  consistent reads from the cache  shardSelector
//	1.37       1.37.1      3.7.0    yes             yes        yes                              ignored
//	1.36       1.36.4      3.6.8    yes             yes        yes                              ignored
//	1.35       1.35.4      3.6.6    yes             yes        yes                              ignored
//	1.34       1.34.4      3.6.5    yes             yes        yes                              ignored
//	1.33       1.33.13     3.5.24   no              yes        yes                              ignored
//
// The cells are measured by a test, which "make versions" runs on each.
//
// The server of 1.33 refuses a streamed list, and package informer lists by pages instead. No server selects by a
// shardSelector unless its feature gate ShardedListAndWatch, which is alpha, is switched on: it sends everything.
//
// # With envtest
//
// The same command prints a folder with etcd, kube-apiserver, kube-controller-manager and kubectl ([Assets] returns
// it). Tests that use envtest of controller-runtime find them there:
//
//	export KUBEBUILDER_ASSETS=$(go run github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/assets)
//
// # The node stand-in
//
// One Node is Ready. The stand-in binds each pod that has no node yet and reports it as Running and Ready at once; it
// ends pods that are deleted. It runs no container. Annotations of a pod, as in the template of its owner, change that:
//
//	standin/start-after: 2s          from bound to Running; "never" is a duration, too
//	standin/ready-after: 5s          from Running to Ready
//	standin/end-after: 30s           from the delete request to the end of the pod
//	standin/outcome: Failed          how the pod ends by itself: Failed or Succeeded
//	standin/outcome-after: 3s        from Running to that end; without it at once
//
// Package processnode has nodes that run the containers of pods as processes, and package network cuts and delays what
// goes between these.
//
// # Metrics
//
// With Options.Metrics the stand-in serves metrics.k8s.io for all pods that run, behind an APIService, as
// metrics-server does. What a container uses is what annotations of its pod say. A test sets the load by changing them:
//
//	standin/usage: cpu=250m,memory=64Mi    each container; a pod without it has no sample
//	standin/usage.web: cpu=1               the container web, instead of what standin/usage says
//
// A sample shows the annotations of the moment at which it is read. A pod gets those in the template of its owner, and
// a change of the template is a rollout; so a test patches the pods:
//
//	_, err := c.Client().CoreV1().Pods(namespace).Patch(ctx, pod, types.MergePatchType,
//		[]byte(`{"metadata":{"annotations":{"standin/usage":"cpu=700m"}}}`), metav1.PatchOptions{})
//
// [Cluster.Aggregate] lets a handler of the test serve other APIs, such as external.metrics.k8s.io.
//
// To take metrics.k8s.io away, delete the APIService v1beta1.metrics.k8s.io. [Cluster.Restart] of the node brings it
// back.
//
// # What it is not
//
// Pods run nothing, and nothing routes to a Service: there are no webhooks in pods, no logs and no exec. There is no
// scheduler: the stand-in takes each pod whose nodeSelector allows it, and minds neither resources nor taints. Linux is
// where it is tested. macOS should work, but for one thing:
// after kill -9 of the supervisor (not of the test) processes stay behind. On Windows the package compiles, and
// [Start] and [Assets] return [errors.ErrUnsupported].
//
// # Who ends what
//
//	test process  --stdin-->  controlplane supervise  --signals-->  etcd, apiserver, controller-manager, node, commands
//
// The supervisor ends all processes and removes its folder when its standard input ends. So nothing outlives the
// process that started it, even after kill -9, a timeout of go test, or a panic, and a call of Close is not needed for
// that.
//
// # Reading order
//
// cluster.go (New, Shared, Start), version.go and build.go with progress.go (the programs, built once), programs.go
// (programs of other modules, for tests), supervisor.go and process.go (who starts and ends what), component.go and
// etcd.go (stop, kill and restart a part), namespace.go, serviceaccount.go, apply.go, binding.go and aggregate.go (what
// a test makes), system_unix.go and system_other.go.
package cluster
