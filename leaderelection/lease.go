package leaderelection

import (
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/kube"
)

// Token names one tenure. Of two tenures of one Lease the later one has the higher Transitions, unless they were
// lowered by hand between the two; a Lease that was deleted and created again has another LeaseUID. A store that keeps
// the highest token it has seen can refuse the writes of an earlier leader. That is the only complete protection there
// is, and the Kubernetes API server does not offer it.
type Token struct {
	LeaseUID    types.UID
	Transitions int32
	Holder      string
}

func (t Token) String() string { return fmt.Sprintf("%s/%d/%s", t.LeaseUID, t.Transitions, t.Holder) }

// names reports whether the Lease is the one that the token was given for, unchanged in every field that says who
// leads. A nil Lease, one that does not exist, is not.
func (t Token) names(lease *coordinationv1.Lease) bool { return lease != nil && tokenOf(lease) == t }

func tokenOf(lease *coordinationv1.Lease) Token {
	return Token{LeaseUID: lease.UID, Transitions: value(lease.Spec.LeaseTransitions),
		Holder: value(lease.Spec.HolderIdentity)}
}

// acquired returns the Lease as a candidate writes it to acquire it: field by field what client-go's elector writes.
// base is nil when there is no Lease yet. What is not the record (labels, annotations, owners) is kept, except for the
// last leader's text, which is for this acquisition only. The two times differ by the smallest step there is, so that
// no edit by hand of the other fields makes it look released.
func acquired(base *coordinationv1.Lease, meta metav1.ObjectMeta, holder string, duration time.Duration,
	now time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: meta}
	term := int32(0)
	if base != nil {
		lease = base.DeepCopy()
		delete(lease.Annotations, handoverAnnotation)
		// the API server would refuse every record above MaxInt32
		if term = value(base.Spec.LeaseTransitions); term < math.MaxInt32 {
			term++
		} else {
			term = 0
		}
	}
	lease.Spec = record(holder, duration, term, now, now.Add(time.Microsecond))
	return lease
}

// renewed returns the Lease as its holder renews it. A client-go challenger notices a change of the times only in whole
// seconds, so renewTime moves on by at least one.
func renewed(base *coordinationv1.Lease, duration time.Duration, now time.Time) *coordinationv1.Lease {
	lease := base.DeepCopy()
	if next := value(base.Spec.RenewTime).Add(time.Second); now.Before(next) {
		now = next
	}
	lease.Spec = record(value(base.Spec.HolderIdentity), duration, value(base.Spec.LeaseTransitions),
		value(base.Spec.AcquireTime).Time, now)
	return lease
}

// released returns the Lease as its holder releases it, in the form that client-go's elector writes as well: any
// candidate may acquire it at once. The term stays; the next holder raises it.
func released(base *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	lease := base.DeepCopy()
	lease.Spec = record("", time.Second, value(base.Spec.LeaseTransitions), now, now)
	return lease
}

// isReleased recognises all of what released writes. A record whose holder was only wiped out by hand is not released:
// that holder may still be at work.
func isReleased(lease *coordinationv1.Lease) bool {
	s := &lease.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity == "" && value(s.LeaseDurationSeconds) == 1 &&
		s.AcquireTime != nil && s.RenewTime != nil && s.AcquireTime.Equal(s.RenewTime)
}

// isPristine recognises a Lease that was created, by a manifest or by a challenger that found none, but never held.
func isPristine(lease *coordinationv1.Lease) bool { return lease.Spec == coordinationv1.LeaseSpec{} }

func record(holder string, duration time.Duration, term int32, acquired, renewed time.Time) coordinationv1.LeaseSpec {
	seconds := int32(duration / time.Second)
	return coordinationv1.LeaseSpec{
		HolderIdentity:       &holder,
		LeaseDurationSeconds: &seconds,
		// in the precision of the API, so that what was sent and what comes back can be compared
		AcquireTime:      &metav1.MicroTime{Time: acquired.Truncate(time.Microsecond)},
		RenewTime:        &metav1.MicroTime{Time: renewed.Truncate(time.Microsecond)},
		LeaseTransitions: &term,
	}
}

// durationOf returns how long a record asks challengers to wait; zero if there is no Lease.
func durationOf(lease *coordinationv1.Lease) time.Duration {
	if lease == nil {
		return 0
	}
	return time.Duration(value(lease.Spec.LeaseDurationSeconds)) * time.Second
}

// sameRecord reports whether two versions of one Lease hold the same record, and differ in their metadata at most.
func sameRecord(a, b *coordinationv1.Lease) bool {
	return a != nil && b != nil && a.UID == b.UID && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// older reports that a is an earlier version of the same Lease than b.
func older(a, b *coordinationv1.Lease) bool {
	return a != nil && b != nil && a.UID == b.UID && kube.Older(a.ResourceVersion, b.ResourceVersion)
}

// sameState reports whether two looks at the Lease showed the same resourceVersion of the same object, or both no
// Lease.
func sameState(a, b *coordinationv1.Lease) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
