package reconcile

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// recordError returns what is said of an error, or nil if there is none; withText adds its text.
func recordError(err error, withText bool) *ErrorRecord {
	if err == nil {
		return nil
	}
	e := classify(err)
	if withText {
		e.Text = textOf(err)
	}
	return &e
}

// maxErrorText is how much of the text of an error a record has, in bytes.
const maxErrorText = 4 << 10

// textOf returns the text of an error, cut off if it is long.
func textOf(err error) string {
	text := err.Error()
	if len(text) > maxErrorText {
		return strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// classify finds the innermost error, and the API server's Status if there is one on the way. It calls methods of err.
func classify(err error) (e ErrorRecord) {
	for range mostErrors {
		if status, ok := err.(apierrors.APIStatus); ok {
			s := status.Status()
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

// library has the packages of this library that stand above or below the user's code in a stack.
var library = []string{"reconcile.", "reconcile/objects.", "informer.", "workqueue.", "leaderelection.", "internal/"}

// whereInUserCode returns the function, file and line of the first frame of a stack that is the user's: not Go's, not
// Kubernetes' and not this library's. If there is none it returns "".
func whereInUserCode(stack string) string {
	lines := strings.Split(stack, "\n")
	for i := 1; i+1 < len(lines); i += 2 {
		function, file := lines[i], strings.TrimSpace(lines[i+1])
		if cut := strings.LastIndexByte(function, '('); cut > 0 {
			function = function[:cut]
		}
		file, _, _ = strings.Cut(file, " ")
		if ours(function, file) || strings.HasPrefix(function, "k8s.io/") || ofGo(function, file) {
			continue
		}
		return path.Base(function) + " " + path.Base(file)
	}
	return ""
}

func ours(function, file string) bool {
	rest, ok := strings.CutPrefix(function, "github.com/thermostat-go/thermostat/")
	file, _, _ = strings.Cut(file, ":")
	if !ok || strings.HasSuffix(file, "_test.go") {
		return false
	}
	for _, p := range library {
		if strings.HasPrefix(rest, p) {
			return true
		}
	}
	return false
}

// ofGo reports whether a function is one of Go's standard library. Its files are where that of fmt.Sprint is; in a
// binary without paths only the names of packages tell.
func ofGo(function, file string) bool {
	sprint := runtime.FuncForPC(reflect.ValueOf(fmt.Sprint).Pointer())
	known, _ := sprint.FileLine(sprint.Entry())
	if root := strings.TrimSuffix(known, "fmt/print.go"); root != "" {
		return strings.HasPrefix(file, root)
	}
	first, _, _ := strings.Cut(function, "/")
	name, _, dotted := strings.Cut(first, ".")
	return name != "main" && !(dotted && strings.Contains(function, "/"))
}
