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

// campaign waits until the Lease is free, or has stood unchanged for long enough, and acquires it.
func (e *Elector) campaign(ctx context.Context) (*tenure, error) {
	klog.FromContext(ctx).Info("Campaigning", "lease", e.String(), "identity", e.identity)
	var notBefore, checkAgain time.Time
	for ctx.Err() == nil {
		o, now, pause := e.view.get(), time.Now(), e.cfg.RetryPeriod
		if refusal := e.failures.denied(); e.cfg.DeniedTimeout > 0 && refusal.age(now) >= e.cfg.DeniedTimeout {
			return nil, refusal.err
		}
		if o.known {
			pause = max(o.acquireIn(e.cfg, now), notBefore.Sub(now))
		}
		if pause > 0 {
			if o.lease != nil && o.wait(e.cfg) > 0 && !e.mayWrite.Load() && !now.Before(checkAgain) {
				checkAgain = now.Add(e.pace())
				e.checkPermission(ctx, o.lease)
			}
			idle, cancel := context.WithTimeout(ctx, min(pause, e.cfg.RetryPeriod))
			select {
			case <-o.changed:
			case <-idle.Done():
			}
			cancel()
			continue
		}
		if o.absent() && !o.trusted(e.cfg) {
			e.createFree(ctx, o)
		} else if t := e.acquire(ctx, o); t != nil && t.valid() && ctx.Err() == nil {
			return t, nil // a tenure that is over already is of a process that was paused
		}
		notBefore = time.Now().Add(e.pace())
	}
	return nil, e.neverLed(ctx)
}

// createFree creates a Lease without a holder where there was none, so that there is a version to wait for. If earlier
// Leases told how long to wait, the new one records that, for candidates that have not seen them.
func (e *Elector) createFree(ctx context.Context, o observation) {
	try, cancel := context.WithTimeout(ctx, e.tryTimeout)
	defer cancel()
	klog.FromContext(ctx).Info("There is no Lease. Creating one without a holder, and waiting as long as if it were "+
		"held, because one may have been deleted under a leader", "lease", e.String(), "wait", o.fullWait(e.cfg))
	free := &coordinationv1.Lease{ObjectMeta: e.meta()}
	if o.longest > 0 {
		free.Spec.LeaseDurationSeconds = new(int32(o.longest / time.Second))
	}
	lease, err := e.client.create(try, free)
	if apierrors.IsAlreadyExists(err) { // another challenger was faster
		lease, err = e.client.get(try)
	}
	e.note(try, "acquire", err)
	if err == nil {
		e.see(ctx, lease, "")
	}
}

func (e *Elector) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name}
}

// acquire tries once to write the Lease with this candidate as its holder, provided that it still is what was observed.
// The end of ctx does not cut the request off: the outcome would be unknown then.
func (e *Elector) acquire(ctx context.Context, o observation) *tenure {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.tryTimeout)
	defer cancel()
	sent := e.now()
	attempt := acquired(o.lease, e.meta(), e.identity, e.cfg.LeaseDuration, sent.wall)
	received := e.view.attempting(attempt, o, e.cfg)

	write := e.client.update
	if o.lease == nil {
		write = e.client.create
	}
	lease, err := write(try, attempt)
	if err == nil && value(lease.Spec.HolderIdentity) != e.identity {
		err = fmt.Errorf("the server stored another holder than the one it was sent: %q",
			kube.Brief(value(lease.Spec.HolderIdentity)))
	}
	e.noteWrite(ctx, err)
	switch {
	case err == nil:
		e.see(ctx, lease, "")
		return e.newTenure(ctx, sent, lease, received)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || o.lease != nil && apierrors.IsNotFound(err):
		// Another candidate was faster. That is no failure; the wait begins again with what is there now.
		e.stats.count(func(s *Stats) { s.LostRaces++ })
		_, _ = e.look(try)
	}
	return nil
}

// checkPermission asks the server by a dry run whether this candidate may update the Lease. A standby that may not is
// not ready, and should not find that out only when it is needed.
func (e *Elector) checkPermission(ctx context.Context, lease *coordinationv1.Lease) {
	try, cancel := context.WithTimeout(ctx, e.cfg.RetryPeriod/2) // the Lease may become free meanwhile
	defer cancel()
	e.noteWrite(try, e.client.dryRun(try, lease))
}

// noteWrite notes the outcome of a write that would acquire the Lease, or of a dry run. An error about the Lease's
// state comes from a server that has authorized the request.
func (e *Elector) noteWrite(ctx context.Context, err error) {
	var denied *DeniedError
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err),
		apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		e.mayWrite.Store(true)
		err = nil
	case errors.As(err, &denied):
		e.mayWrite.Store(false)
	}
	e.note(ctx, "acquire", err)
}

// neverLed ends a campaign whose ctx has ended. If a write whose answer was lost has acquired the Lease all the same,
// it releases it, with the handover that the write found, since nothing was done meanwhile.
func (e *Elector) neverLed(ctx context.Context) error {
	if e.view.uncertain() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, _ = e.look(short)
		cancel()
	}
	if o := e.view.get(); o.mine {
		e.release(ctx, o.lease, tokenOf(o.lease), e.view.received().word)
	}
	f := e.failures.denied()
	if f.err == nil && !e.view.get().known {
		f = e.failures.any()
	}
	if f.err == nil {
		return nil
	}
	return fmt.Errorf("leaderelection: %s: %w before this candidate could lead: %w", e, context.Cause(ctx), f.err)
}
