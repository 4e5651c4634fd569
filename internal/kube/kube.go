// Package kube holds what several packages need to know about objects and answers of an API server.
package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsNil reports whether v is nil, or an interface that holds a nil pointer or function.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}

// maxBrief is how many bytes of a string of the server's an error or a log line shows.
const maxBrief = 256

// Brief returns s, or the first 256 bytes of it and an ellipsis. It is for strings that the server, or another client,
// has chosen.
func Brief[S ~string](s S) string {
	if len(s) <= maxBrief {
		return string(s)
	}
	return strings.ToValidUTF8(string(s[:maxBrief]), "") + "..."
}

// MaxRetryAfter bounds what a server can ask for with Retry-After: it is tried again after this time, however long it
// wanted to be left alone.
const MaxRetryAfter = 5 * time.Minute

// RetryAfter returns how long the server that gave this answer asked to be left alone, at most MaxRetryAfter. Zero: it
// did not.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return bounded(int64(seconds))
}

// ParseRetryAfter reads the value of a Retry-After header, a number of seconds or a date (RFC 9110, 10.2.3), and
// returns how long after now that is, at most MaxRetryAfter. Zero: it says nothing.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	seconds, err := strconv.ParseInt(value, 10, 64) // of a number that is too large it gives the largest
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return bounded(seconds)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), MaxRetryAfter)
	}
	return 0
}

// bounded compares before it multiplies, for a large number of seconds is more nanoseconds than there are.
func bounded(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(MaxRetryAfter/time.Second))) * time.Second
}

// CheckNamed returns the mistakes in functions by name.
func CheckNamed[F any](field string, functions map[string]F) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if name == "" {
			errs = append(errs, fmt.Errorf("%s has an empty name", field))
		}
		if IsNil(functions[name]) {
			errs = append(errs, fmt.Errorf("%s[%q] is nil", field, name))
		}
	}
	return errors.Join(errs...)
}
