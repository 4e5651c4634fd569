package status

import (
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Error is what is said of an error.
type Error struct {
	// Type is the Go type of the innermost error.
	Type string `json:"type"`
	// Reason and Code are those of the API server's Status, if the error is one, such as Forbidden and 403.
	Reason string `json:"reason,omitempty"`
	Code   int    `json:"code,omitempty"`
	// Text is the error's text, if ManagerOptions.ErrorTexts is set, cut off after 4 KiB. It may quote values of
	// objects.
	Text string `json:"text,omitempty"`
}

// maxErrorText is how much of the text of an error is kept, in bytes, and mostErrors how many errors of a chain are
// asked for what they wrap: a chain may contain itself.
const (
	maxErrorText = 4 << 10
	mostErrors   = 1000
)

// ErrorOf returns what is said of an error, or nil if there is none; withText adds its text. It calls methods of err.
func ErrorOf(err error, withText bool) *Error {
	if err == nil {
		return nil
	}
	e := classify(err)
	if withText {
		if e.Text = err.Error(); len(e.Text) > maxErrorText {
			e.Text = strings.ToValidUTF8(e.Text[:maxErrorText], "") + "…"
		}
	}
	return &e
}

// classify finds the innermost error, and the API server's Status if there is one on the way.
func classify(err error) (e Error) {
	for range mostErrors {
		if answer, ok := err.(apierrors.APIStatus); ok {
			s := answer.Status()
			e.Reason, e.Code = string(s.Reason), int(s.Code)
		}
		if p, ok := err.(*lifecycle.PanicError); ok {
			e.Type = "panic"
			if p.Value != nil {
				e.Type = fmt.Sprintf("panic of type %T", p.Value)
			}
			return e
		}
		e.Type = reflect.TypeOf(err).String()
		next := inner(err)
		if next == nil {
			return e
		}
		err = next
	}
	return e
}

// inner returns the error that err wraps, of several the first; nil if there is none.
func inner(err error) error {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return e.Unwrap()
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// String is the error as texts have it: 403 Forbidden, or its Go type.
func (e *Error) String() string {
	text := "an error of type " + e.Type
	if e.Text == "" {
		text += " (see the log)"
	}
	switch {
	case e.Code != 0:
		text = strings.TrimSpace(fmt.Sprintf("%d %s", e.Code, e.Reason))
	case strings.HasPrefix(e.Type, "panic"):
		text = "a " + e.Type
	}
	if e.Text != "" {
		text += fmt.Sprintf(" (%s)", e.Text)
	}
	return text
}

// Because ends a text about a trouble with its reason, " because of 403 Forbidden". It is empty for nil.
func (e *Error) Because() string {
	if e == nil {
		return ""
	}
	return " because of " + e.String()
}
