package main

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

const (
	container = "etcd"
	dataDir   = "/var/lib/etcd/data"
	// The annotations of a word: whether the member may begin, and which version its pod has.
	wordNote    = "etcd.example.com/word"
	versionNote = "etcd.example.com/version"
)

func (r *call) labels() map[string]string {
	return map[string]string{v1.ClusterLabel: r.cluster.Name, "app.kubernetes.io/name": "etcd"}
}

// host is how a member is found: by a name that outlives its pod or, without names, by its pod's address. Empty: the
// pod has none yet.
func (r *call) host(member, podIP string) string {
	if r.addresses {
		return podIP
	}
	return member + "." + r.cluster.Name + "." + r.cluster.Namespace + ".svc"
}

func (r *call) peerURL(host string) string { return scheme(r.cluster) + host + ":2380" }

func clientURL(peerURL string) string { return strings.TrimSuffix(peerURL, ":2380") + clientPort }

// wanted is the version that the cluster is to have.
func (r *call) wanted() string { return string(cmp.Or(r.cluster.Spec.Version, r.version)) }

func (r *call) image(v plan.Version) string { return r.cluster.Spec.Image + ":v" + v.String() }

// frame makes what the cluster has once: two Services and a PodDisruptionBudget. The name NAME-client has the addresses
// of the members that are ready, of which etcd's clients take one; NAME gives the members their names, ready or not.
func (r *call) frame(ctx context.Context) error {
	if r.cluster.Spec.Paused {
		return nil
	}
	name, namespace := r.cluster.Name, r.cluster.Namespace
	port := func(name string, number int32) *corev1ac.ServicePortApplyConfiguration {
		return corev1ac.ServicePort().WithName(name).WithPort(number).WithTargetPort(intstr.FromInt32(number)).
			WithProtocol(corev1.ProtocolTCP)
	}
	peers := corev1ac.Service(name, namespace).WithLabels(r.labels()).WithSpec(corev1ac.ServiceSpec().
		WithClusterIP(corev1.ClusterIPNone).WithPublishNotReadyAddresses(true).WithSelector(r.labels()).
		WithPorts(port("client", 2379), port("peer", 2380)))
	clients := corev1ac.Service(name+"-client", namespace).WithLabels(r.labels()).WithSpec(corev1ac.ServiceSpec().
		WithClusterIP(corev1.ClusterIPNone).WithSelector(r.labels()).WithPorts(port("client", 2379)))
	for _, service := range []*corev1ac.ServiceApplyConfiguration{peers, clients} {
		seen, _ := r.services.Cache.Get(informer.Key{Namespace: namespace, Name: *service.Name})
		if _, err := objects.ApplyOwned(ctx, r.owner, r.services.In(namespace), seen, service, lastWord,
			nil); err != nil {
			return err
		}
	}
	size := int(r.cluster.Spec.Size)
	budget := policyv1ac.PodDisruptionBudget(name, namespace).WithLabels(r.labels()).WithSpec(
		policyv1ac.PodDisruptionBudgetSpec().WithMaxUnavailable(intstr.FromInt(size - plan.Quorum(size))).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(r.labels())))
	seen, _ := r.budgets.Cache.Get(informer.KeyOf(r.cluster))
	_, err := objects.ApplyOwned(ctx, r.owner, r.budgets.In(namespace), seen, budget, lastWord, nil)
	return err
}

// word is what a member is told. Its data are a part of the environment of etcd, and its pod waits for them.
func (r *call) word(name string, mode plan.Verb, version plan.Version,
	data map[string]string) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(name, r.cluster.Namespace).WithLabels(r.labels()).WithAnnotations(
		map[string]string{wordNote: string(mode), versionNote: version.String()}).WithData(data)
}

func (r *call) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: r.cluster.Namespace, Labels: r.labels(),
		OwnerReferences: []metav1.OwnerReference{r.owner.Reference()}}
}

func (r *call) claim(name string) *corev1.PersistentVolumeClaim {
	storage := r.cluster.Spec.Storage
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: r.meta(name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(storage.Size)}},
	}}
	if storage.ClassName != "" {
		claim.Spec.StorageClassName = &storage.ClassName
	}
	return claim
}

// pod is a member's pod. It has an address before etcd starts, which waits for the word.
func (r *call) pod(name string, version plan.Version) *corev1.Pod {
	host := r.host(name, "$(POD_IP)")
	env := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	c := corev1.Container{Name: container, Image: r.image(version), Command: []string{"/usr/local/bin/etcd"},
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}}}},
		Env: []corev1.EnvVar{
			{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: "status.podIP"}}},
			env("ETCD_NAME", name),
			env("ETCD_DATA_DIR", dataDir),
			env("ETCD_LISTEN_PEER_URLS", r.peerURL("0.0.0.0")),
			env("ETCD_LISTEN_CLIENT_URLS", clientURL(r.peerURL("0.0.0.0"))),
			env("ETCD_INITIAL_ADVERTISE_PEER_URLS", r.peerURL(host)),
			env("ETCD_ADVERTISE_CLIENT_URLS", clientURL(r.peerURL(host))),
			env("ETCD_INITIAL_CLUSTER_TOKEN", string(r.cluster.UID)),
			// Etcd replays its log from the last snapshot on. A log that reaches back to 3.5 cannot be replayed by 3.7.
			env("ETCD_SNAPSHOT_COUNT", "2000"),
			env("ETCD_QUOTA_BACKEND_BYTES", strconv.FormatInt(r.cluster.Spec.QuotaBytes, 10)),
		},
		Ports: []corev1.ContainerPort{{Name: "client", ContainerPort: 2379},
			{Name: "peer", ContainerPort: 2380}},
		// The last lines of the log tell an empty disk from other failures.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,

		VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/var/lib/etcd"}},
		StartupProbe:   probe(2, 150),
		ReadinessProbe: probe(2, 2),
		LivenessProbe:  probe(10, 3),
	}
	spec := confined(c)
	spec.Hostname, spec.Subdomain = name, r.cluster.Name
	spec.Volumes = []corev1.Volume{claimVolume("data", name)}
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: r.labels()}}}}}}
	pod := &corev1.Pod{ObjectMeta: r.meta(name), Spec: spec}
	if r.cluster.Spec.TLS != nil {
		r.withTLS(pod)
	}
	return pod
}

// confined is a pod that has no rights, neither on its node nor at the API server.
func confined(c corev1.Container) corev1.PodSpec {
	user := int64(65532)
	c.SecurityContext = confinement()
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), Containers: []corev1.Container{c},
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: &user, RunAsGroup: &user,
			FSGroup: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
	}
}

func confinement() *corev1.SecurityContext {
	return &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

// probe asks the member alone, and passes also while it has no leader or the alarm NOSPACE: clients that delete keys
// must reach it, and a restart would help with neither.
func probe(period, failures int32) *corev1.Probe {
	const path = "/health?serializable=true&exclude=NOSPACE"
	return &corev1.Probe{PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 2,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(2379)}}}
}
