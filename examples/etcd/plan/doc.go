// Package plan decides what an operator of etcd does next. It has no I/O: [Next] is a function from all that was
// observed to one action, so every decision can be tested, and random histories are (plan_test.go).
//
// # Members
//
// A member is a name, with three objects of that name: a claim (its disk), a pod, and a word. The word is what the
// operator tells the member's etcd before it starts; without one the pod waits. Three invariants tie them together:
//
//	a claim without a word   has never been written to, since no etcd has started on it. So the word is made after the
//	                         pod, and deleted after the claim.
//	a word that allows an    is withdrawn before the member votes. A voter whose disk is lost cannot start on the
//	empty disk               empty one then, and forget what it has acknowledged.
//	a name                   stands for one disk at a time. The next disk of that name belongs to another member.
//
// # Quorum
//
// [costsQuorum] judges every action, in one place: [Next] never returns one after which fewer than a majority of the
// voters could be healthy. It turns that action into a wait.
//
// # Reading order
//
// cluster.go: what is observed. action.go: what can be done. next.go: the rules, in order. quorum.go: which action is
// safe. version.go: upgrades and downgrades. size.go: growing, shrinking, replacing. recover.go: a quorum that is lost
// for good.
package plan
