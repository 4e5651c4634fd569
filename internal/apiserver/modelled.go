package apiserver

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

// modelled are the fields of a built-in kind that this server treats as a real one does, with all of their defaults and checks, and says which of their values
// it does so for. A field is named by its path, an element of a list by []; a path stands for all that is below it. What an object sets beside them is
// refused, as not modelled: a real server might default it, complain of it, or bring it to life. A field that is set to its zero value, such as false, passes
// for one that is not set; an element of a list is one though nothing is set in it.
//
// The metadata, which all kinds share, is complete and stands in no list.
type modelled map[string]func(value any) bool

// refuse returns an error if the object sets what is not modelled.
func (r *Resource) refuse(o object) error {
	if r.custom() {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	for _, shared := range []string{"apiVersion", "kind", "metadata"} {
		delete(content, shared)
	}
	if what := modelledFields[r.GroupVersionResource.Resource].beyond("", content); what != "" {
		return notModelled("%s of %s", what, r.GroupVersionResource.Resource)
	}
	if check, ok := modelledNames[r.GroupVersionResource.Resource]; ok && !check(o.GetName()) {
		return notModelled("the name %q of %s", o.GetName(), r.GroupVersionResource.Resource)
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
	trimmed   = func(v any) bool { s, ok := v.(string); return ok && s == strings.TrimSpace(s) }
	seconds   = between(0, math.MaxInt32)
	condition = []string{"type", "status", "reason", "message", "lastTransitionTime"}
)

// modelledNames are stricter than those of other kinds.
var modelledNames = map[string]func(any) bool{
	"namespaces":   func(v any) bool { return v == "" || dnsLabel(v) },
	"statefulsets": func(v any) bool { return v == "" || dnsLabel(v) },
}

var modelledFields = map[string]modelled{
	"namespaces": {"spec.finalizers[]": oneOf(string(corev1.FinalizerKubernetes)), "status.phase": anything},
	"nodes": {
		"spec.unschedulable": anything, "spec.taints[].key": oneOf(corev1.TaintNodeNotReady), "spec.taints[].effect": oneOf(string(corev1.TaintEffectNoSchedule)),
		"status.phase": oneOf("Pending", "Running", "Terminated"),
	},
	"pods": podSpec("spec", podOnly).and("status", modelled{
		"phase": oneOf("Pending", "Running", "Succeeded", "Failed", "Unknown"), "qosClass": oneOf(string(corev1.PodQOSBestEffort)),
	}).with("status.conditions[]", append(slices.Clone(condition), "lastProbeTime")...),
	"configmaps":      {"data": anything, "binaryData": anything, "immutable": anything},
	"secrets":         {"data": anything, "immutable": anything, "type": plainType},
	"serviceaccounts": {"automountServiceAccountToken": anything},
	"events": modelled{}.with("", "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "reportingComponent",
		"reportingInstance"),
	"leases": modelled{}.with("spec", "holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions"),
	"replicasets": podSpec("spec.template.spec", workloadOnly).with("spec", workloadFields...).
		with("status", "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration").with("status.conditions[]", condition...).
		and("status", modelled{"terminatingReplicas": between(0, math.MaxInt32)}),
	"deployments": podSpec("spec.template.spec", workloadOnly).with("spec", workloadFields...).and("spec", modelled{
		"minReadySeconds": between(0, 599), "paused": anything, "revisionHistoryLimit": seconds, "progressDeadlineSeconds": oneOf(int64(600)),
		"strategy.type": oneOf("RollingUpdate"), "strategy.rollingUpdate.maxSurge": oneOf("25%"), "strategy.rollingUpdate.maxUnavailable": oneOf("25%"),
	}),
	"statefulsets": podSpec("spec.template.spec", workloadOnly).with("spec", workloadFields...).and("spec", modelled{
		"serviceName": func(v any) bool { return v == "" || dnsLabel(v) }, "revisionHistoryLimit": seconds, "podManagementPolicy": oneOf("OrderedReady", "Parallel"),
		"updateStrategy.type": oneOf("RollingUpdate"), "updateStrategy.rollingUpdate.partition": oneOf(int64(0)), "updateStrategy.rollingUpdate.maxUnavailable": oneOf(int64(1)),
		"persistentVolumeClaimRetentionPolicy.whenDeleted": oneOf("Retain"), "persistentVolumeClaimRetentionPolicy.whenScaled": oneOf("Retain"),
	}),
}

var (
	// workloadFields are checked by validateWorkload.
	workloadFields = []string{"replicas", "minReadySeconds", "selector", "template.metadata.labels", "template.metadata.annotations"}
	workloadOnly   = modelled{"restartPolicy": oneOf("Always")}
	podOnly        = modelled{
		"restartPolicy": oneOf("Always", "OnFailure", "Never"), "nodeName": dnsName, "enableServiceLinks": anything,
	}
)

// plainType is a type of Secrets that Kubernetes has no rules for.
func plainType(v any) bool {
	s, ok := v.(string)
	return ok && (s == string(corev1.SecretTypeOpaque) || !strings.Contains(s, "kubernetes.io/"))
}

// podSpec are the fields of a PodSpec at a path, and some more.
func podSpec(path string, more modelled) modelled {
	return modelled{}.and(path, more).and(path, modelled{
		"containers[].name": anything, "containers[].image": trimmed, "containers[].imagePullPolicy": oneOf("Always", "IfNotPresent", "Never"),
		"containers[].command": anything, "containers[].args": anything,
		"containers[].env[].name": envName, "containers[].env[].value": anything,
		"containers[].ports[].containerPort": between(1, math.MaxUint16), "containers[].ports[].protocol": oneOf("TCP", "UDP", "SCTP"),
		"containers[].terminationMessagePath": oneOf(corev1.TerminationMessagePathDefault), "containers[].terminationMessagePolicy": oneOf("File", "FallbackToLogsOnError"),
		"dnsPolicy": oneOf("ClusterFirst", "Default"), "schedulerName": dnsName, "terminationGracePeriodSeconds": seconds,
	})
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
