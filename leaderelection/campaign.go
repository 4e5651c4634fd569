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
)

// campaign waits for the Lease to become free, or to stand unchanged for long enough, and takes it.
func (e *Elector) campaign(ctx context.Context) (*tenure, error) {
	klog.FromContext(ctx).Info("Campaigning", "lease", e.String(), "identity", e.identity)
	var notBefore, askAgain time.Time
	for ctx.Err() == nil {
		o, now, pause := e.view.get(), time.Now(), e.cfg.RetryPeriod
		if refusal := e.failures.denied(); e.cfg.DeniedTimeout > 0 && refusal.lasts(now) >= e.cfg.DeniedTimeout {
			return nil, refusal.err
		}
		if o.known {
			pause = max(o.acquireIn(e.cfg, now), notBefore.Sub(now))
		}
		if pause > 0 {
			if o.lease != nil && o.wait(e.cfg) > 0 && !e.mayWrite.Load() && !now.Before(askAgain) {
				askAgain = now.Add(e.pace())
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
			return t, nil // if it is over already, the process was paused, or a hook was slow
		}
		notBefore = time.Now().Add(e.pace())
	}
	return nil, e.neverLed(ctx)
}

// found makes a Lease that nobody holds, where there was none, so that there is a version to wait for. It says how long
// to wait, if that is known of the Leases before, for those who have not seen them.
func (e *Elector) createFree(ctx context.Context, o observation) {
	try, cancel := context.WithTimeout(ctx, e.tryTimeout)
	defer cancel()
	klog.FromContext(ctx).Info("There is no lease: making one, and waiting as long as if it were held, since one "+
		"may have been deleted under a leader",
		"lease", e.String(), "wait", o.fullWait(e.cfg))
	free := &coordinationv1.Lease{ObjectMeta: e.meta()}
	if o.longest > 0 {
		free.Spec.LeaseDurationSeconds = new(int32(o.longest / time.Second))
	}
	lease, err := e.client.create(try, free)
	if apierrors.IsAlreadyExists(err) { // another challenger was faster
		lease, err = e.client.get(try)
	}
	e.note(try, "take", err)
	if err == nil {
		e.see(ctx, lease, "")
	}
}

func (e *Elector) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name}
}

// take tries to make the Lease ours, once, provided that it still is what was observed. It is not cut short by the end
// of ctx: then nobody would know whether the server did it.
func (e *Elector) acquire(ctx context.Context, o observation) *tenure {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.tryTimeout)
	defer cancel()
	sent := e.now()
	claim := acquired(o.lease, e.meta(), e.identity, e.cfg.LeaseDuration, sent.wall)
	received := e.view.attempting(claim, o, e.cfg)

	write := e.client.update
	if o.lease == nil {
		write = e.client.create
	}
	lease, err := write(try, claim)
	if err == nil && value(lease.Spec.HolderIdentity) != e.identity {
		err = fmt.Errorf("the server stored another holder than the one it was sent: %q",
			clip(value(lease.Spec.HolderIdentity)))
	}
	switch {
	case err == nil:
		e.noteWrite(ctx, nil)
		e.see(ctx, lease, "")
		return e.newTenure(ctx, sent, lease, received)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || o.lease != nil && apierrors.IsNotFound(err):
		// somebody else was faster, which is no trouble; the wait starts again with what is there now
		e.noteWrite(ctx, err)
		e.stats.count(func(s *Stats) { s.LostRaces++ })
		_, _ = e.look(try)
	default:
		e.noteWrite(ctx, err)
	}
	return nil
}

// checkPermission asks the server whether this candidate may write the Lease, by a dry run, while there is no other reason to
// try. A standby that may not is not ready, and must not find out when it is needed.
func (e *Elector) checkPermission(ctx context.Context, lease *coordinationv1.Lease) {
	try, cancel := context.WithTimeout(ctx, e.cfg.RetryPeriod/2) // the Lease may become free meanwhile
	defer cancel()
	e.noteWrite(try, e.client.dryRun(try, lease))
}

// noteWrite notes the outcome of a try to write the Lease, or of a dry run. An answer that has to do with what the Lease
// is like comes from a server that has let the request pass.
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
	e.note(ctx, "take", err)
}

// neverLed is the end of a campaign that came to nothing because ctx ended. A claim whose answer was lost may have
// succeeded all the same. It is released with the word that it was to begin with, for nothing was done since.
func (e *Elector) neverLed(ctx context.Context) error {
	if o := e.view.get(); o.mine {
		e.release(ctx, o.lease, tokenOf(o.lease), e.view.receivedWord())
	} else if e.view.uncertain() {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if lease, err := e.look(brief); err == nil && e.view.get().mine {
			e.release(ctx, lease, tokenOf(lease), e.view.receivedWord())
		}
	}
	t := e.failures.denied()
	if t.err == nil && !e.view.get().known {
		t = e.failures.any()
	}
	if t.err == nil {
		return nil
	}
	return fmt.Errorf("leaderelection: %s: %w before this candidate could lead: %w", e, context.Cause(ctx), t.err)
}
