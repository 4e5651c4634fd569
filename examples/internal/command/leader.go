package command

import (
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/metrics"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

// A Leader decides which replica reconciles a key: *leaderelection.Elector has one replica do all of the work, and
// *sharding.Shards has each do a share. The requests of the controller pass its Fence, and its own do not.
type Leader interface {
	reconcile.Elector
	reconcile.Fencer
}

// leader makes the one that the flags ask for, or none. The table of shards has the name of the elector's Lease, so the
// two cannot be at work together after an update from one to the other: shards do not take an elector's Lease, and are
// not ready while there is one.
func (p Program) leader(cfg *rest.Config, o Options) (Leader, error) {
	switch {
	case o.Shards:
		return sharding.New(sharding.Options{
			REST: cfg, Namespace: o.LeaseNamespace, Name: o.LeaseName, Identity: o.Identity, By: p.By,
			LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod,
		})
	case o.LeaderElect:
		return leaderelection.New(leaderelection.Config{
			REST: cfg, Namespace: o.LeaseNamespace, Name: o.LeaseName, Identity: o.Identity,
			LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod,
		})
	}
	return nil, nil
}

// show has the collector show a leader.
func show(collector *metrics.Collector, leader Leader, o Options) {
	switch l := leader.(type) {
	case *leaderelection.Elector:
		collector.Elector(o.LeaseName, l.Stats)
	case *sharding.Shards:
		collector.Shards(o.LeaseName, l.Stats)
	}
}
