package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// Key names the object to be reconciled.
type Key = informer.Key

// Reconciler makes the world match the object of a key.
//
// Reconcile is told which object to look at, never what happened to it: it observes (from caches), compares with what
// is wanted, acts, and reports. It must be idempotent, since it is called again after a restart, after an error and
// for no reason at all; and it must be complete, since any number of changes may lie behind one call. An object that
// is gone is an ordinary case, not an error. An object that is there and cannot be decoded is another one: Reconcile is
// not called for its key, see Options.Invalid.
//
// Calls for one key never overlap; calls for different keys do. ctx ends when Options.Timeout has passed, when
// leadership is lost and when the Manager stops; Reconcile should return soon then. Requests to the API server are
// made with ctx, or what they wrote is not waited for (see [TrackWrites]).
//
// What Reconcile returns decides when the key comes back, unless something changes before:
//
//	returned                      meaning                               the key comes back
//	Result{}, nil                 the object is as wanted               when something changes
//	Result{RequeueAfter: d}, nil  look again later                      after d
//	_, err                        failed                                after a delay that grows with each failure
//	_, RetryAfter(d, err)         failed; the error carries its delay   after d, if d is positive
//	_, Terminal(err)              failed; a retry cannot help           when something changes
//
// An error may be made of several, by errors.Join or fmt.Errorf. The key rests only if all of them are Terminal. If one
// of them is neither Terminal nor a RetryAfter, the growing delay applies, also beside a RetryAfter; of several
// RetryAfters the shortest delay counts. So in fmt.Errorf("%w: %w", ErrInvalid, err) both have to be marked:
// Terminal(fmt.Errorf(...)).
//
// If an error is an answer of the API server with a Retry-After, such as a 429, the key does not come back before that
// time, at most 5 minutes, even if something changes. A run for that change would send the same request again.
//
// Reconcile may panic, and it may end its goroutine by runtime.Goexit, as t.FailNow does in a test: either is an error
// of the first kind.
type Reconciler interface {
	Reconcile(ctx context.Context, key Key) (Result, error)
}

// Func is a function that is a Reconciler.
type Func func(ctx context.Context, key Key) (Result, error)

// Reconcile calls f.
func (f Func) Reconcile(ctx context.Context, key Key) (Result, error) { return f(ctx, key) }

// Result is what Reconcile returns beside a nil error.
type Result struct {
	// RequeueAfter, if positive, brings the key back after that time, or earlier if something names the key. Each run
	// decides anew: a run that something else has caused drops what the run before it asked for, so return what is left
	// of the time from every run. Next to an error it means RetryAfter.
	RequeueAfter time.Duration
}

// Terminal marks an error that trying again cannot mend, such as a spec that contradicts itself: it is logged and
// counted, and the key rests until something changes. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }

// RetryAfter marks an error that carries its own delay d, such as a 429 with a Retry-After. If d is not positive, as
// for a moment that has passed, RetryAfter returns err without a mark, so the growing delay applies. RetryAfter(d, nil)
// is nil.
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

// outcome is the line of the table above that a run has come to. Its error does not call code of the user's.
type outcome struct {
	kind     outcomeKind
	after    time.Duration
	pause    time.Duration // that the server has asked for, or zero; no change ends it
	err      error
	panicked *lifecycle.PanicError // that of the run, or of a part of it that SlowStart made; nil: there was none
	why      *status.Error         // of err, with its text; nil if err is
}

type outcomeKind uint8

const (
	done      outcomeKind = iota // err is nil
	doneAfter                    // err is nil
	retry                        // err is set, as in the following
	retryAfter
	terminal
)

// decide returns the outcome of a call. It walks through the error, so it calls code of the user's.
func decide(result Result, err error) outcome {
	switch {
	case result.RequeueAfter < 0:
		err = errors.Join(fmt.Errorf("Result.RequeueAfter is negative (%s)", result.RequeueAfter), err)
		err = frozen(err)
		return outcome{kind: retry, err: err, why: status.ErrorOf(err, true)}
	case err == nil && result.RequeueAfter > 0:
		return outcome{kind: doneAfter, after: result.RequeueAfter}
	case err == nil:
		return outcome{kind: done}
	}
	w := retryWishes{requeueAfter: result.RequeueAfter}
	w.visit(err, false, 0)
	err = frozen(err)
	o := outcome{kind: terminal, err: err, panicked: w.panicked, pause: w.pause, why: status.ErrorOf(err, true)}
	switch {
	case w.grows:
		o.kind = retry
	case w.after > 0:
		o.kind, o.after = retryAfter, w.after
	}
	return o
}

// retryWishes sum up what the leaves of an error's tree ask for. Leaves below a Terminal ask for nothing.
type retryWishes struct {
	requeueAfter time.Duration         // what leaves without a mark ask for, if it is positive
	grows        bool                  // a leaf leaves the delay to the rate limiter
	after        time.Duration         // the shortest delay that a leaf asks for, or zero
	pause        time.Duration         // the longest one that the server asks for, or zero
	panicked     *lifecycle.PanicError // the first
	met          int                   // errors, so that the walk through a tree that contains itself has an end
}

// mostErrors is how many errors of one tree are asked.
const mostErrors = 1000

// visit walks down the tree. final is true below a Terminal, and after is the delay of the outermost RetryAfter above,
// or zero.
func (w *retryWishes) visit(err error, final bool, after time.Duration) {
	if w.met++; w.met > mostErrors {
		w.grows = true // the rest may need another try
		return
	}
	leaf := true
	below := func(err error) {
		if err != nil {
			leaf = false
			w.visit(err, final, after)
		}
	}
	switch e := err.(type) {
	case *lifecycle.PanicError:
		w.panicked = cmp.Or(w.panicked, e)
	case *terminalError:
		final = true
		below(e.err)
	case *retryError:
		after = cmp.Or(after, e.after)
		below(e.err)
	case interface{ Unwrap() error }:
		below(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			below(err)
		}
	}
	after = cmp.Or(after, w.requeueAfter)
	if leaf && !final {
		w.pause = max(w.pause, pauseOf(err))
		switch {
		case after == 0:
			w.grows = true
		case w.after == 0 || after < w.after:
			w.after = after
		}
	}
}

// frozen returns an error with the text that err has now. err.Error is not called again: it may panic.
func frozen(err error) error { return &frozenError{err.Error(), err} }

type frozenError struct {
	text string
	err  error
}

func (f *frozenError) Error() string { return f.text }
func (f *frozenError) Unwrap() error { return f.err }

// longestPause is the longest pause that a server can ask a key to make.
const longestPause = 5 * time.Minute

// pauseOf returns the pause that the server has asked for with an error that wraps no other one, or zero.
func pauseOf(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok || seconds <= 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestPause)
}
