// Package v1 has the Go types of the resource cronbackups.backups.example.com.
//
// The methods in zz_generated.deepcopy.go, here and in v1alpha1, and the CustomResourceDefinition in deploy are
// generated of the types:
//
//	go generate ./examples/cronbackup/api/v1
//
// # Reading order
//
// types.go; register.go is for programs that use a scheme.
//
// +kubebuilder:object:generate=true
// +groupName=backups.example.com
package v1

//go:generate -command controller-gen go tool -modfile=../../../../internal/tools/go.mod controller-gen
//go:generate controller-gen object crd paths=../... output:crd:dir=../../deploy
