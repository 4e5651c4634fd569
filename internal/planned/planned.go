// Package planned is how a program knows that it runs on a fork of a cluster, made by package reconcile/plan, which
// links much: package reconcile/program, which tells the program, does without it.
package planned

import (
	"context"
	"os"
)

// Variable is in the environment of a process that runs on a fork. Its value is that of KUBECONFIG: one that is left
// over elsewhere says nothing.
const Variable = "THERMOSTAT_PLANNED"

type key struct{}

// With returns a context of which Is is true.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether a program runs on a fork.
func Is(ctx context.Context) bool {
	if ctx.Value(key{}) != nil {
		return true
	}
	by := os.Getenv(Variable)
	return by != "" && by == os.Getenv("KUBECONFIG")
}
