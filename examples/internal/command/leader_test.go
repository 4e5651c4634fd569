package command

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

// A rolling update from an elector to shards, with the flags of the example's Deployment, does not have both at work:
// the new replica does no work and is not ready, so the update stops there and says why.
func TestShardsWaitBesideAnElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		p := testProgram
		p.By = sharding.ByKey
		flags := []string{"--leader-elect-resource-namespace=default", "--leader-elect-identity=old"}
		var group lifecycle.Group
		ctx, stop := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		run := func(began func(), flags ...string) (Leader, context.CancelFunc) {
			ctx, end := context.WithCancel(ctx)
			o, err := p.ParseFlags(flags)
			require.NoError(t, err)
			leader, err := p.leader(server.Link().Config(), o)
			require.NoError(t, err)
			group.Go("leader", func() {
				_ = leader.Run(ctx, func(ctx context.Context) error {
					if began(); ctx.Err() == nil {
						<-ctx.Done()
					}
					return nil
				})
			})
			return leader, end
		}
		led := false
		_, end := run(func() { led = true }, flags...)
		time.Sleep(20 * time.Second)
		require.True(t, led)

		leader, _ := run(func() {}, append(flags, "--leader-elect-identity=new", "--shards")...)
		shards := leader.(*sharding.Shards)
		notReady := func() {
			time.Sleep(time.Minute)
			require.ErrorContains(t, shards.Ready(), "but an elector's, and is held by")
			require.Zero(t, shards.Stats().Members)
		}
		notReady()
		end()
		notReady() // another old replica may be about to lead
		stop()
		<-group.Done()
	})
}
