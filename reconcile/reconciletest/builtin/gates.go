package builtin

import "github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin/internal/gates"

func init() { gates.Restore() } // after the packages of Kubernetes, which this one imports
