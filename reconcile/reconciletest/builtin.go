package reconciletest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
	pods       = corev1.SchemeGroupVersion.WithResource("pods")
)

// builtins are the built-in kinds that are modelled, each with what is special about it; modelled.go has the fields
// that they may set.
func builtins() []Resource {
	core, apps := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion
	one := func(gv schema.GroupVersion, name, kind string, status bool, r *rules) Resource {
		return Resource{GroupVersionResource: gv.WithResource(name), Kind: kind, Status: status, builtin: r}
	}
	namespace := one(core, "namespaces", "Namespace", true, namespaceRules())
	node := one(core, "nodes", "Node", true, nodeRules())
	mutating := one(mutatingConfigurations.GroupVersion(), mutatingConfigurations.Resource,
		"MutatingWebhookConfiguration", false, mutatingRules())
	validating := one(validatingConfigurations.GroupVersion(), validatingConfigurations.Resource,
		"ValidatingWebhookConfiguration", false, validatingRules())
	namespace.ClusterScoped, node.ClusterScoped = true, true
	mutating.ClusterScoped, validating.ClusterScoped = true, true
	all := []Resource{
		namespace, node, mutating, validating,
		one(core, "pods", "Pod", true, podRules()),
		one(core, "configmaps", "ConfigMap", false, configMapRules()),
		one(core, "secrets", "Secret", false, secretRules()),
		one(core, "serviceaccounts", "ServiceAccount", false,
			&rules{new: func() object { return &corev1.ServiceAccount{} }, returnDeleted: true}),
		one(core, "events", "Event", false, eventRules()),
		one(core, "services", "Service", true, serviceRules()),
		one(apps, "replicasets", "ReplicaSet", true, replicaSetRules()),
		one(apps, "deployments", "Deployment", true, deploymentRules()),
		one(apps, "statefulsets", "StatefulSet", true, statefulSetRules()),
		one(core, "persistentvolumeclaims", "PersistentVolumeClaim", true, claimRules()),
		one(batchv1.SchemeGroupVersion, "jobs", "Job", true, jobRules()),
		one(batchv1.SchemeGroupVersion, "cronjobs", "CronJob", true, cronJobRules()),
		one(autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", "HorizontalPodAutoscaler", true,
			autoscalerRules()),
		one(policyv1.SchemeGroupVersion, "poddisruptionbudgets", "PodDisruptionBudget", true, disruptionBudgetRules()),
		one(coordinationv1.SchemeGroupVersion, "leases", "Lease", false, leaseRules()),
		one(core, "resourcequotas", "ResourceQuota", true, resourceQuotaRules()),
		one(core, "limitranges", "LimitRange", false, limitRangeRules()),
		one(networkingv1.SchemeGroupVersion, "networkpolicies", "NetworkPolicy", false, networkPolicyRules()),
		one(roleBindings.GroupVersion(), "rolebindings", "RoleBinding", false, roleBindingRules()),
	}
	for i := range all {
		names := kubectlNames[all[i].GroupVersionResource.Resource]
		all[i].ShortNames, all[i].Categories = names.short, names.categories
	}
	return all
}

// kubectlNames are what kubectl calls a resource, beside its name.
var kubectlNames = map[string]struct{ short, categories []string }{
	"namespaces": {short: []string{"ns"}}, "nodes": {short: []string{"no"}}, "configmaps": {short: []string{"cm"}},
	"serviceaccounts": {short: []string{"sa"}},
	"events":          {short: []string{"ev"}}, "services": {[]string{"svc"}, []string{"all"}},
	"pods":        {[]string{"po"}, []string{"all"}},
	"replicasets": {[]string{"rs"}, []string{"all"}},
	"deployments": {[]string{"deploy"}, []string{"all"}}, "statefulsets": {[]string{"sts"}, []string{"all"}},
	"mutatingwebhookconfigurations":   {categories: []string{"api-extensions"}},
	"validatingwebhookconfigurations": {categories: []string{"api-extensions"}},
	"persistentvolumeclaims":          {short: []string{"pvc"}}, "jobs": {categories: []string{"all"}},
	"cronjobs":                 {[]string{"cj"}, []string{"all"}},
	"horizontalpodautoscalers": {[]string{"hpa"}, []string{"all"}}, "poddisruptionbudgets": {short: []string{"pdb"}},
	"resourcequotas": {short: []string{"quota"}}, "limitranges": {short: []string{"limits"}},
	"networkpolicies": {short: []string{"netpol"}},
}

// finalize is the subresource of namespaces by which their finalizers of the spec are taken off.
const finalize = "finalize"

func namespaceRules() *rules {
	const finalizer = corev1.FinalizerKubernetes
	return &rules{
		new: func() object { return &corev1.Namespace{} }, returnDeleted: true,
		defaults: func(o object) {
			// So that a selector can choose a namespace by its name.
			if n := o.(*corev1.Namespace); n.Name != "" {
				if n.Labels == nil {
					n.Labels = map[string]string{}
				}
				n.Labels[corev1.LabelMetadataName] = n.Name
			}
		},
		onCreate: func(o object) {
			n := o.(*corev1.Namespace)
			n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(n.Spec.Finalizers, finalizer) {
				n.Spec.Finalizers = append(n.Spec.Finalizers, finalizer)
			}
		},
		terminate: func(o object) bool {
			n := o.(*corev1.Namespace)
			n.Status.Phase = corev1.NamespaceTerminating
			return len(n.Spec.Finalizers) > 0
		},
		onUpdate: func(o, old object) { o.(*corev1.Namespace).Spec = old.(*corev1.Namespace).Spec },
		validate: validateNamespace,
		fields: func(o object) fields.Set {
			return fields.Set{"status.phase": string(o.(*corev1.Namespace).Status.Phase), "name": o.GetName()}
		},
	}
}

// validateNamespace checks the phase, and the names of the finalizers in the spec: of those without a domain only
// Kubernetes' own are known.
func validateNamespace(o, old object) (errs field.ErrorList) {
	n, want := o.(*corev1.Namespace), corev1.NamespaceActive
	if n.DeletionTimestamp != nil {
		want = corev1.NamespaceTerminating
	}
	if n.Status.Phase != want {
		errs = append(errs, field.Invalid(field.NewPath("status", "Phase"), n.Status.Phase,
			fmt.Sprintf("may only be %q", want)))
	}
	known := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents,
		metav1.FinalizerDeleteDependents}
	for i, f := range n.Spec.Finalizers {
		name, path := string(f), field.NewPath("spec", "finalizers")
		if old != nil {
			path = path.Index(i)
		}
		for _, problem := range validation.IsQualifiedName(name) {
			errs = append(errs, field.Invalid(path, name, problem))
		}
		if !strings.Contains(name, "/") && !slices.Contains(known, name) {
			errs = append(errs, field.Invalid(path, name, "is no finalizer of Kubernetes, and has no domain"))
		}
	}
	return errs
}

func nodeRules() *rules {
	return &rules{
		new: func() object { return &corev1.Node{} }, statusAtCreation: true,
		onCreate: taintNew,
		fields: func(o object) fields.Set {
			return fields.Set{"spec.unschedulable": fmt.Sprint(o.(*corev1.Node).Spec.Unschedulable)}
		},
	}
}

// taintNew gives a new node the taint by which nothing runs there before somebody has found it to be ready. That is
// what the admission plugin TaintNodesByCondition of a real server does. It leaves other kinds alone.
func taintNew(o object) {
	node, ok := o.(*corev1.Node)
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if ok && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
}

func configMapRules() *rules {
	return &rules{
		new: func() object { return &corev1.ConfigMap{} },
		validate: func(o, old object) field.ErrorList {
			is := o.(*corev1.ConfigMap)
			was, _ := old.(*corev1.ConfigMap)
			errs, size := validateData("data", is.Data)
			more, binary := validateData("binaryData", is.BinaryData)
			errs = append(errs, more...)
			for key := range is.Data {
				if _, twice := is.BinaryData[key]; twice {
					errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key,
						"duplicate of key present in binaryData"))
				}
			}
			if size+binary > corev1.MaxSecretSize {
				errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
			}
			if was == nil || was.Immutable == nil || !*was.Immutable {
				return errs
			}
			return append(errs, unchanged(
				value{"immutable", was.Immutable, is.Immutable}, value{"data", was.Data, is.Data},
				value{"binaryData", was.BinaryData, is.BinaryData})...)
		},
	}
}

func secretRules() *rules {
	return &rules{
		new: func() object { return &corev1.Secret{} },
		defaults: func(o object) {
			if s := o.(*corev1.Secret); s.Type == "" {
				s.Type = corev1.SecretTypeOpaque
			}
			s := o.(*corev1.Secret)
			for k, v := range s.StringData {
				if s.Data == nil {
					s.Data = map[string][]byte{}
				}
				s.Data[k] = []byte(v)
			}
			s.StringData = nil
		},
		validate: func(o, old object) field.ErrorList {
			is := o.(*corev1.Secret)
			was, _ := old.(*corev1.Secret)
			errs, size := validateData("data", is.Data)
			if size > corev1.MaxSecretSize {
				errs = append(errs, field.TooLong(field.NewPath("data"), "", corev1.MaxSecretSize))
			}
			if was == nil {
				return errs
			}
			errs = append(errs, immutable(value{"type", was.Type, is.Type})...)
			if was.Immutable != nil && *was.Immutable {
				errs = append(errs, unchanged(value{"immutable", was.Immutable, is.Immutable},
					value{"data", was.Data, is.Data})...)
			}
			return errs
		},
		fields: func(o object) fields.Set { return fields.Set{"type": string(o.(*corev1.Secret).Type)} },
	}
}

// validateData says what is wrong with the keys of a ConfigMap or Secret, and how long its values are together.
func validateData[V string | []byte](name string, data map[string]V) (errs field.ErrorList, size int) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, message := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath(name).Key(key), key, message))
		}
		size += len(data[key])
	}
	return errs, size
}

func eventRules() *rules {
	return &rules{
		new: func() object { return &corev1.Event{} }, createOnUpdate: true, ownsNothing: true, metadataLast: true,
		validate: func(o, _ object) field.ErrorList {
			e := o.(*corev1.Event)
			if e.InvolvedObject.Namespace == "" && e.Namespace == metav1.NamespaceDefault ||
				e.InvolvedObject.Namespace == e.Namespace {
				return nil
			}
			return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"),
				e.InvolvedObject.Namespace, "does not match event.namespace")}
		},
		fields: func(o object) fields.Set {
			e := o.(*corev1.Event)
			source := e.Source.Component
			if source == "" {
				source = e.ReportingController
			}
			return fields.Set{
				"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
				"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
				"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
				"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
				"involvedObject.fieldPath":       e.InvolvedObject.FieldPath, "reason": e.Reason,
				"reportingComponent": e.ReportingController,
				"source":             source, "type": e.Type,
			}
		},
	}
}

func leaseRules() *rules {
	return &rules{
		new: func() object { return &coordinationv1.Lease{} }, createOnUpdate: true, conditionalUpdate: true,
		validate: func(o, _ object) field.ErrorList {
			spec, path := o.(*coordinationv1.Lease).Spec, field.NewPath("spec")
			var errs field.ErrorList
			if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
				errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
			}
			if n := spec.LeaseTransitions; n != nil && *n < 0 {
				errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *n,
					"must be greater than or equal to 0"))
			}
			return errs
		},
	}
}

func replicaSetRules() *rules {
	return &rules{
		new: func() object { return &appsv1.ReplicaSet{} }, generation: true,
		beyond: func(o object) string { return templateBeyond(o.(*appsv1.ReplicaSet).Spec.Template) },
		defaults: func(o object) {
			rs := o.(*appsv1.ReplicaSet)
			orOne(&rs.Spec.Replicas)
			defaultPodSpec(&rs.Spec.Template.Spec)
		},
		validate: func(o, old object) field.ErrorList {
			rs := o.(*appsv1.ReplicaSet)
			errs := validateWorkload(rs.Spec.Replicas, rs.Spec.MinReadySeconds, rs.Spec.Selector, rs.Spec.Template)
			errs = append(errs, validateReplicaSetStatus(rs.Status)...)
			if was, ok := old.(*appsv1.ReplicaSet); ok {
				errs = append(errs, immutable(value{"spec.selector", was.Spec.Selector, rs.Spec.Selector})...)
			}
			return errs
		},
		fields: func(o object) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(o.(*appsv1.ReplicaSet).Status.Replicas))}
		},
	}
}

func statefulSetRules() *rules {
	return &rules{
		new: func() object { return &appsv1.StatefulSet{} }, generation: true,
		beyond: func(o object) string { return templateBeyond(o.(*appsv1.StatefulSet).Spec.Template) },
		defaults: func(o object) {
			spec := &o.(*appsv1.StatefulSet).Spec
			orOne(&spec.Replicas)
			defaultPodSpec(&spec.Template.Spec)
			defaultStatefulSet(spec)
		},
		validate: func(o, old object) field.ErrorList {
			set := o.(*appsv1.StatefulSet)
			errs := validateWorkload(set.Spec.Replicas, set.Spec.MinReadySeconds, set.Spec.Selector, set.Spec.Template)
			errs = append(errs, validateStatefulSetStatus(set.Status)...)
			if was, ok := old.(*appsv1.StatefulSet); ok {
				errs = append(errs, immutable(value{"spec.serviceName", was.Spec.ServiceName, set.Spec.ServiceName},
					value{"spec.selector", was.Spec.Selector, set.Spec.Selector},
					value{"spec.podManagementPolicy", was.Spec.PodManagementPolicy, set.Spec.PodManagementPolicy},
					value{"spec.volumeClaimTemplates", was.Spec.VolumeClaimTemplates,
						set.Spec.VolumeClaimTemplates})...)
			}
			return errs
		},
	}
}

// value is a field before and after an update.
type value struct {
	path    string
	was, is any
}

// unchanged refuses changes to an object whose field immutable is set.
func unchanged(values ...value) (errs field.ErrorList) {
	for _, v := range values {
		if !apiequality.Semantic.DeepEqual(v.was, v.is) {
			errs = append(errs, field.Forbidden(field.NewPath(v.path), "field is immutable when `immutable` is set"))
		}
	}
	return errs
}

// immutable refuses changes to fields that never change.
func immutable(values ...value) (errs field.ErrorList) {
	for _, v := range values {
		if !apiequality.Semantic.DeepEqual(v.was, v.is) {
			errs = append(errs, field.Invalid(field.NewPath(v.path), v.is, "field is immutable"))
		}
	}
	return errs
}

func validateWorkload(replicas *int32, minReadySeconds int32, selector *metav1.LabelSelector,
	template corev1.PodTemplateSpec) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	at := spec.Child("template")
	if replicas != nil {
		errs = append(errs, nonnegative(spec.Child("replicas"), int64(*replicas))...)
	}
	errs = append(errs, nonnegative(spec.Child("minReadySeconds"), int64(minReadySeconds))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(selector,
		metav1validation.LabelSelectorValidationOptions{}, spec.Child("selector"))...)
	switch s, err := metav1.LabelSelectorAsSelector(selector); {
	case selector == nil:
		errs = append(errs, field.Required(spec.Child("selector"), ""),
			field.Invalid(at.Child("metadata", "labels"), template.Labels,
				"`selector` does not match template `labels`"))
	case err != nil:
		return append(errs, field.Invalid(spec.Child("selector"), selector, "invalid label selector"))
	case s.Empty():
		errs = append(errs, field.Invalid(spec.Child("selector"), selector, "empty selector is invalid for deployment"))
	case !s.Matches(labelSet(template.Labels)):
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), template.Labels,
			"`selector` does not match template `labels`"))
	}
	if policy := template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("spec", "restartPolicy"), policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	return append(errs, validateTemplate(template, at)...)
}

func nonnegative(path *field.Path, n int64) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(n, path)
}

// count is one of the pods of a status, by the name of its field.
type count struct {
	name string
	n    int32
}

// validateStatefulSetStatus refuses counts that cannot be.
func validateStatefulSetStatus(s appsv1.StatefulSetStatus) field.ErrorList {
	errs := validateCounts(s.Replicas, s.ObservedGeneration, count{"readyReplicas", s.ReadyReplicas},
		count{"currentReplicas", s.CurrentReplicas}, count{"updatedReplicas", s.UpdatedReplicas},
		count{"availableReplicas", s.AvailableReplicas})
	return append(errs, validateAvailable(s.AvailableReplicas, s.ReadyReplicas, "status.readyReplicas")...)
}

// validateReplicaSetStatus refuses counts that cannot be.
func validateReplicaSetStatus(s appsv1.ReplicaSetStatus) field.ErrorList {
	errs := validateCounts(s.Replicas, s.ObservedGeneration, count{"fullyLabeledReplicas", s.FullyLabeledReplicas},
		count{"readyReplicas", s.ReadyReplicas}, count{"availableReplicas", s.AvailableReplicas})
	return append(errs, validateAvailable(s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")...)
}

func validateCounts(replicas int32, generation int64, parts ...count) field.ErrorList {
	path := field.NewPath("status")
	errs := nonnegative(path.Child("replicas"), int64(replicas))
	for _, p := range parts {
		errs = append(errs, nonnegative(path.Child(p.name), int64(p.n))...)
	}
	errs = append(errs, nonnegative(path.Child("observedGeneration"), generation)...)
	for _, p := range parts {
		if p.n > replicas {
			errs = append(errs, field.Invalid(path.Child(p.name), p.n, "cannot be greater than status.replicas"))
		}
	}
	return errs
}

// validateAvailable refuses more available pods than ready ones. Kubernetes names the latter in different ways.
func validateAvailable(available, ready int32, name string) field.ErrorList {
	if available <= ready {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status", "availableReplicas"), available,
		"cannot be greater than "+name)}
}
