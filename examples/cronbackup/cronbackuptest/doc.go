// Package cronbackuptest judges operators for CronBackups by what they do. It imports nothing of any controller
// library, so it is for every operator:
//
//	func TestInMemory(t *testing.T)  { cronbackuptest.InMemory(t, start) }
//	func TestOnACluster(t *testing.T) { cronbackuptest.OnCluster(t, start) }
//
// where start runs the operator until ctx ends. In memory there is an operator for each test, in virtual time; on a
// cluster, with Kubernetes' own controllers, one for all tests. Both have the rights of deploy/rbac.yaml and no others.
// An operator in memory must not listen on the network: nothing tells virtual time that it only waits.
//
// # Reading order
//
// behaviours.go (what an operator has to do), world.go (where it does it).
package cronbackuptest
