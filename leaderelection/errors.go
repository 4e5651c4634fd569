package leaderelection

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

var (
	// ErrLost is wrapped by what Run returns when it led and then lost the Lease: see *[LostError] for why. Run may be
	// called again.
	ErrLost = errors.New("leaderelection: the lease was lost")

	// ErrStuck is wrapped by what Run returns when the lead function did not return in time, and still runs. The Lease
	// is not released, but it will expire: the process should exit before it does. See [ExitIfStuck].
	ErrStuck = lifecycle.ErrStuck

	// ErrRunning is returned by Run while an earlier Run of the same Elector has not returned.
	ErrRunning = errors.New("leaderelection: Run was called while it was running")

	// ErrNotLeading is wrapped by the error of a request that a fence refused or cut off. See [Elector.Fence].
	ErrNotLeading = errors.New("leaderelection: not leading")

	errReturned = errors.New("leaderelection: the lead function has returned")
)

// A Reason says why a tenure was lost.
type Reason string

const (
	ReasonDeadline Reason = "deadline" // no renewal was acknowledged in time
	ReasonHolder   Reason = "holder"   // the Lease names another holder, or another term
	ReasonDeleted  Reason = "deleted"  // the Lease was deleted, or deleted and created again
	ReasonClock    Reason = "clock"    // the wall clock ran ahead: the machine slept, or its clock was set forward
)

// LostError is the loss of a tenure. It is an [ErrLost], and wraps Err. It is also the [context.Cause] of the
// lead function's context.
type LostError struct {
	Reason Reason
	Lease  string // namespace/name
	Holder string // the holder that the Lease names, for ReasonHolder
	Err    error  // why the last renewal failed, for ReasonDeadline
}

func (e *LostError) Error() string {
	var why string
	switch e.Reason {
	case ReasonDeadline:
		why = "no renewal was acknowledged within RenewDeadline"
	case ReasonHolder:
		why = fmt.Sprintf("it names another tenure, of %q", e.Holder)
	case ReasonDeleted:
		why = "it was deleted"
	case ReasonClock:
		why = "the wall clock passed the deadline: the machine slept, or its clock was set forward"
	}
	if e.Err != nil {
		return fmt.Sprintf("%v: %s: %s: %v", ErrLost, e.Lease, why, e.Err)
	}
	return fmt.Sprintf("%v: %s: %s", ErrLost, e.Lease, why)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

func (e *LostError) Unwrap() error { return e.Err }

// DeniedError says that the API server forbade a request, nearly always because a Role is missing. It wraps the
// server's answer.
type DeniedError struct {
	Verb, Namespace, Name string
	Err                   error
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("leaderelection: not allowed to %s leases.coordination.k8s.io %q in namespace %q (a Role must "+
		"grant create on leases, and get, update and watch on this one): %v", e.Verb, e.Name, e.Namespace, e.Err)
}

func (e *DeniedError) Unwrap() error { return e.Err }

// ExitIfStuck ends the process with exit code 1 if err wraps [ErrStuck], and returns err otherwise. Wrap Run in it if
// the rest of the program could take long to return: the lead function may act until then, and the Lease is about to
// expire.
//
//	err = leaderelection.ExitIfStuck(elector.Run(ctx, lead))
func ExitIfStuck(err error) error {
	if errors.Is(err, ErrStuck) {
		klog.ErrorS(err, "The leader's work did not stop. Exiting before its lease expires")
		klog.Flush()
		os.Exit(1)
	}
	return err
}
