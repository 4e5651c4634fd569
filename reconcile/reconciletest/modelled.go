package reconciletest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// modelled are the fields of a built-in kind that this server treats as a real one does, with all of their defaults and
// checks, and says which of their values it does so for. A field is named by its path, an element of a list by []; a
// path stands for all that is below it. What an object sets beside them is refused, as not modelled: a real server
// might default it, complain of it, or bring it to life. A field that is set to its zero value, such as false, passes
// for one that is not set; an element of a list is one though nothing is set in it.
//
// The metadata, which all kinds share, is complete and stands in no list.
type modelled map[string]func(value any) bool

// refuse returns an error if the object sets what is not modelled.
func (r *Resource) refuse(o object) error {
	if r.custom() {
		return nil
	}
	if registered(r) == nil {
		if err := refuseFields(r.GroupVersionResource.Resource, o); err != nil {
			return err
		}
	}
	if r.builtin.beyond != nil {
		if what := r.builtin.beyond(o); what != "" {
			text := fmt.Sprintf("%s of %s", what, r.GroupVersionResource.Resource)
			if registered(r) == nil {
				text += "; " + otherFields(r.GroupVersionResource.Resource)
			}
			return notModelled("%s", text)
		}
	}
	return nil
}

// refuseFields returns an error if an object of a kind sets a field, or has a name, that is not modelled.
func refuseFields(kind string, o object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	for _, shared := range []string{"apiVersion", "kind", "metadata"} {
		delete(content, shared)
	}
	if what := modelledFields[kind].beyond("", content); what != "" {
		return notModelled("%s of %s; %s", what, kind, otherFields(kind))
	}
	name := o.GetName()
	if prefix := o.GetGenerateName(); name == "" && prefix != "" {
		name = prefix + "x"
	}
	if check, ok := modelledNames[kind]; ok && !check(name) {
		return notModelled("the name %q of %s; %s", o.GetName(), kind, otherFields(kind))
	}
	return nil
}

// beyond returns the first field that is not modelled, or whose value is not; empty: there is none.
func (m modelled) beyond(path string, value any) string {
	if check, ok := m[path]; ok {
		if check(value) {
			return ""
		}
		return "the value of " + path
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if what := m.beyond(strings.TrimPrefix(path+"."+name, "."), v[name]); what != "" {
				return what
			}
		}
	case []any:
		for _, element := range v {
			if what := m.beyond(path+"[]", element); what != "" {
				return what
			}
		}
		if len(v) > 0 && !m.below(path+"[]") {
			return path + "[]" // an element in which nothing is set is one, too
		}
	case nil, bool, string, int64, float64:
		if v != nil && v != false && v != "" && v != int64(0) && v != float64(0) {
			return path
		}
	default:
		return fmt.Sprintf("%s, which is a %T", path, value)
	}
	return ""
}

// within returns a value without what is not modelled of it; nil: nothing is left.
func (m modelled) within(path string, value any) any {
	if check, ok := m[path]; ok {
		if check(value) {
			return value
		}
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, of := range v {
			if left := m.within(strings.TrimPrefix(path+"."+name, "."), of); left != nil {
				kept[name] = left
			}
		}
		if len(kept) > 0 {
			return kept
		}
	case []any:
		var kept []any
		for _, element := range v {
			if left := m.within(path+"[]", element); left != nil {
				kept = append(kept, left)
			}
		}
		if len(kept) > 0 {
			return kept
		}
	}
	return nil
}

// below reports whether anything is modelled at a path, or below it.
func (m modelled) below(path string) bool {
	for field := range m {
		if strings.HasPrefix(field, path) {
			return true
		}
	}
	return false
}

func anything(any) bool { return true }

func oneOf(values ...any) func(any) bool {
	return func(v any) bool { return slices.Contains(values, v) }
}

func between(least, most int64) func(any) bool {
	return func(v any) bool { n, ok := v.(int64); return ok && least <= n && n <= most }
}

// text is a check of a string, which returns what is wrong with it.
func text(check func(string) []string) func(any) bool {
	return func(v any) bool { s, ok := v.(string); return ok && len(check(s)) == 0 }
}

var (
	dnsLabel  = text(validation.IsDNS1123Label)
	dnsName   = text(validation.IsDNS1123Subdomain)
	envName   = text(validation.IsEnvVarName)
	seconds   = between(0, math.MaxInt32)
	condition = []string{"type", "status", "reason", "message", "lastTransitionTime"}
)

// modelledNames are those that make good hostnames: a real server refuses or warns of others.
var modelledNames = map[string]func(any) bool{
	"namespaces": emptyOr(dnsLabel), "services": emptyOr(dnsLabel), "statefulsets": emptyOr(dnsLabel),
	"pods": warnedName, "replicasets": warnedName, "deployments": warnedName,
	"jobs": warnedName, "cronjobs": warnedName,
	"rolebindings": emptyOr(dnsName), // a real server lets them have a colon
}

// warnedName leaves alone what is refused by the rules of all names.
func warnedName(v any) bool { return !dnsName(v) || dnsLabel(v) }

var modelledFields = map[string]modelled{
	"namespaces": {"spec.finalizers[]": anything, "status.phase": anything},
	"nodes": {
		"spec.unschedulable": anything, "spec.taints[].key": oneOf(corev1.TaintNodeNotReady),
		"spec.taints[].effect": oneOf(string(corev1.TaintEffectNoSchedule)),
		"status.phase":         oneOf("Pending", "Running", "Terminated"),
	},
	"pods": podSpec("spec", podOnly).and("status", modelled{
		"phase": oneOf("Pending", "Running", "Succeeded", "Failed", "Unknown"), "qosClass": anything,
		"startTime": anything,
	}).with("status.conditions[]", append(slices.Clone(condition), "lastProbeTime")...).
		and("status.conditions[]", modelled{"type": text(validation.IsQualifiedName)}).
		with("status.containerStatuses[]", "name", "image", "imageID", "state.terminated"),
	"configmaps":      {"data": anything, "binaryData": anything, "immutable": anything},
	"secrets":         {"data": anything, "immutable": anything, "type": plainType},
	"serviceaccounts": {"automountServiceAccountToken": anything},
	"events": modelled{}.with("", "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp",
		"count", "type", "reportingComponent",
		"reportingInstance"),
	"services": serviceFields(),
	"leases": modelled{}.with("spec", "holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime",
		"leaseTransitions"),
	"replicasets": podSpec("spec.template.spec", workloadOnly).with("spec", workloadFields...).
		with("status", "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
			"observedGeneration").with("status.conditions[]", condition...).
		and("status", modelled{"terminatingReplicas": between(0, math.MaxInt32)}),
	"deployments": podSpec("spec.template.spec", workloadOnly).with("spec", workloadFields...).
		with("spec", "paused", "revisionHistoryLimit", "progressDeadlineSeconds", "strategy.rollingUpdate.maxSurge",
			"strategy.rollingUpdate.maxUnavailable").
		and("spec", modelled{"strategy.type": oneOf("Recreate", "RollingUpdate")}).
		with("status", "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
			"unavailableReplicas", "terminatingReplicas", "collisionCount").
		with("status.conditions[]", append(slices.Clone(condition), "lastUpdateTime")...),
	"jobs": jobSpec("spec").with("spec", "selector", "manualSelector").with("status", "startTime", "completionTime",
		"active", "succeeded", "failed",
		"ready", "terminating", "uncountedTerminatedPods").with("status.conditions[]",
		append(slices.Clone(condition), "lastProbeTime")...),
	"cronjobs": jobSpec("spec.jobTemplate.spec").with("spec.jobTemplate", "metadata.labels", "metadata.annotations").
		with("spec.jobTemplate.spec", "selector", "manualSelector").with("status", "active", "lastScheduleTime",
		"lastSuccessfulTime").
		with("spec", "schedule", "timeZone", "startingDeadlineSeconds", "suspend", "successfulJobsHistoryLimit",
			"failedJobsHistoryLimit").
		and("spec", modelled{"concurrencyPolicy": oneOf("Allow", "Forbid", "Replace")}),
	"horizontalpodautoscalers": autoscalerFields(),
	"persistentvolumeclaims":   claimFields(),
	"poddisruptionbudgets": modelled{"spec.unhealthyPodEvictionPolicy": oneOf("IfHealthyBudget",
		"AlwaysAllow")}.with("spec", "minAvailable", "maxUnavailable", "selector").
		with("status", "observedGeneration", "disruptedPods", "disruptionsAllowed", "currentHealthy", "desiredHealthy",
			"expectedPods").
		with("status.conditions[]", append(slices.Clone(condition), "observedGeneration")...),
	"resourcequotas": {"spec.hard": quotaHard},
	"limitranges": {"spec.limits[].type": oneOf("Container"), "spec.limits[].default.cpu": limitOf,
		"spec.limits[].default.memory": limitOf, "spec.limits[].defaultRequest.cpu": limitOf,
		"spec.limits[].defaultRequest.memory": limitOf},
	"networkpolicies": modelled{"spec.podSelector": anything, "spec.policyTypes[]": oneOf("Ingress", "Egress")}.
		and("", policyRules("ingress", "from")).and("", policyRules("egress", "to")),
	"rolebindings": modelled{}.with("roleRef", "apiGroup", "kind", "name").
		with("subjects[]", "kind", "apiGroup", "name", "namespace"),
	// webhookkinds.go judges these.
	"mutatingwebhookconfigurations":   {"webhooks": anything},
	"validatingwebhookconfigurations": {"webhooks": anything},
	"statefulsets": podSpec("spec.template.spec", workloadOnly).with("spec", workloadFields...).and("spec", modelled{
		"serviceName": func(v any) bool { return v == "" || dnsLabel(v) }, "revisionHistoryLimit": seconds,
		"podManagementPolicy": oneOf("OrderedReady", "Parallel"),
		"updateStrategy.type": oneOf("RollingUpdate"), "updateStrategy.rollingUpdate.partition": oneOf(int64(0)),
		"updateStrategy.rollingUpdate.maxUnavailable":      oneOf(int64(1)),
		"persistentVolumeClaimRetentionPolicy.whenDeleted": oneOf("Retain"),
		"persistentVolumeClaimRetentionPolicy.whenScaled":  oneOf("Retain"),
	}).with("status", "replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas",
		"observedGeneration", "currentRevision", "updateRevision"),
}

var (
	// workloadFields are checked by validateWorkload.
	workloadFields = []string{"replicas", "minReadySeconds", "selector", "template.metadata.labels",
		"template.metadata.annotations"}
	restartPolicy = oneOf("Always", "OnFailure", "Never")
	workloadOnly  = modelled{"restartPolicy": restartPolicy, "serviceAccountName": dnsName, "serviceAccount": dnsName}
	podOnly       = modelled{"restartPolicy": restartPolicy, "nodeName": dnsName, "enableServiceLinks": anything,
		"hostname": dnsLabel, "subdomain": dnsLabel}.
		and("affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[]", modelled{
			"weight":                      between(1, 100),
			"podAffinityTerm.topologyKey": text(validation.IsQualifiedName),
			"podAffinityTerm.labelSelector.matchLabels": goodLabels}).
		and("initContainers[]", initContainer())
)

// goodLabels accepts labels that are valid.
func goodLabels(v any) bool {
	labels, ok := v.(map[string]any)
	for name, value := range labels {
		ok = ok && text(validation.IsQualifiedName)(name) && text(validation.IsValidLabelValue)(value)
	}
	return ok
}

// jobSpec are the fields of a JobSpec at a path.
func jobSpec(path string) modelled {
	pods := modelled{"restartPolicy": restartPolicy, "serviceAccountName": dnsName, "serviceAccount": dnsName,
		"activeDeadlineSeconds": between(1, math.MaxInt32)}
	return podSpec(path+".template.spec", pods).with(path, "template.metadata.labels", "template.metadata.annotations",
		"suspend", "activeDeadlineSeconds").
		with(path, "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "ttlSecondsAfterFinished").and(path,
		modelled{
			"parallelism": below, "completions": below,
			"completionMode":       oneOf("NonIndexed", "Indexed"),
			"podReplacementPolicy": oneOf("TerminatingOrFailed", "Failed"),
		})
}

// below is a number of pods that a real server has no further rules for.
func below(v any) bool { n, ok := v.(int64); return ok && n <= 100_000 }

// plainType is a type of Secrets that Kubernetes has no rules for.
func plainType(v any) bool {
	s, ok := v.(string)
	return ok && (s == string(corev1.SecretTypeOpaque) || !strings.Contains(s, "kubernetes.io/"))
}

// and adds fields below a path.
func (m modelled) and(path string, more modelled) modelled {
	m = maps.Clone(m)
	for name, check := range more {
		m[strings.TrimPrefix(path+"."+name, ".")] = check
	}
	return m
}

// with adds fields below a path that may have any value, since they are checked elsewhere or not at all.
func (m modelled) with(path string, names ...string) modelled {
	m = maps.Clone(m)
	for _, name := range names {
		m[strings.TrimPrefix(path+"."+name, ".")] = anything
	}
	return m
}
