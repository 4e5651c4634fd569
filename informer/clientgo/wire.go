package clientgo

import (
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/tap"
)

// Wire returns a copy of a configuration. What clients of the copy list and watch for an informer of this package, the
// informer reads itself, from the bytes; the package's documentation says how and when. For all else they are as other
// clients: their requests, retries and errors, and the wrappers, plugins and users of the configuration.
func Wire(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(tap.Wrap)
	return cfg
}
