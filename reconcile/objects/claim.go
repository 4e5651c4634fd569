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

// Claim returns those of the candidates that are the owner's. wanted tells which ones the owner wants, mostly by their
// labels; their owner references tell which ones it has. Where the two disagree, Claim changes the reference:
//
//	controlled by   wanted     not wanted
//	the owner       kept       released
//	nothing         adopted    -
//	another         -          -
//
// So no owner takes an object from another, and an object that its owner does not want is free for others to adopt. An
// owner that is being deleted neither adopts nor releases, since the garbage collector goes by the references that it
// finds; what it controls and wants is kept. A candidate that is being deleted, or lives in another namespace than the
// owner, is not adopted.
//
//	mine, err := objects.Claim(ctx, owner, clientset.CoreV1().Pods(rs.Namespace), podsByOwner.Get(rs.UID),
//		func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) })
//
// Leave out candidates whose references should stay as they are, such as pods that have ended.
//
// The cache may still show an owner that is gone, and the garbage collector deletes what is adopted for a deleted
// owner. So Claim asks the server for the owner before the first adoption, once in each call. Each write holds only for
// the UID of the candidate and the references that were seen, so it changes neither a namesake nor a reference that
// another client has set meanwhile. An owner may still be deleted between the question and the write; what was adopted
// then has the UID of the old owner, and the garbage collector deletes it.
//
// Claim tries all candidates, even if one fails. But after any failure it returns an error and no result: a caller
// that saw only a part of what it has would create too much. It is no failure if a candidate is gone, or if the
// references of one that is to be released have changed. If the references of one that is to be adopted have changed,
// that is a failure, 422 Invalid. Repeating the call is harmless, after a timeout as well. The candidates are not
// changed; adopted ones are returned as the server has them now.
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
		mine     []T
		failures []error
		checked  bool  // the server was asked for the owner
		alive    error // nil if the owner may adopt; set once checked
	)
	for o := range candidates {
		switch owner.decide(o, wanted(o)) {
		case kept:
			mine = append(mine, o)
		case adopted:
			if !checked {
				checked = true
				if alive = owner.confirmAlive(ctx); alive != nil {
					failures = append(failures, fmt.Errorf("adopt for %s: %w", owner, alive))
				}
			}
			if alive != nil {
				continue
			}
			now, err := changeMetadata(ctx, client, o, owner.adopting(o))
			switch {
			case err == nil:
				mine = append(mine, now)
			case !errors.Is(gone(o.GetName(), err), ErrGone):
				failures = append(failures, fmt.Errorf("adopt %s for %s: %w", informer.KeyOf(o), owner, err))
			}
		case released:
			_, err := changeMetadata(ctx, client, o, owner.releasing(o))
			// Invalid: the candidate or its references have changed. An event will show how.
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

// decision is what Claim does with a candidate.
type decision uint8

const (
	ignored decision = iota
	kept
	adopted
	released
)

func (o *Owner) decide(child metav1.Object, wanted bool) decision {
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
