// Command autoscaler sets the number of replicas of Deployments, and of all else that can be scaled, by metrics: the
// job of the HorizontalPodAutoscaler controller in kube-controller-manager, which it can replace (switch that off with
// --controllers=*,-horizontal-pod-autoscaler-controller).
//
// To read it, begin with Reconcile in autoscaler.go: observe, decide, act, report. Each question on the way has a file
// of its own. What is observed:
//
//	target.go       what is scaled, and how?
//	selectors.go    do the pods of the target belong to it alone?
//	pods.go         which pods are the target's, and which of them count?
//	metrics.go      what do the metrics say?
//
// How it is decided, by a function of all this and nothing else:
//
//	decision.go     what is decided?
//	proposals.go    what do several metrics come to?
//	formula.go      how many replicas does a metric come to?
//	window.go       what have the last recommendations been?
//	policy.go       how fast may the target grow and shrink?
//	limits.go       which number of replicas is allowed?
//	zero.go         who has scaled the target to zero?
//
// What is kept:
//
//	memory.go       what is remembered, and when is the next look?
//	status.go       what is the status, and what is told?
//
// This file makes a command of it, with examples/internal/command.
package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/rights"
)

func main() { newProgram(defaults()).Main() }

// newProgram makes the command. Its flags change the settings.
func newProgram(set settings) command.Program {
	return command.Program{
		Name:     "autoscaler",
		BuiltIn:  "horizontal-pod-autoscaler-controller",
		Kind:     "HorizontalPodAutoscaler",
		About:    "autoscaler sets the number of replicas by metrics, for each HorizontalPodAutoscaler.",
		Requests: 20,
		QPS:      250, // three requests for each look at an HPA, and 1,000 of these in 15 s
		Rules: []rbacv1.PolicyRule{
			rights.Rule("autoscaling", "horizontalpodautoscalers", "get", "list", "watch"),
			rights.Rule("autoscaling", "horizontalpodautoscalers/status", "update"),
			rights.Rule("*", "*/scale", "get", "update"),
			rights.Rule("", "pods", "list", "watch"),
			rights.Rule("metrics.k8s.io", "pods", "list"),
			rights.Rule("custom.metrics.k8s.io", "*", "get"),
			rights.Rule("external.metrics.k8s.io", "*", "list"),
		},
		Flags: set.addTo,
		New:   func(e command.Environment) (command.Parts, error) { return newParts(e, set) },
	}
}

// addTo adds the flags, under the names that they have in kube-controller-manager.
func (set *settings) addTo(fs *pflag.FlagSet) {
	fs.DurationVar(&set.interval, "horizontal-pod-autoscaler-sync-period", set.interval,
		"time between two looks at a HorizontalPodAutoscaler")
	fs.Float64Var(&set.tolerance, "horizontal-pod-autoscaler-tolerance", set.tolerance,
		"how far metric/target may be from 1 until the number of replicas changes")
	fs.DurationVar(&set.downscaleWindow, "horizontal-pod-autoscaler-downscale-stabilization", set.downscaleWindow,
		"how long the highest recommendation counts where spec.behavior does not say")
	fs.DurationVar(&set.cpuInitialization, "horizontal-pod-autoscaler-cpu-initialization-period", set.cpuInitialization,
		"how long after its start the CPU usage of a pod that is not ready is ignored")
	fs.DurationVar(&set.initialReadiness, "horizontal-pod-autoscaler-initial-readiness-delay", set.initialReadiness,
		"a pod that stopped being ready so soon after its start counts as one that has never been ready")
}

// validate names the flags that are wrong.
func (set *settings) validate() error {
	var errs []error
	if set.interval <= 0 {
		errs = append(errs, fmt.Errorf("--horizontal-pod-autoscaler-sync-period=%v: must be more than 0", set.interval))
	}
	if !(set.tolerance >= 0) { // refuses NaN, too
		errs = append(errs, fmt.Errorf("--horizontal-pod-autoscaler-tolerance=%v: must not be negative", set.tolerance))
	}
	for name, d := range map[string]time.Duration{
		"downscale-stabilization": set.downscaleWindow, "cpu-initialization-period": set.cpuInitialization,
		"initial-readiness-delay": set.initialReadiness,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--horizontal-pod-autoscaler-%s=%v: must not be negative", name, d))
		}
	}
	return errors.Join(errs...)
}

func newParts(e command.Environment, set settings) (command.Parts, error) {
	r, c, err := newController(e.Config, e.Events, e.Namespace, set, e.Options)
	if err != nil {
		return command.Parts{}, err
	}
	return command.Parts{
		Controller: c,
		Caches:     []metrics.Informer{r.hpas, r.pods},
		WatchForRivals: func(p command.Program, found func(error)) error {
			return command.WatchForRivals(p, r.hpas, found)
		},
	}, nil
}
