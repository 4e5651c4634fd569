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

// fault is a kind of error that ends a list or a watch. What follows is in this table. A list that has failed is always
// followed by another list.
//
//	fault        the error                            a watch is followed by        after     the cache is
//	lost         silence, a connection that broke,    a watch                       0 to 30 s Stale
//	             an error of nobody knows what
//	unreachable  no answer, from no server            a watch                       0 to 30 s Stale
//	busy         429, 503, Retry-After, a timeout     a watch                       the same, and what the server asks
//	             that the server calls temporary                                    for, Stale
//	denied       401, 403                             a watch                       0 to 30 s Denied
//	missing      404                                  a list                        0 to 30 s Missing
//	expired      410                                  a list                        0 to 30 s Stale
//	broken       an answer that cannot be true, or    a list                        0 to 30 s Stale
//	             is too large
//	garbled      an event that cannot be decoded      a watch, and if it happens    0 to 30 s Stale
//	             twice at a version, a list
//	refused      any other answer: 400, 405, 422,     a watch, and the second time  0 to 30 s Stale; Failed if lists
//	             500, 504                             in a row a list, and further            succeed and no watch does
//	                                                  lists after 1 s to 5 min
//
// Each pause grows from failure to failure, and begins anew once a watch has lived for longLived. A watch that only
// ended soon is no failure, and followed by a watch: see [reflector.failed].
type fault int

const (
	lost fault = iota
	unreachable
	busy
	denied
	missing
	expired
	broken
	garbled
	refused
)

func faultOf(err error) fault {
	var network net.Error // a request without an answer has such an error
	var answer apierrors.APIStatus
	_, later := apierrors.SuggestsClientDelay(err)
	switch {
	case errors.Is(err, wire.ErrViolation) || errors.Is(err, ErrTooLarge):
		return broken
	case errors.Is(err, wire.ErrUndecodable):
		return garbled
	case errors.As(err, &network) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return unreachable
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return denied
	case apierrors.IsNotFound(err):
		return missing
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return expired
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
	case f == missing || f == expired || f == broken:
		r.resourceVersion = ""
	case f == garbled && watched:
		r.doubtEvent()
	case f == refused && watched:
		if r.countRefusal(); r.vain >= maxVain {
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

// countRefusal records a watch that was refused. It may be the version that the server has something against, so the
// second refusal leads to a list. If the resource cannot be watched at all, lists are all that there is.
func (r *reflector[T]) countRefusal() {
	if r.refusals++; r.refusals > 1 && !time.Now().Before(r.listDue) {
		r.resourceVersion = ""
		r.listDue = time.Now().Add(r.listPace.Next())
	}
}

// watches records that a watch has brought something, or has lived for a while.
func (r *reflector[T]) watches() {
	r.refusals, r.vain, r.listDue = 0, 0, time.Time{}
	r.listPace.Reset()
	r.health.following(r.completed)
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
