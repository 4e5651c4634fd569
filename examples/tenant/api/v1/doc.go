// Package v1 has the Go types of the resource tenants.platform.example.com.
//
// The methods in zz_generated.deepcopy.go, and the CustomResourceDefinition in deploy, are generated of the types:
//
//	go generate ./examples/tenant/api/v1
//
// # Reading order
//
// types.go; register.go is for programs that use a scheme.
//
// +kubebuilder:object:generate=true
// +groupName=platform.example.com
package v1

//go:generate -command controller-gen go tool -modfile=../../../../internal/tools/go.mod controller-gen
//go:generate controller-gen object crd paths=. output:crd:dir=../../deploy
