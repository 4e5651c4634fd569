package leaderelection

import (
	"context"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/election"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// A candidate is what the parts of an Elector share: the observer, the campaign and the tenure.
type candidate struct {
	// Set by New, never changed.
	cfg        Config // with its defaults
	identity   string
	tryTimeout time.Duration // of one request
	client     *client
	wall       func() time.Time // time.Now, or what a test of clock jumps sets
	random     func() float64   // lifecycle.Random, or what a repeatable test sets

	// Each has a lock of its own.
	view     *view
	stats    counters
	failures failures

	// Atomic.
	mayWrite atomic.Bool            // the server's last answer to a write, or to a dry run, was not Forbidden
	tenure   atomic.Pointer[tenure] // of the lead function that Run waits for; nil at all other times
}

func (c *candidate) now() election.Instant {
	return election.Instant{Mono: time.Now(), Wall: c.wall().Round(0)}
}

// pace is the time between two tries of a candidate.
func (c *candidate) pace() time.Duration { return scale(c.cfg.RetryPeriod, 1+0.2*c.random()) }

func (c *candidate) String() string { return c.cfg.Namespace + "/" + c.cfg.Name }

// look reads the Lease once. It returns nil and no error if the Lease does not exist.
func (c *candidate) look(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tryTimeout)
	defer cancel()
	lease, err := c.client.get(ctx)
	c.note(ctx, "look", err)
	if err == nil {
		c.see(ctx, lease, "")
	}
	return lease, err
}

// see updates the view, and logs what people need to know of it; for after see [view.see].
func (c *candidate) see(ctx context.Context, lease *coordinationv1.Lease, after string) {
	last := c.view.get().lease
	if !c.view.see(lease, after, c.random()) || lease == nil || value(lease.Spec.HolderIdentity) == "" {
		return
	}
	logger, holder := klog.FromContext(ctx), value(lease.Spec.HolderIdentity)
	if last == nil || value(last.Spec.HolderIdentity) != holder {
		logger.Info("The lease has a new holder", "lease", c.String(), "holder", kube.Brief(holder), "transitions",
			value(lease.Spec.LeaseTransitions))
	}
	if d := durationOf(lease); d <= 0 || d > c.cfg.MaxLeaseDuration {
		c.stats.count(func(s *Stats) { s.OddDurations++ })
		logger.Info("The lease records a duration that is zero or above MaxLeaseDuration; waiting for another one",
			"lease", c.String(), "duration", d, "wait", c.view.get().fullWait(c.cfg))
	}
}

// release releases the Lease, if it is still the token's, with a text for the next leader. It must not be called while
// the work of that token runs. It tries for StopGrace at most; a Lease that it could not release expires.
func (c *candidate) release(ctx context.Context, lease *coordinationv1.Lease, token Token, text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.StopGrace)
	defer cancel()
	for token.names(lease) {
		answer, err := c.client.update(ctx, withHandover(released(lease, c.wall()), token, text))
		if err == nil {
			c.stats.count(func(s *Stats) { s.Releases++ })
			c.see(ctx, answer, "")
			return
		}
		klog.FromContext(ctx).V(2).Info("Releasing the lease failed", "lease", c.String(), "err", err)
		if !apierrors.IsConflict(err) && !lifecycle.Sleep(ctx, c.cfg.RetryPeriod/10) {
			return
		}
		if current, err := c.look(ctx); err == nil {
			lease = current
		}
	}
}
