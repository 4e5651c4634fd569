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

// fault is a kind of error that ends a list or a watch. This table says when a list follows a watch that has ended so;
// else the watch is tried again, from where it was. A list that has failed is followed by another list.
//
//	fault        the error                                           a list follows             the cache is
//	lost         a broken connection, an unknown error, a watch      after patience, or when a  Stale
//	             that is silent, or ends soon (see maxBarren)        2nd watch brings nothing
//	unreachable  no answer                                           after patience             Stale
//	busy         429, 503, Retry-After, a timeout called temporary   after patience             Stale
//	denied       401, 403                                            after patience             Denied
//	missing      404                                                 the 1st time               Missing
//	outdated     410, an answer that cannot be true or is too large  the 1st time               Stale
//	garbled      an event that cannot be decoded, or is cut off      the 2nd time at a version  Stale
//	refused      any other answer: 400, 405, 422, 500, 504           the 2nd time in a row      Stale
//
// A try comes after a pause that grows from failure to failure, and begins anew once a watch has lived for longLived:
// from 50 ms to 30 s before a watch (reflector.reconnect), from 0.4 to 0.8 s to 30 s before a list (reflector.relist),
// which does not begin anew while the latest complete list is younger than patience. What the server asks for in
// Retry-After comes on top. Where a list after patience is no help, the next one comes after patience again; where any
// other list is followed by no watch, the next one comes after a pause that grows from 1 to 2 s to 5 min
// (reflector.listPace). After maxVain lists without a watch the resource cannot be watched: the cache is Failed unless
// it is Denied. A cache without a complete list is not Stale but Failed. A watch that has lived for longLived, or has
// brought something, ends each row of failures. Yet a list follows after patience if each watch has ended before its
// time and brought nothing, however long it has lived.
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
	case errors.Is(err, wire.ErrUndecodable) || errors.Is(err, errCutOff):
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
	r.log.V(2).Info("List or watch failed", "err", err, "resourceVersion", r.resourceVersion)
	f, retryAfter, pace := faultOf(err), kube.RetryAfter(err), &r.relist
	r.fails()
	if r.resourceVersion != "" {
		r.failures++
		switch {
		case !r.leadsToList(f):
			pace = &r.reconnect
		case r.vain > 0 && !r.impatient():
			pace = &r.listPace
			fallthrough
		default:
			r.calmDown()
			r.resourceVersion = ""
		}
	}
	switch {
	case errors.Is(err, errWentBack):
		r.doubts = maxDoubts
	case tooLarge(err):
		r.doubts++
	}
	switch as := f.state(); {
	case r.vain >= maxVain && f != denied:
		r.health.failed(fmt.Errorf("the resource can be listed, and cannot be watched: %w", err), Failed)
	case r.listedAt.IsZero() && tooLarge(err) && r.doubts < maxDoubts:
		// A server that has just begun answers so until it has read its storage. The cache is still Listing.
	case !errors.Is(err, errShortLived):
		r.health.failed(err, as)
	case r.failures > maxBarren:
		// A watch that only ended soon leaves the cache up to date. But a server that closes every watch at once looks
		// the same.
		r.health.failed(fmt.Errorf("%w, %d times in a row, before anything had come", err, r.failures), as)
	}
	return pace.After(retryAfter)
}

// calmDown lets the pauses before lists begin anew, unless the latest complete list was a short time ago: then the next
// one would be the second list of one trouble, however long the watch between them has lived.
func (r *reflector[T]) calmDown() {
	if time.Since(r.listedAt) >= patience {
		r.relist.Reset()
	}
}

// leadsToList reports whether a list follows a watch that has failed: see [fault].
func (r *reflector[T]) leadsToList(f fault) bool {
	switch f {
	case missing, outdated:
		return true
	case garbled:
		// A broken connection looks the same. If it happens twice at one version, it is the event itself, and a list
		// goes past it.
		before := r.garbledAt
		r.garbledAt = r.resourceVersion
		return before == r.resourceVersion
	case refused:
		// It may be the version that the server has something against.
		return r.failures > 1
	}
	return r.mutes > 1 || r.impatient()
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
