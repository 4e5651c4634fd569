package inspect

import (
	"context"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// source is what pages are made of: a Manager of this process, or a bundle.
type source interface {
	// controllers are the names of the controllers.
	controllers() []string
	// now is the time of what the source says.
	now() time.Time
	// status is the overview.
	status() status.Manager
	// keys returns all keys of a controller, in no particular order. The caller may change the slice. ok is false if
	// there is no such controller.
	keys(ctx context.Context, controller string) (all []status.KeySummary, ok bool)
	// key returns what is known of a key. ok is false if there is no such controller or, in a bundle, no such key.
	key(ctx context.Context, controller string, key reconcile.Key) (s status.Key, ok bool)
}
