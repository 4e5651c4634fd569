// Package world does to a cluster what its controllers and its nodes do: Deployments are rolled out, pods run, Jobs
// end, claims are bound and load balancers get an address. Two worlds are made of it: that of package plan, in which
// what is written is carried out at once, and that of reconciletest.Check, in which it takes time and may fail.
//
//	a write --Affected--> items --React--> writes, and when to look at the item again
//
// An item is an object that the world has something to do about. [World.React] looks at the cluster as it is then, and
// writes what is missing: it remembers nothing that the cluster could tell, so an item may be looked at twice, or late.
// What React writes affects other items: whoever calls it looks for them in the history of the server. A world that
// does all at once ([Options.AtOnce]) needs no such caller: it looks at them itself.
//
// # Reading order
//
//	world.go      items, and what becomes of one, with clients.go; job.go, claim.go, node.go and balancer.go
//	pods.go       pods: made, started, ended, counted; schedule.go: what they wait for
//	workload.go   what Deployments, ReplicaSets, StatefulSets and DaemonSets have in common
//	deployment.go with replicaset.go; statefulset.go and daemonset.go with revisions.go
//	endpoints.go  which pods are behind a Service
package world
