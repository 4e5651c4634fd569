package main

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/thermostat-go/thermostat/examples/cronbackup/cronbackuptest"
)

var asFlags = options{image: "backup:1", backup: []string{"backup"}, cleanup: []string{"cleanup"}, metrics: "0",
	probes: "0"}

func start(ctx context.Context, cfg *rest.Config) error {
	ctrl.SetLogger(logr.Discard())
	return run(ctx, cfg, asFlags)
}

func TestInMemory(t *testing.T) { cronbackuptest.InMemory(t, start) }

func TestOnACluster(t *testing.T) { cronbackuptest.OnCluster(t, start) }
