// Package processnode gives a cluster of package cluster nodes that run the containers of pods as processes on this
// machine. A test or a demo of an operator then has real databases to operate: each pod has an address of its own, a
// process can be killed and frozen, a disk and a node can be lost.
//
//	c := cluster.New(t, cluster.Options{DisableNode: true})
//	image, err := processnode.BuildModules(ctx, nil, "etcd", map[string]string{
//		"etcd":    "go.etcd.io/etcd/server/v3@v3.6.16",
//		"etcdctl": "go.etcd.io/etcd/etcdctl/v3@v3.6.16",
//	})
//	pool := processnode.New(t, c, processnode.Options{
//		Nodes: 3, AllPods: true, Images: map[string]processnode.Image{"etcd:3.6": image},
//	})
//	... // create pods, or run the operator that does
//	err = pool.Kill(ctx, types.NamespacedName{Namespace: "default", Name: "etcd-0"}, "etcd")
//
// The nodes are a part of the process that calls [Start]. The processes run below the supervisor of the cluster, which
// ends them with this process, even after kill -9. Only Linux gives each pod an address; elsewhere [Start] returns
// [errors.ErrUnsupported].
//
// # Which pods
//
// A pool runs every pod that is bound to one of its nodes. It also schedules pods, in one of two ways:
//
//   - Beside the node stand-in of the cluster, it binds the pods whose nodeSelector names one of its nodes by
//     kubernetes.io/hostname. The stand-in takes all other pods.
//   - In a cluster without the stand-in ([cluster.Options.DisableNode]) it can bind all pods: [Options.AllPods].
//
// The scheduler honours nodeSelector, required nodeAffinity, required podAntiAffinity by hostname, taints, cordons,
// scheduling gates, and the node of a bound claim. Of the nodes that remain it takes the one with the fewest pods. It
// ignores preferences, topologySpreadConstraints and resources. It does not preempt.
//
// # What a container is
//
// A container is a process of a program on this machine. There is no isolation: the process sees the files, processes
// and network of this machine. It gets its own environment, address and folders.
//
// Each pod has an address in 127.0.0.0/8 that no other pod on this machine has, and keeps it for its whole life. A
// process listens on it: 0.0.0.0 in command, args and env is replaced by it, and the downward API provides it. A
// process that listens on 0.0.0.0 by another way, such as :8080, takes the port from all other pods. Names do not
// resolve, and Services have no endpoints: the API server refuses loopback addresses in them. In a real cluster, a
// member of a StatefulSet has a DNS name that outlives its pod. Here it has an address that does: a pod gets the
// address of the previous pod with the same hostname, subdomain and namespace.
//
// A volume is a folder, and the process cannot see it at its mountPath. So the node replaces each mountPath by the path
// of the folder in command, args, env and workingDir, and in the commands of probes and hooks: the argument
// --data-dir=/var/lib/etcd/data becomes --data-dir=FOLDER/data. A mountPath is replaced at the beginning of a word and
// after a character that cannot be part of a path. It is not replaced in the content of files. A path below no
// mountPath is a path of this machine.
//
// # What a pod's field does here
//
//	image                    a name in Options.Images; others: ErrImagePull, then ImagePullBackOff. A change of the
//	                         image restarts the container, as the kubelet does
//	command, args            the first word's last element is a program of the image; $(NAME) is expanded
//	env, envFrom             literals, ConfigMaps, Secrets, fieldRef. PATH, HOME, HOSTNAME and KUBERNETES_SERVICE_HOST
//	                         and _PORT are set; the environment of this process is not passed on
//	workingDir               a folder in one of the container's volumes. Default: a folder that is empty at each start
//	initContainers           one after the other, before the others
//	restartPolicy            with back-off: see Options.RestartBackOff
//	startupProbe, readinessProbe, livenessProbe
//	                         exec, httpGet and tcpSocket, with all their periods and thresholds
//	lifecycle                postStart and preStop: exec, httpGet and sleep
//	terminationGracePeriodSeconds
//	                         preStop, SIGTERM to the process and its children, SIGKILL at the end of the period
//	activeDeadlineSeconds    ends the pod as Failed
//	readinessGates           count for the condition Ready
//	hostname, subdomain      the variable HOSTNAME, and the address (see above)
//	configMap, secret, downwardAPI, projected
//	                         files that follow their objects within 2 seconds, all files of a volume at once; service
//	                         account tokens are renewed. rest.InClusterConfig does not find them: it reads /var/run
//	emptyDir                 a folder that lives as long as the pod
//	persistentVolumeClaim    of StorageClass "processnode": a folder on the pod's node that lives as long as the claim.
//	                         The controller manager binds the claim, and deletes what it has bound
//	subPath                  of each volume
//	nodeSelector, affinity, tolerations, schedulingGates
//	                         see above
//	terminationMessagePath   a file of this container; the path is replaced as a mountPath is, so it has to be in the
//	                         arguments or the environment of a process that writes to it
//	resources, ports, securityContext, readOnly, hostNetwork, dnsPolicy, priority
//	                         ignored
//	other fields that a container would notice
//	                         refused: the pod stays Pending, and an Event and the message of its containers name them
//
// Containers report states, exit codes, reasons, restarts and their last state as the kubelet does. "kubectl logs"
// works, with follow, previous and tail; "kubectl exec" does not: see [Pool.Exec].
//
// # Faults
//
//	Pool.Kill, Freeze, Thaw   SIGKILL, SIGSTOP and SIGCONT for a container
//	Pool.LoseDisk             a claim's folder is empty, and the processes that used it are killed
//	Node.Stop, Start          the node is lost, and comes back with its disks
//	Options.Network           pods are cut off from each other and from other processes, or reached late. Probes are
//	                          not: they do not go through the network. Processes must listen on 0.0.0.0 then
//
// # Reading order
//
// pool.go (Options, Start), image.go, node.go (the Node object, Stop), watch.go, schedule.go (which node), pod.go (one
// pod's life), report.go (its status), container.go (one process after the other), command.go and mount.go (how it is
// started), probe.go, volume.go and claim.go (its files), address.go, system_linux.go, system_other.go, network.go,
// unsupported.go, fault.go, kubelet.go (logs), event.go.
package processnode
