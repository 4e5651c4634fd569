// Command deployment moves the pods of each Deployment to its template: the job of the controller of that name in
// kube-controller-manager, which it can replace (switch that off with --controllers=*,-deployment-controller).
//
// To read it, begin with Reconcile in deployment.go: observe, diff, act, report. Each question on the way has a file of
// its own:
//
//	claim.go        which ReplicaSets are mine?
//	rollout.go      what is new, and what is old?
//	revision.go     which revision is the new ReplicaSet, and how is it created?
//	hash.go         what is it called?
//	bounds.go       how many pods more than wanted may there be, and how many fewer may be available?
//	rolling.go      what is the next step of a rolling update?
//	recreate.go     how are all pods replaced at once?
//	scale.go        what happens when the Deployment is scaled in the middle of a rollout?
//	change.go       how is a ReplicaSet changed?
//	history.go      which old ReplicaSets are deleted?
//	status.go       what is the status?
//	conditions.go   does the rollout make progress?
//
// This file makes a command of it, with examples/internal/command.
package main

import (
	"github.com/thermostat-go/thermostat/examples/internal/command"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/rights"

	rbacv1 "k8s.io/api/rbac/v1"
)

var program = command.Program{
	Name:     "deployment",
	Kind:     "Deployment",
	About:    "deployment moves the pods of each Deployment to its template.",
	Requests: 50,
	Rules: []rbacv1.PolicyRule{
		rights.Rule("apps", "deployments", "get", "list", "watch"),
		rights.Rule("apps", "deployments/status", "update"),
		rights.Rule("apps", "replicasets", "get", "list", "watch", "create", "patch", "delete"),
		rights.Rule("", "pods", "list", "watch"),
	},
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
		Caches:     []metrics.Informer{r.deployments, r.replicaSets, r.pods},
		WatchForRivals: func(p command.Program, found func(error)) error {
			return command.WatchForRivals(p, r.deployments, found)
		},
	}, nil
}
