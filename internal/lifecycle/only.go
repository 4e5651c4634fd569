package lifecycle

import "slices"

// IsOnly reports whether an error says nothing but the targets, which are of comparable types: it is one of them, or
// all that it wraps is. errors.Is also finds a target beside a failure, in an error that was joined from both.
func IsOnly(err error, targets ...error) bool {
	if slices.ContainsFunc(targets, func(target error) bool { return is(err, target) }) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return IsOnly(e.Unwrap(), targets...)
	case interface{ Unwrap() []error }:
		fails := func(err error) bool { return !IsOnly(err, targets...) }
		return len(e.Unwrap()) > 0 && !slices.ContainsFunc(e.Unwrap(), fails)
	}
	return false
}

// is reports whether an error is the target, whatever it wraps.
func is(err, target error) bool {
	e, ok := err.(interface{ Is(error) bool })
	return err != nil && err == target || ok && e.Is(target)
}
