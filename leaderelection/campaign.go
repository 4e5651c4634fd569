package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// A campaign is what a candidate does to become the leader. Only the goroutine that has called Run uses received.
type campaign struct {
	*candidate
	// received is what the tenure of the last attempt to acquire the Lease begins with; zero once a lead function was
	// called, since the handover does not know what that has done.
	received handover
}

// run waits until the Lease is free, or has stood unchanged for long enough, and acquires it.
func (c *campaign) run(ctx context.Context) (*tenure, error) {
	klog.FromContext(ctx).Info("Campaigning", "lease", c.String(), "identity", c.identity)
	var notBefore, checkAgain time.Time // of the next write, and of the next dry run
	for ctx.Err() == nil {
		o, now, pause := c.view.get(), time.Now(), c.cfg.RetryPeriod
		if o.known {
			pause = max(o.acquireIn(c.cfg, now), notBefore.Sub(now))
		}
		if pause > 0 {
			if o.lease != nil && o.wait(c.cfg) > 0 && !c.mayWrite.Load() && !now.Before(checkAgain) {
				checkAgain = now.Add(c.pace())
				c.checkPermission(ctx, o.lease)
			}
			idle, cancel := context.WithTimeout(ctx, min(pause, c.cfg.RetryPeriod))
			select {
			case <-o.changed:
			case <-idle.Done():
			}
			cancel()
			continue
		}
		if o.absent() && !o.trusted(c.cfg) {
			c.createFree(ctx, o)
		} else if t := c.acquire(ctx, o); t != nil && t.valid() && ctx.Err() == nil {
			return t, nil // a tenure that is over already is of a process that was paused
		}
		notBefore = time.Now().Add(c.pace())
	}
	return nil, c.neverLed(ctx)
}

// createFree creates a Lease without a holder where there was none, so that there is a version to wait for. If earlier
// Leases told how long to wait, the new one records that, for candidates that have not seen them.
func (c *campaign) createFree(ctx context.Context, o observation) {
	try, cancel := context.WithTimeout(ctx, c.tryTimeout)
	defer cancel()
	klog.FromContext(ctx).Info("There is no Lease. Creating one without a holder, and waiting as long as if it were "+
		"held, because one may have been deleted under a leader", "lease", c.String(), "wait", o.fullWait(c.cfg))
	free := &coordinationv1.Lease{ObjectMeta: c.meta()}
	if o.longest > 0 {
		free.Spec.LeaseDurationSeconds = new(int32(o.longest / time.Second))
	}
	lease, err := c.client.create(try, free)
	if apierrors.IsAlreadyExists(err) { // another challenger was faster
		lease, err = c.client.get(try)
	}
	c.note(try, "acquire", err)
	if err == nil {
		c.see(ctx, lease, "")
	}
}

func (c *campaign) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.cfg.Namespace, Name: c.cfg.Name}
}

// acquire tries once to write the Lease with this candidate as its holder, provided that it still is what was observed.
// The end of ctx does not cut the request off: the outcome would be unknown then.
func (c *campaign) acquire(ctx context.Context, o observation) *tenure {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.tryTimeout)
	defer cancel()
	sent := c.now()
	attempt := acquired(o.lease, c.meta(), c.identity, c.cfg.LeaseDuration, sent.Wall)
	c.view.attempting(attempt)
	switch {
	case o.mine: // an earlier attempt, under which nothing was done: what it has received still holds
	case o.lease != nil && isReleased(o.lease):
		c.received = handover{text: handoverOf(o.lease)}
	default:
		c.received = handover{waited: !o.trusted(c.cfg)}
	}

	write := c.client.update
	if o.lease == nil {
		write = c.client.create
	}
	lease, err := write(try, attempt)
	if err == nil && value(lease.Spec.HolderIdentity) != c.identity {
		err = fmt.Errorf("the server stored another holder than the one it was sent: %q",
			kube.Brief(value(lease.Spec.HolderIdentity)))
	}
	c.noteWrite(ctx, err)
	switch {
	case err == nil:
		c.see(ctx, lease, "")
		return c.newTenure(ctx, sent, lease, c.received)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || o.lease != nil && apierrors.IsNotFound(err):
		// Another candidate was faster. That is no failure; the wait begins again with what is there now.
		c.stats.count(func(s *Stats) { s.LostRaces++ })
		_, _ = c.look(try)
	}
	return nil
}

// checkPermission asks the server by a dry run whether this candidate may update the Lease. A standby that may not is
// not ready, and should not find that out only when it is needed.
func (c *campaign) checkPermission(ctx context.Context, lease *coordinationv1.Lease) {
	try, cancel := context.WithTimeout(ctx, c.cfg.RetryPeriod/2) // the Lease may become free meanwhile
	defer cancel()
	c.noteWrite(try, c.client.dryRun(try, lease))
}

// noteWrite notes the outcome of a write that would acquire the Lease, or of a dry run. An error about the Lease's
// state comes from a server that has authorized the request.
func (c *campaign) noteWrite(ctx context.Context, err error) {
	var denied *DeniedError
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err),
		apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		c.mayWrite.Store(true)
		err = nil
	case errors.As(err, &denied):
		c.mayWrite.Store(false)
	}
	c.note(ctx, "acquire", err)
}

// neverLed ends a campaign whose ctx has ended. If a write whose answer was lost has acquired the Lease all the same,
// it releases it, with the handover that the write found, since nothing was done meanwhile.
func (c *campaign) neverLed(ctx context.Context) error {
	if c.view.uncertain() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, _ = c.look(short)
		cancel()
	}
	if o := c.view.get(); o.mine {
		c.release(ctx, o.lease, tokenOf(o.lease), c.received.text)
	}
	f := c.failures.denied()
	if f.err == nil && !c.view.get().known {
		f = c.failures.any()
	}
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("leaderelection: %s: %w before this candidate could lead: %w", c, context.Cause(ctx), f.err)
}
