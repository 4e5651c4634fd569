// Package controllerruntime tests that programs of sigs.k8s.io/controller-runtime run unchanged against the API server
// in memory of package reconciletest, and that envtest works with the programs of package cluster. It is a module of
// its own, so that nothing else needs controller-runtime. Package migrating has the code of reconcile/MIGRATING.md, and
// the commands cronbackup and tenant are the twins of those in examples.
package controllerruntime
