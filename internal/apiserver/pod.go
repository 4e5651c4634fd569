package apiserver

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
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
		defaults: func(o object) {
			p := o.(*corev1.Pod)
			defaultPodSpec(&p.Spec)
			orDefault(&p.Spec.EnableServiceLinks, true)
		},
		onCreate: func(o object) {
			p := o.(*corev1.Pod)
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
		},
		onStatus: func(o, old object) {
			p, was := o.(*corev1.Pod), old.(*corev1.Pod)
			p.DeletionTimestamp, p.OwnerReferences = nil, was.OwnerReferences
			orValue(&p.Status.QOSClass, was.Status.QOSClass)
		},
		validate: func(o, old object) field.ErrorList {
			p := o.(*corev1.Pod)
			errs := validateContainers(p.Spec, field.NewPath("spec"))
			if was, ok := old.(*corev1.Pod); ok {
				errs = append(errs, validatePodUpdate(p, was)...)
			}
			return errs
		},
		fields: func(o object) fields.Set {
			p := o.(*corev1.Pod)
			return fields.Set{
				"spec.nodeName": p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy), "spec.schedulerName": p.Spec.SchedulerName,
				"spec.serviceAccountName": "", "spec.hostNetwork": "false",
				"status.phase": string(p.Status.Phase), "status.podIP": "", "status.nominatedNodeName": "",
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

// validatePodUpdate refuses what cannot change in a pod: of what is modelled of the spec, all but images.
func validatePodUpdate(p, was *corev1.Pod) field.ErrorList {
	is := p.Spec.DeepCopy()
	for i := range is.Containers {
		if len(is.Containers) == len(was.Spec.Containers) {
			is.Containers[i].Image = was.Spec.Containers[i].Image
		}
	}
	if apiequality.Semantic.DeepEqual(*is, was.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than `spec.containers[*].image`,"+
		"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
		"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)")}
}

func validateContainers(spec corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	for i, c := range spec.Containers {
		at := path.Child("containers").Index(i)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case slices.ContainsFunc(spec.Containers[:i], func(other corev1.Container) bool { return other.Name == c.Name }):
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		for _, message := range validation.IsDNS1123Label(c.Name) {
			if c.Name != "" {
				errs = append(errs, field.Invalid(at.Child("name"), c.Name, message))
			}
		}
		if c.Image == "" {
			errs = append(errs, field.Required(at.Child("image"), ""))
		}
	}
	return errs
}

func defaultPodSpec(spec *corev1.PodSpec) {
	orValue(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orValue(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orValue(&spec.SchedulerName, corev1.DefaultSchedulerName)
	orDefault(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	orDefault(&spec.SecurityContext, corev1.PodSecurityContext{})
	for i := range spec.Containers {
		c := &spec.Containers[i]
		orValue(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
		orValue(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
		orValue(&c.ImagePullPolicy, pullPolicy(c.Image))
		for j := range c.Ports {
			orValue(&c.Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func defaultStrategy(spec *appsv1.DeploymentSpec) {
	orValue(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		orDefault(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		orDefault(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orDefault(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	orDefault(&spec.RevisionHistoryLimit, 10)
	orDefault(&spec.ProgressDeadlineSeconds, 600)
}

func defaultStatefulSet(spec *appsv1.StatefulSetSpec) {
	orValue(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	orValue(&spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		orDefault(&spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		orDefault(&spec.UpdateStrategy.RollingUpdate.Partition, 0)
		orDefault(&spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	orDefault(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	orValue(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orValue(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orDefault(&spec.RevisionHistoryLimit, 10)
}

// pullPolicy is Always for an image whose tag may mean something else tomorrow.
func pullPolicy(image string) corev1.PullPolicy {
	name := image[strings.LastIndex(image, "/")+1:]
	name, digest, _ := strings.Cut(name, "@")
	_, tag, tagged := strings.Cut(name, ":")
	if digest == "" && (!tagged || tag == "latest") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
