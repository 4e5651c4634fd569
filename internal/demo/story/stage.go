package story

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Stage is where the story takes place: an API server, and how the controllers run there.
type Stage interface {
	// About has the words for the titles, and the numbers, that differ between stages.
	About() About

	// Open finds or starts the API server. The namespace is the demo's own.
	Open(context.Context) (cfg *rest.Config, namespace, result string, err error)
	// Start starts two replicas of each controller of ours, and three of that for ReplicaSets, and waits until one of
	// each leads, or all three share the work.
	Start(context.Context, *Client) (result string, err error)
	// Leases names the leases of our controllers: who holds it, or shares the work by the table in it, is what
	// [AwaitLeaders] returns. Running returns an error if a replica does not run.
	Leases() []types.NamespacedName
	Running(context.Context) error
	// EndLeaders ends the replicas that hold the leases, and of those that share the work the one that has a
	// ReplicaSet, if the stage can tell which it is, or one of them. The others should be at work within the time that
	// it returns.
	EndLeaders(ctx context.Context, holders []string, replicaSet types.NamespacedName) (result string,
		within time.Duration, err error)
	// End ends the remaining replicas.
	End(context.Context) (result string, err error)
	// ShowLogs prints the end of their logs, and Close removes what Open and Start have created.
	ShowLogs()
	Close() error
	// Hint tells how to use the cluster with kubectl.
	Hint(namespace string) string
}

// Usage is the annotation of a pod with what it uses: "cpu=70m".
const Usage = "standin/usage"

// About is what a stage says of itself.
type About struct {
	Cluster     string // what Open starts or finds
	Controllers string // what Start starts
	Deployments string // whose Deployment controller works: "our" or "Kubernetes'"
	Ending      string // what ends half-way: "kill -9 the leaders and one of the three"
	// Autoscaler says that our HPA controller is among them, and that the metrics of a pod are what its annotation
	// Usage says.
	Autoscaler bool

	// Older and Newer are the images before and after the rollout; no node can pull Broken.
	Older, Newer, Broken string
	// Crowd is more pods than the leader can make before it ends.
	Crowd int
}
