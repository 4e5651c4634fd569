// Command replicaset keeps the wanted number of pods for each ReplicaSet: the job of the controller of that name in
// kube-controller-manager, which it can replace (switch that off with --controllers=*,-replicaset-controller).
//
// To read it, begin with Reconcile in replicaset.go: observe, diff, act, report. Each question on the way has a file of
// its own:
//
//	claim.go      which pods are mine?
//	scale.go      how many pods are missing or surplus, and how are they created and deleted?
//	victims.go    which pods go first?
//	status.go     what is the status?
//	report.go     when is the status written?
//
// This file makes a command of it, with examples/internal/command.
package main

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

var program = command.Program{
	Name:     "replicaset",
	Kind:     "ReplicaSet",
	About:    "replicaset keeps the wanted number of pods for each ReplicaSet.",
	Requests: burst,
	Rules: []rbacv1.PolicyRule{
		rights.Rule("apps", "replicasets", "get", "list", "watch"),
		rights.Rule("apps", "replicasets/status", "update"),
		rights.Rule("", "pods", "list", "watch", "create", "patch", "delete"),
	},
	// ReplicaSets do not depend on each other, not even those of one namespace: a claim holds for the references that
	// it has seen, so two replicas cannot both adopt a pod.
	By:  sharding.ByKey,
	New: newParts,
}

func main() { program.Main() }

func newParts(e command.Environment) (command.Parts, error) {
	r, c, err := newController(e.Config, e.Events, e.Namespace, e.Options)
	if err != nil {
		return command.Parts{}, err
	}
	return command.Parts{
		Controller: c,
		Caches:     []metrics.Informer{r.replicaSets, r.pods},
		WatchForRivals: func(p command.Program, found func(error)) error {
			return command.WatchForRivals(p, r.replicaSets, found)
		},
	}, nil
}
