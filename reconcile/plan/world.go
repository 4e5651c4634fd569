package plan

import (
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/world"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// World is what goes on in a fork beside the program.
type World int

const (
	// Still: nothing. A program that waits for a rollout is seen up to there.
	Still World = iota
	// Healthy: what the program writes is carried out at once, as in a cluster in which nothing fails. A Deployment is
	// rolled out by ReplicaSets, and these, StatefulSets and DaemonSets have the pods that they want, which run, are
	// ready and are of the newest template, if the strategy says so. A pod that is deleted goes, and its owner makes
	// another one. A Job has succeeded, without pods, and a claim is bound.
	Healthy
)

func (w World) String() string {
	if w == Healthy {
		return "healthy"
	}
	return "still"
}

// worldManager is who a healthy world writes as. What it writes is no change of the program's.
const worldManager = "plan-healthy-world"

// newWorld makes what a healthy world writes with, past the recorder, which is told of the hashes that it draws.
func newWorld(fork *rest.Config, r *recorder) (*world.World, error) {
	fork = rest.CopyConfig(fork)
	fork.UserAgent = worldManager
	return world.New(fork, world.Options{AtOnce: true, Drew: r.drew})
}

// affected returns what a healthy world does something about because of a write.
func (s *Server) affected(w reconciletest.BaseWrite) []world.Item {
	if s.world == nil || w.Subresource == "status" {
		return nil
	}
	return s.world.Affected(w.Old, w.New)
}
