// Package v1alpha1 has the Go types of the first version of cronbackups.backups.example.com, and their conversion.
//
// # Reading order
//
// types.go, conversion.go; register.go is for programs that use a scheme.
//
// +kubebuilder:object:generate=true
// +groupName=backups.example.com
package v1alpha1
