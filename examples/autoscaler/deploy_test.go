package main

import (
	"testing"

	"github.com/thermostat-go/thermostat/examples/internal/testbed"
)

func TestDockerfile(t *testing.T) { testbed.CheckImage(t, "autoscaler") }
