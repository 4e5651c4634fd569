package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
)

// ClientConfig returns a copy of cfg for a controller's clients. Where cfg does not say otherwise the copy has no
// client-side limit of requests, instead of the 5 a second of client-go, and the default user agent of client-go.
func ClientConfig(cfg *rest.Config) (*rest.Config, error) {
	switch {
	case cfg == nil:
		return nil, errors.New("the rest.Config is nil")
	case cfg.Host == "":
		return nil, errors.New("the rest.Config has no Host: it is the URL of the API server")
	case cfg.QPS == 0 && cfg.Burst != 0 && cfg.RateLimiter == nil:
		return nil, fmt.Errorf("the rest.Config has Burst %d and no QPS: set both to limit the requests, or none",
			cfg.Burst)
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.QPS == 0 && cfg.RateLimiter == nil {
		cfg.QPS = -1
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return cfg, nil
}
