package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thermostat-go/thermostat/informer"
)

// Key names the object to be reconciled.
type Key = informer.Key

// Reconciler makes the world match the object of a key.
//
// Reconcile is told which object to look at, never what happened to it: it observes (from caches), compares with what is wanted, acts, and
// reports. It must be idempotent, since it is called again after a restart, after an error and for no reason at all; and it must be complete,
// since any number of changes may lie behind one call. An object that is gone is an ordinary case, not an error.
//
// Calls for one key never overlap; calls for different keys do. ctx ends when Options.Timeout has passed, when leadership is lost and when the
// Manager stops; Reconcile should return soon then. Requests to the API server are made with ctx, or what they wrote is not waited for (see
// [TrackWrites]). A panic is an error like any other.
//
// What Reconcile returns decides when the key comes back, unless something changes before:
//
//	Result{}, nil                    it is as it should be             not before something changes
//	Result{RequeueAfter: d}, nil     look again later                  after d
//	_, err                           it went wrong                     after a delay that grows with each failure in a row
//	_, RetryAfter(d, err)            it went wrong, and says till when after d, if that is positive
//	_, Terminal(err)                 trying again is useless           not before something changes
type Reconciler interface {
	Reconcile(ctx context.Context, key Key) (Result, error)
}

// Func is a function that is a Reconciler.
type Func func(ctx context.Context, key Key) (Result, error)

// Reconcile calls f.
func (f Func) Reconcile(ctx context.Context, key Key) (Result, error) { return f(ctx, key) }

// Result is what a Reconcile that went well has to say.
type Result struct {
	// RequeueAfter, if positive, brings the key back after that time. Each run decides anew: it replaces what the run before it asked for. Next to
	// an error it means RetryAfter.
	RequeueAfter time.Duration
}

// Terminal marks an error that trying again cannot mend, such as a spec that contradicts itself: it is logged and counted, and the key rests
// until something changes. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }

// RetryAfter marks an error that says itself when to try again, such as a 429 with a Retry-After. A d that is not positive, such as the time until a moment
// that has passed, says nothing: RetryAfter returns err as it is, which is tried again after a delay that grows. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil || d <= 0 {
		return err
	}
	return &retryError{d, err}
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string {
	return fmt.Sprintf("%v (to be tried again after %s)", e.err, e.after)
}
func (e *retryError) Unwrap() error { return e.err }

// outcome is what a run comes to: the table above, decided.
type outcome struct {
	kind  outcomeKind
	after time.Duration
	err   error
}

type outcomeKind uint8

const (
	done      outcomeKind = iota // err is nil
	doneAfter                    // err is nil
	retry                        // err is set, as in the following
	retryAfter
	terminal
)

func decide(result Result, err error) outcome {
	_, final := errors.AsType[*terminalError](err)
	late, timed := errors.AsType[*retryError](err)
	switch {
	case result.RequeueAfter < 0:
		return outcome{kind: retry, err: errors.Join(fmt.Errorf("Result.RequeueAfter is negative (%s)", result.RequeueAfter), err)}
	case final:
		return outcome{kind: terminal, err: err}
	case timed:
		return outcome{kind: retryAfter, after: late.after, err: err}
	case err != nil && result.RequeueAfter > 0:
		return outcome{kind: retryAfter, after: result.RequeueAfter, err: err}
	case err != nil:
		return outcome{kind: retry, err: err}
	case result.RequeueAfter > 0:
		return outcome{kind: doneAfter, after: result.RequeueAfter}
	default:
		return outcome{kind: done}
	}
}
