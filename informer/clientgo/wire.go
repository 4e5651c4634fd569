package clientgo

import (
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/tap"
)

// Wire returns a copy of a configuration for clients whose lists and watches the informers of this package read
// themselves, from the bytes: see the package's documentation.
func Wire(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(tap.Wrap)
	return cfg
}
