package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	peer "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/thermostat-go/thermostat/leaderelection"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// BenchmarkLeaderHandOver stops a leader, on a real API server with the default periods, and waits until the work of
// the candidate that stands by begins.
func BenchmarkLeaderHandOver(b *testing.B) {
	cluster := testcluster.Shared(b)
	namespace := cluster.Namespace(b)
	// handOver lets a first candidate lead and a second one stand by, then stops the first.
	handOver := func(b *testing.B, side string,
		run func(ctx context.Context, lease, identity string, lead func()) error) {
		for i := range b.N {
			b.StopTimer()
			lease := fmt.Sprintf("%s-%d", side, i)
			first, second := make(chan struct{}), make(chan struct{})
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, lease, "first", func() { close(first) }) }()
			<-first
			background(b, func(ctx context.Context) error {
				return run(ctx, lease, "second",
					func() { close(second) })
			})
			time.Sleep(3 * time.Second) // the second one has seen the lease, and is anywhere in its period
			b.StartTimer()
			stop()
			<-second
			b.StopTimer()
			must(b, <-ended)
			b.StartTimer()
		}
	}
	b.Run("thermostat", func(b *testing.B) {
		handOver(b, "ours", func(ctx context.Context, lease, identity string, lead func()) error {
			e, err := leaderelection.New(leaderelection.Config{
				REST: cluster.Config(), Namespace: namespace, Name: lease, Identity: identity, SkipFirstWait: true,
			})
			if err != nil {
				return err
			}
			return e.Run(ctx, func(ctx context.Context) error {
				lead()
				<-ctx.Done()
				return nil
			})
		})
	})
	b.Run("client-go", func(b *testing.B) {
		handOver(b, "theirs", func(ctx context.Context, lease, identity string, lead func()) error {
			client, err := kubernetes.NewForConfig(cluster.Config())
			if err != nil {
				return err
			}
			peer.RunOrDie(ctx, peer.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease}, Client: client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
				},
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				ReleaseOnCancel: true,
				Callbacks: peer.LeaderCallbacks{
					OnStartedLeading: func(context.Context) { lead() },
					OnStoppedLeading: func() {},
				},
			})
			return nil
		})
	})
}
