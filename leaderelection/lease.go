package leaderelection

import (
	"fmt"
	"math"
	"time"

	"github.com/thermostat-go/thermostat/internal/kube"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Token names one tenure. Of two tenures of one Lease the later one has the higher Transitions, unless somebody lowered
// them by hand between the two; a Lease that was deleted and made anew has another LeaseUID. A store that keeps the
// highest token it has seen can refuse the writes of an earlier leader: the only complete protection there is, and one
// that the Kubernetes API server does not offer.
type Token struct {
	LeaseUID    types.UID
	Transitions int32
	Holder      string
}

func (t Token) String() string { return fmt.Sprintf("%s/%d/%s", t.LeaseUID, t.Transitions, t.Holder) }

// names reports whether the Lease is the very one that the token was given for, unchanged in every field that says who
// leads. A nil Lease, one that does not exist, is nobody's.
func (t Token) names(lease *coordinationv1.Lease) bool { return lease != nil && tokenOf(lease) == t }

func tokenOf(lease *coordinationv1.Lease) Token {
	return Token{LeaseUID: lease.UID, Transitions: value(lease.Spec.LeaseTransitions),
		Holder: value(lease.Spec.HolderIdentity)}
}

// claimed returns the Lease as it is written by a candidate that takes it: field by field what client-go's elector
// writes. base is nil when there is no Lease yet. Everything that is not the record (labels, annotations, owners) is
// kept, but for the last leader's word: it is for this take alone. The two times differ, if only by the smallest step
// there is, so that edits by hand of the other fields do not make a mark of a release out of it.
func acquired(base *coordinationv1.Lease, meta metav1.ObjectMeta, holder string, duration time.Duration,
	now time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: meta}
	term := int32(0)
	if base != nil {
		lease = base.DeepCopy()
		delete(lease.Annotations, handoverAnnotation)
		// beyond it the API server would refuse the record for ever
		if term = value(base.Spec.LeaseTransitions); term < math.MaxInt32 {
			term++
		} else {
			term = 0
		}
	}
	lease.Spec = record(holder, duration, term, now, now.Add(time.Microsecond))
	return lease
}

// renewed returns the Lease as its holder writes it again. A client-go challenger sees that a record has changed only
// if its times differ by whole seconds, so renewTime moves on by at least one.
func renewed(base *coordinationv1.Lease, duration time.Duration, now time.Time) *coordinationv1.Lease {
	lease := base.DeepCopy()
	if next := value(base.Spec.RenewTime).Add(time.Second); now.Before(next) {
		now = next
	}
	lease.Spec = record(value(base.Spec.HolderIdentity), duration, value(base.Spec.LeaseTransitions),
		value(base.Spec.AcquireTime).Time, now)
	return lease
}

// released returns the Lease as its holder gives it up: the mark that everybody may take it at once, and that
// client-go's elector writes as well. The term stays; the next holder raises it.
func released(base *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	lease := base.DeepCopy()
	lease.Spec = record("", time.Second, value(base.Spec.LeaseTransitions), now, now)
	return lease
}

// isReleased recognises what released writes, all of it. A record whose holder was merely wiped out by hand is not
// released: somebody may still be at work under it.
func isReleased(lease *coordinationv1.Lease) bool {
	s := &lease.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity == "" && value(s.LeaseDurationSeconds) == 1 &&
		s.AcquireTime != nil && s.RenewTime != nil && s.AcquireTime.Equal(s.RenewTime)
}

// isPristine recognises a Lease that was made, by a manifest or by a challenger that found none, but never held.
func isPristine(lease *coordinationv1.Lease) bool { return lease.Spec == coordinationv1.LeaseSpec{} }

func record(holder string, duration time.Duration, term int32, acquired, renewed time.Time) coordinationv1.LeaseSpec {
	seconds := int32(duration / time.Second)
	return coordinationv1.LeaseSpec{
		HolderIdentity:       &holder,
		LeaseDurationSeconds: &seconds,
		// what the API keeps, so that both can be compared
		AcquireTime:      &metav1.MicroTime{Time: acquired.Truncate(time.Microsecond)},
		RenewTime:        &metav1.MicroTime{Time: renewed.Truncate(time.Microsecond)},
		LeaseTransitions: &term,
	}
}

// durationOf is how long a record asks challengers to wait; zero if there is no Lease.
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

// older reports that a is an earlier version of the Lease that b is a version of.
func older(a, b *coordinationv1.Lease) bool {
	return a != nil && b != nil && a.UID == b.UID && kube.Older(a.ResourceVersion, b.ResourceVersion)
}

// sameState reports whether two looks at the Lease showed the same: the same resourceVersion of the same object, or
// nothing twice.
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
