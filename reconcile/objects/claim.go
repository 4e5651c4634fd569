package objects

import (
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
)

// Claim finds out which of the candidates are the owner's, and returns them. Which ones the owner wants is what wanted
// says, mostly by labels; which ones it has is what their owner references say. Where the two disagree, Claim changes
// the reference:
//
//	controlled by   wanted     not wanted
//	the owner       kept       released
//	nobody          adopted    -
//	another         -          -
//
// So nobody takes from another, and what nobody wants is let go for others to adopt. An owner that is being deleted
// neither adopts nor releases, since the garbage collector goes by the references that it finds; what it controls and
// wants is kept. Neither is something adopted that is being deleted itself, or that lives in another namespace than its
// owner.
//
//	mine, err := objects.Claim(ctx, owner, clientset.CoreV1().Pods(rs.Namespace), podsByOwner.Get(rs.UID), func(p *corev1.Pod) bool {
//		return selector.Matches(labels.Set(p.Labels))
//	})
//
// Leave out candidates that should stay whose they are, such as pods that have ended: nothing is done about what Claim
// does not see.
//
// The cache may still show an owner that is gone, and whoever adopts for the dead hands the adopted to the garbage
// collector. So before the first adoption the server is asked, once in each call. Each write is conditional on the UID
// of the candidate and on the references that were seen, so it changes neither a namesake nor a reference that somebody
// else has set meanwhile.
//
// All candidates get their turn, whatever happens to one; but if anything went wrong there is an error and no result,
// because acting on half of what one has is how too much is created. What was gone before it could be adopted or
// released is not an error, and neither is a release that came too late; an adoption that did is one, 422 Invalid.
// Repeating the call is harmless, after a timeout as well. The candidates are not changed; those adopted are returned
// as the server has them now.
func Claim[T informer.Object](ctx context.Context, owner *Owner, client Patcher[T], candidates iter.Seq[T],
	wanted func(T) bool) ([]T, error) {
	switch err := owner.check(); {
	case err != nil:
		return nil, fmt.Errorf("Claim: %w", err)
	case client == nil:
		return nil, errors.New("Claim: the client is nil")
	case candidates == nil:
		return nil, errors.New("Claim: the candidates are nil")
	case wanted == nil:
		return nil, errors.New("Claim: the function is nil")
	}
	var (
		mine      []T
		failures  []error
		asked     bool
		confirmed error // of use once asked
	)
	for o := range candidates {
		switch owner.judge(o, wanted(o)) {
		case kept:
			mine = append(mine, o)
		case adopted:
			if !asked {
				asked = true
				if confirmed = owner.confirm(ctx); confirmed != nil {
					failures = append(failures, fmt.Errorf("adopt for %s: %w", owner, confirmed))
				}
			}
			if confirmed != nil {
				continue
			}
			refs := o.GetOwnerReferences()
			now, err := replaceList(ctx, client, o, "ownerReferences", refs, owner.added(refs))
			switch {
			case err == nil:
				mine = append(mine, now)
			case !errors.Is(gone(o.GetName(), err), ErrGone):
				failures = append(failures, fmt.Errorf("adopt %s for %s: %w", informer.KeyOf(o), owner, err))
			}
		case released:
			refs := o.GetOwnerReferences()
			_, err := replaceList(ctx, client, o, "ownerReferences", refs, owner.removed(refs))
			// Invalid says that the candidate or its references are not what was seen. An event will tell what they
			// are.
			if err != nil && !errors.Is(gone(o.GetName(), err), ErrGone) && !apierrors.IsInvalid(err) {
				failures = append(failures, fmt.Errorf("release %s from %s: %w", informer.KeyOf(o), owner, err))
			}
		}
	}
	if len(failures) > 0 {
		return nil, errors.Join(failures...)
	}
	return mine, nil
}

// verdict is what becomes of a candidate.
type verdict uint8

const (
	ignored verdict = iota
	kept
	adopted
	released
)

func (o *Owner) judge(child metav1.Object, wanted bool) verdict {
	ours, taken := o.controls(child)
	switch {
	case ours && wanted:
		return kept
	case o.deleting:
		return ignored
	case ours:
		return released
	case !taken && wanted && child.GetDeletionTimestamp() == nil && o.reaches(child.GetNamespace()):
		return adopted
	default:
		return ignored
	}
}
