package reconciletest

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func labelSet(m map[string]string) labels.Set { return m }

func orOne(p **int32) { orDefault(p, 1) }

// orDefault fills in a field that is not set.
func orDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func orValue[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func podRules() *rules {
	return &rules{
		new: func() object { return &corev1.Pod{} }, generation: true, returnDeleted: true,
		statusReset: [][]any{{"metadata", "deletionTimestamp"}, {"metadata", "ownerReferences"}},
		defaults:    func(o object) { defaultPod(&o.(*corev1.Pod).Spec) },
		onCreate: func(o object) {
			p := o.(*corev1.Pod)
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosOf(p.Spec)}
		},
		onStatus: func(o, old object) {
			p, was := o.(*corev1.Pod), old.(*corev1.Pod)
			p.DeletionTimestamp, p.OwnerReferences = nil, was.OwnerReferences
			orValue(&p.Status.QOSClass, was.Status.QOSClass)
		},
		validate: func(o, old object) field.ErrorList {
			p := o.(*corev1.Pod)
			errs := validatePodSpec(p.Spec, field.NewPath("spec"))
			if was, ok := old.(*corev1.Pod); ok {
				errs = append(errs, append(validatePodUpdate(p, was), validateEnded(p, was)...)...)
				errs = append(errs, immutable(value{"status.qosClass", was.Status.QOSClass, p.Status.QOSClass})...)
			}
			return errs
		},
		beyond: func(o object) string {
			p := o.(*corev1.Pod)
			return templateBeyond(corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec})
		},
		fields: func(o object) fields.Set {
			p := o.(*corev1.Pod)
			return fields.Set{
				"spec.nodeName": p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy),
				"spec.schedulerName": p.Spec.SchedulerName, "spec.serviceAccountName": p.Spec.ServiceAccountName,
				"spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork), "status.phase": string(p.Status.Phase),
				"status.podIP": p.Status.PodIP, "status.nominatedNodeName": p.Status.NominatedNodeName,
			}
		},
		// A pod that runs on a node is deleted when its kubelet says that it has ended, by a deletion without time.
		grace: func(o object, opts *metav1.DeleteOptions) {
			p := o.(*corev1.Pod)
			period := int64(0)
			switch {
			case p.Spec.NodeName == "", p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
			case opts.GracePeriodSeconds != nil:
				period = *opts.GracePeriodSeconds
			case p.Spec.TerminationGracePeriodSeconds != nil:
				period = *p.Spec.TerminationGracePeriodSeconds
			}
			if period < 0 {
				period = 1
			}
			opts.GracePeriodSeconds = &period
		},
	}
}

// defaultPod fills in what a pod leaves open: what a template does, and more.
func defaultPod(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		r := &spec.Containers[i].Resources
		for name, limit := range r.Limits { // what a container may have it asks for
			if _, ok := r.Requests[name]; !ok {
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = limit
			}
		}
	}
	defaultPodSpec(spec)
	defaultHostPorts(spec)
	orDefault(&spec.EnableServiceLinks, true)
}

// qosOf says how a pod is treated when its node runs out of something: Guaranteed if every container asks for as much
// processor and memory as it may have, BestEffort if none asks for any.
func qosOf(spec corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, bestEffort := true, true
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			if request.Sign() > 0 || limit.Sign() > 0 {
				bestEffort = false
			}
			if limit.Sign() <= 0 || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case bestEffort:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// validatePodUpdate refuses what cannot change in a pod: of what is modelled of the spec, all but images.
func validatePodUpdate(p, was *corev1.Pod) field.ErrorList {
	spec, more := field.NewPath("spec"), "pod updates may not add or remove containers"
	switch {
	case len(p.Spec.Containers) != len(was.Spec.Containers):
		return field.ErrorList{field.Forbidden(spec.Child("containers"), more)}
	case len(p.Spec.InitContainers) != len(was.Spec.InitContainers):
		return field.ErrorList{field.Forbidden(spec.Child("initContainers"), more)}
	}
	is := p.Spec.DeepCopy()
	for i := range is.Containers {
		is.Containers[i].Image = was.Spec.Containers[i].Image
	}
	for i := range is.InitContainers {
		is.InitContainers[i].Image = was.Spec.InitContainers[i].Image
	}
	if apiequality.Semantic.DeepEqual(*is, was.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(spec,
		"pod updates may not change fields other than `spec.containers[*].image`,"+
			"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "+
			"existing "+
			"tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)")}
}

// validateEnded refuses a container that has ended, is not to start again, and is said not to have ended.
func validateEnded(p, was *corev1.Pod) (errs field.ErrorList) {
	for i, before := range was.Status.ContainerStatuses {
		end := before.State.Terminated
		again := p.Spec.RestartPolicy == corev1.RestartPolicyAlways ||
			p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && end != nil && end.ExitCode != 0
		for _, now := range p.Status.ContainerStatuses {
			if end != nil && !again && now.Name == before.Name && now.State.Terminated == nil {
				errs = append(errs, field.Forbidden(field.NewPath("status",
					"containerStatuses").Index(i).Child("state"),
					"may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}

// defaultHostPorts gives the ports of a pod in the network of its node the numbers that they have in the container. Pod
// templates are left as they are.
func defaultHostPorts(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for _, c := range containers {
			for i := range c.Ports {
				if spec.HostNetwork {
					orValue(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
				}
			}
		}
	}
}

func defaultStatefulSet(spec *appsv1.StatefulSetSpec) {
	orValue(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		orDefault(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.RollingUpdate != nil { // a type that was stated without it does without
		orDefault(&strategy.RollingUpdate.Partition, 0)
		orDefault(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	orDefault(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	orValue(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted,
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orValue(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled,
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orDefault(&spec.RevisionHistoryLimit, 10)
	for i := range spec.VolumeClaimTemplates { // of a fork: elsewhere they are refused
		claim := &spec.VolumeClaimTemplates[i]
		orDefault(&claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		orValue(&claim.Status.Phase, corev1.ClaimPending)
	}
	nameClaims(spec)
}

// nameClaims gives claim templates their kind, which is not stored, and which every answer has.
func nameClaims(spec *appsv1.StatefulSetSpec) {
	for i := range spec.VolumeClaimTemplates {
		spec.VolumeClaimTemplates[i].APIVersion, spec.VolumeClaimTemplates[i].Kind = "v1", "PersistentVolumeClaim"
	}
}
