package lifecycle

import "context"

// Shared marks the context of a lead function that several processes call at once, each for some of the keys.
func Shared(ctx context.Context) context.Context { return context.WithValue(ctx, sharedKey{}, true) }

// IsShared reports whether the context comes from one that Shared has marked.
func IsShared(ctx context.Context) bool { return ctx.Value(sharedKey{}) != nil }

type sharedKey struct{}
