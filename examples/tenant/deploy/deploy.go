// Package deploy has the manifests of the operator, for tests.
//
// # Reading order
//
// deploy.go.
package deploy

import "embed"

// Manifests are the files of this folder.
//
//go:embed *.yaml
var Manifests embed.FS
