//go:build !linux

package supervisor

import "context"

// awaitStopped is exact on Linux only. Elsewhere a stopped process may run on for a moment.
func (p *process) awaitStopped(context.Context) error { return nil }
