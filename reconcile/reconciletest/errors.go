package reconciletest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReasonNotModelled is the reason in the answer to a request that a real server may serve and this one does not: code
// 501, and a message that begins with "not modelled".
const ReasonNotModelled metav1.StatusReason = "NotModelled"

func notModelled(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: ReasonNotModelled,
		Message: "not modelled: " + fmt.Sprintf(format, args...),
	}}
}

// refuse is the answer to a request that fails. The link remembers what the server has no model of.
func (l *Link) refuse(req *http.Request, err error) *http.Response {
	if apierrors.ReasonForError(err) == ReasonNotModelled {
		l.server.store.mu.Lock()
		l.beyond = err.Error()
		l.server.store.mu.Unlock()
	}
	return l.server.answerError(req, err)
}

// beyondModel returns what the server has said since the last call that it has no model of; empty: nothing.
func (l *Link) beyondModel() string {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	text := l.beyond
	l.beyond = ""
	return text
}

// statusOf is what a client is told of an error.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// tooLarge is the answer to a request for a version that has not come yet.
func tooLarge(asked, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version"}}
	return err
}

// errReset is what a client sees of a connection that breaks.
var errReset error = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// errRefused is what a client sees of a server that is not there.
var errRefused error = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
