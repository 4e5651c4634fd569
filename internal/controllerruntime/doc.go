// Package controllerruntime tests that programs of sigs.k8s.io/controller-runtime run unchanged against the API server
// in memory of package reconciletest. It is a module of its own, so that nothing else needs controller-runtime.
package controllerruntime
