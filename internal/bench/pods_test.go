package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A large cluster, as Kubernetes' own limits describe it: 150,000 pods on 5,000 nodes, here in 5,000 ReplicaSets of 30
// and 100 namespaces.
const (
	manyPods   = 150_000
	perOwner   = 30
	perNode    = 30
	namespaces = 100
)

// ownerUID is the UID of the ReplicaSet that the i-th pod belongs to.
func ownerUID(i int) types.UID {
	return types.UID(fmt.Sprintf("3b0e5c6e-72d5-4a38-9c1f-%012d", i/perOwner))
}

func podKey(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("team-%02d", i/perOwner%namespaces),
		Name: fmt.Sprintf("checkout-%06d-5f7d9c8b66-%05d", i/perOwner, i)}
}

// smallPod has what keys and indexes are made of.
func smallPod(i, version int) *corev1.Pod {
	key, controller := podKey(i), true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			UID:             types.UID(fmt.Sprintf("9d1c2f4e-0000-4000-8000-%012d", i)),
			ResourceVersion: strconv.Itoa(version),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: key.Name[:len(key.Name)-6], UID: ownerUID(i),
				Controller: &controller, BlockOwnerDeletion: &controller,
			}},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("ip-10-%d-%d-17.eu-central-1.compute.internal", i/perNode/256,
			i/perNode%256)},
	}
}

// realisticPod is a running pod as a server has it: 2.4 KB in protobuf, 3.8 KB in JSON.
func realisticPod(i, version int) *corev1.Pod {
	p := smallPod(i, version)
	created := metav1.NewTime(time.Date(2026, 11, 1, 12, 0, i%3600, 0, time.UTC))
	app := fmt.Sprintf("checkout-%06d", i/perOwner)
	p.CreationTimestamp, p.GenerateName = created, app+"-5f7d9c8b66-"
	p.Labels = map[string]string{
		"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "Helm",
		"pod-template-hash": "5f7d9c8b66",
	}
	p.Annotations = map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
		"checksum/config": strings.Repeat("0f1e2d3c", 8)}
	p.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", Time: &created,
			FieldsType: "FieldsV1", FieldsV1: fields(
				`{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:prometheus.io/port":{},` +
					`"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},` +
					`"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},` +
					`"k:{\"uid\":\"` + string(ownerUID(i)) +
					`\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{".":{}},` +
					`"f:image":{},"f:name":{},"f:ports":{".":{}},"f:resources":{".":{}}}},"f:dnsPolicy":{},` +
					`"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{}}}`)},
		{Manager: "kubelet", Operation: "Update", APIVersion: "v1", Time: &created, FieldsType: "FieldsV1",
			Subresource: "status", FieldsV1: fields(
				`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},` +
					`"f:status":{},` +
					`"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},` +
					`"f:startTime":{}}}`)},
	}
	grace, seconds, yes, no := int64(30), int64(300), true, false
	p.Spec.RestartPolicy, p.Spec.DNSPolicy, p.Spec.SchedulerName = corev1.RestartPolicyAlways, corev1.DNSClusterFirst,
		"default-scheduler"
	p.Spec.ServiceAccountName, p.Spec.TerminationGracePeriodSeconds, p.Spec.EnableServiceLinks = "checkout", &grace, &no
	p.Spec.Tolerations = []corev1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: &seconds},
		{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
	}
	token := fmt.Sprintf("kube-api-access-%05x", i*7919&0xfffff) // another one in each pod
	p.Spec.Volumes = []corev1.Volume{{Name: token,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	image := "registry.example.com/shop/checkout:v1.42.7"
	p.Spec.Containers = []corev1.Container{{
		Name: "app", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		TerminationMessagePath: "/dev/termination-log",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080,
			Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{
			{Name: "LOG_LEVEL", Value: "info"}, {Name: "DATABASE_HOST", Value: "postgres.shop.svc.cluster.local"},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"),
				corev1.ResourceMemory: resource.MustParse("512Mi")},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: token, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount",
			ReadOnly: true}},
	}}
	ip := fmt.Sprintf("10.%d.%d.%d", 128+i>>16, i>>8&255, i&255)
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "10.0.0.17", PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &created,
		QOSClass: corev1.PodQOSBurstable,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Ready: true, Started: &yes, Image: image,
			ImageID:     "registry.example.com/shop/checkout@sha256:" + strings.Repeat("9a8b7c6d", 8),
			ContainerID: fmt.Sprintf("containerd://%064x", i),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
		}},
	}
	for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: created})
	}
	return p
}

func fields(raw string) *metav1.FieldsV1 { return metav1.NewFieldsV1(raw) }
