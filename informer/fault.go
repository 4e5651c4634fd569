package informer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer/internal/wire"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// fault is a kind of error that ends a list or a watch. This table says what follows a watch that has ended so. A list
// that has failed is followed by another list.
//
//	fault        the error                                           then                    the cache is
//	lost         silence, a broken connection, an unknown error      watch                   Stale
//	unreachable  no answer                                           watch                   Stale
//	busy         429, 503, Retry-After, a timeout called temporary   watch                   Stale
//	denied       401, 403                                            watch                   Denied
//	missing      404                                                 list                    Missing
//	outdated     410, an answer that cannot be true or is too large  list                    Stale
//	garbled      an event that cannot be decoded                     watch; list the second  Stale
//	                                                                 time at one version
//	refused      any other answer: 400, 405, 422, 500, 504           watch; list the second  Stale; Failed after
//	                                                                 time in a row, and      maxVain lists that
//	                                                                 then every 1 s to 5 min no watch followed
//
// It is tried after a pause that grows from failure to failure, up to 30 s, and begins anew once a watch has lived for
// longLived; what the server asks for in Retry-After comes on top. A cache without a complete list is not Stale but
// Failed. A watch that has only ended soon is no failure.
type fault int

const (
	lost fault = iota
	unreachable
	busy
	denied
	missing
	outdated
	garbled
	refused
)

func faultOf(err error) fault {
	var network net.Error // a request without an answer has such an error
	var answer apierrors.APIStatus
	_, later := apierrors.SuggestsClientDelay(err)
	switch {
	case errors.Is(err, wire.ErrViolation) || errors.Is(err, ErrTooLarge) || apierrors.IsResourceExpired(err) ||
		apierrors.IsGone(err):
		return outdated
	case errors.Is(err, wire.ErrUndecodable):
		return garbled
	case errors.As(err, &network) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return unreachable
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return denied
	case apierrors.IsNotFound(err):
		return missing
	case later || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err):
		return busy
	case errors.As(err, &answer) && !errors.Is(err, errUnversioned):
		return refused
	}
	return lost
}

// state returns the state that a fault means by itself.
func (f fault) state() State {
	switch f {
	case denied:
		return Denied
	case missing:
		return Missing
	}
	return ""
}

// failed records an error, decides on what follows, and returns how long to wait.
func (r *reflector[T]) failed(err error) lifecycle.Delay {
	if errors.Is(err, errShortLived) {
		// The watch only ended early, and the cache is up to date. But a server that closes every watch at once looks
		// the same.
		if r.barren >= maxBarren {
			r.health.failed(fmt.Errorf("%w, %d times in a row, before anything had come", err, r.barren), "")
		}
		return r.reconnect.After(kube.RetryAfter(err))
	}
	r.log.V(2).Info("List or watch failed", "err", err, "resourceVersion", r.resourceVersion)
	f, retryAfter, watched := faultOf(err), kube.RetryAfter(err), r.resourceVersion != ""
	as := f.state()
	switch {
	case f == missing || f == outdated:
		r.resourceVersion = ""
	case f == garbled && watched:
		r.doubtEvent()
	case f == refused && watched:
		// It may be the version that the server has something against, so the second refusal leads to a list. If the
		// resource cannot be watched at all, lists are all that there is.
		if r.refusals++; r.refusals > 1 && !time.Now().Before(r.listDue) {
			r.resourceVersion = ""
			r.listDue = time.Now().Add(r.listPace.Next())
		}
		if r.vain >= maxVain {
			err, as = fmt.Errorf("the resource can be listed, and cannot be watched: %w", err), Failed
		}
	}
	switch {
	case errors.Is(err, errWentBack):
		r.doubts = maxDoubts
	case tooLarge(err):
		r.doubts++
	}
	r.health.failed(err, as)
	pace := &r.reconnect
	if r.resourceVersion == "" {
		pace = &r.relist
	}
	return pace.After(retryAfter)
}

// doubtEvent records that the event after the present version could not be read. A broken connection looks the same. If
// it happens twice at one version, it is the event itself, and a list goes past it.
func (r *reflector[T]) doubtEvent() {
	if r.garbledAt == r.resourceVersion {
		r.resourceVersion = ""
	}
	r.garbledAt = r.resourceVersion
}

// hitsPlainLists reports whether a plain list would meet the error of a streamed list as well: the server cannot be
// reached, refuses, does not know the resource, or asks for a later try.
func hitsPlainLists(err error) bool {
	switch faultOf(err) {
	case unreachable, busy, denied, missing:
		return true
	}
	return errors.Is(err, errWentBack) || apierrors.IsTimeout(err)
}

// tooLarge reports whether an error says that the server, or its storage, has not reached a version yet.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
