// Package tenanttest judges operators for Tenants by what they do. It imports nothing of any controller library, so it
// is for every operator:
//
//	func TestInMemory(t *testing.T)  { tenanttest.InMemory(t, start) }
//	func TestOnACluster(t *testing.T) { tenanttest.OnCluster(t, start) }
//
// where start runs the operator until ctx ends. In memory there is an operator for each test, in virtual time; on a
// cluster, with Kubernetes' own controllers, one for all tests. Both have the rights of deploy/rbac.yaml and no others.
// An operator in memory must not listen on the network: nothing tells virtual time that it only waits.
//
// # Reading order
//
// behaviours.go (what an operator has to do), world.go (where it does it).
package tenanttest
