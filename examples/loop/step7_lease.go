package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	retryPeriod   = 2 * time.Second  // how often the leader renews the Lease, and the others try to get it
	renewDeadline = 10 * time.Second // how long the leader works without a renewal; less than leaseDuration
	leaseDuration = 15 * time.Second // how long the others wait for a leader that does not renew
)

// Step 7: a Lease. Of several processes only one works: the leader, whose name is in the Lease.
func step7(ctx context.Context, c cluster) error {
	me := candidate{leases: c.leases, name: rand.Text()}
	sent, err := me.tryToLead(ctx)
	for ; err != nil; sent, err = me.tryToLead(ctx) {
		if !sleep(ctx, retryPeriod) {
			return nil
		}
	}
	log.Printf("%s leads", me.name)
	leading, stop := context.WithCancel(ctx)
	defer stop()
	deadline := time.AfterFunc(time.Until(sent.Add(renewDeadline)), stop)
	var g sync.WaitGroup
	g.Go(func() { _ = step6(leading, c) })
	for sleep(leading, retryPeriod) {
		sent, err := me.tryToLead(leading)
		if err == nil {
			deadline.Reset(time.Until(sent.Add(renewDeadline)))
		} else if errors.Is(err, errHeld) {
			stop()
		}
	}
	g.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the Lease is lost; whoever runs this process has to start it again")
}

// candidate is a process that wants to lead.
type candidate struct {
	leases coordinationclient.LeaseInterface
	name   string

	version string    // of the Lease, as it was read last
	since   time.Time // when that version was first read
}

var errHeld = errors.New("another process holds the Lease")

// tryToLead writes the candidate's name and the time into the Lease, unless another process has done so lately. It
// returns when it began to: the others may have read the new time before we get the answer.
func (l *candidate) tryToLead(ctx context.Context) (sent time.Time, err error) {
	sent = time.Now()
	lease, err := l.leases.Get(ctx, label, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: label}}
		lease.Spec = l.claim(sent)
		_, err = l.leases.Create(ctx, lease, metav1.CreateOptions{})
		return sent, err
	case err != nil:
		return sent, err
	case lease.ResourceVersion != l.version:
		l.version, l.since = lease.ResourceVersion, time.Now() // and not sent: the request may have taken long
	}
	// Clocks of two machines differ. So we measure how long the Lease has not changed, by our own clock, and do not
	// look at the time that the other process has written.
	holder := lease.Spec.HolderIdentity
	if holder != nil && *holder != l.name && time.Since(l.since) < leaseDuration {
		return sent, errHeld
	}
	lease.Spec = l.claim(sent)
	_, err = l.leases.Update(ctx, lease, metav1.UpdateOptions{}) // the server refuses it if somebody was faster
	return sent, err
}

func (l *candidate) claim(now time.Time) coordinationv1.LeaseSpec {
	seconds, at := int32(leaseDuration.Seconds()), metav1.NewMicroTime(now)
	return coordinationv1.LeaseSpec{HolderIdentity: &l.name, LeaseDurationSeconds: &seconds, RenewTime: &at}
}
