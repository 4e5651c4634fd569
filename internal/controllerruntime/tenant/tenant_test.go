package main

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/thermostat-go/thermostat/examples/tenant/tenanttest"
)

func start(ctx context.Context, cfg *rest.Config) error {
	ctrl.SetLogger(logr.Discard())
	return run(ctx, cfg, options{platform: tenanttest.Platform, metrics: "0", probes: "0"})
}

func TestInMemory(t *testing.T) { tenanttest.InMemory(t, start) }

func TestOnACluster(t *testing.T) { tenanttest.OnCluster(t, start) }
