package main

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/examples/cronbackup/cronbackuptest"
)

var asFlags = options{image: "backup:1", backup: []string{"backup"}, cleanup: []string{"cleanup"}}

func start(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, asFlags) }

func TestInMemory(t *testing.T) { cronbackuptest.InMemory(t, start) }

func TestOnACluster(t *testing.T) { cronbackuptest.OnCluster(t, start) }
