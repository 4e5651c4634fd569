package informer

import (
	"errors"
	"fmt"
	"strings"
)

// What a server can make an informer read or hold is bounded, whoever the server is. These are the bounds of a client
// made by [REST], which sees the bytes; they are far above what an API server sends (etcd takes objects of 1.5 MB), so
// that only an answer that is broken or hostile meets them. Sizes are those of the encoded form, after the transport
// has unzipped it.
//
//	what                  bound           if there is more
//	one object            maxObject       it is quarantined: see [SharedIndexInformer.Invalid]; the rest goes on
//	one answer to a list  maxListBytes    the list fails, and is tried again
//	pages of a list       maxPages        the list fails, and is tried again; for every Client
//	the whole cache       Options.MaxBytes: the list or watch fails, and is tried again, by a list, after 5 minutes,
//	                      when a namespace leaves the scope, or when a list is asked for
//
// Each of the errors wraps [ErrTooLarge].
const (
	maxObject    = 16 << 20
	maxListBytes = 16 << 30
	maxPages     = 100_000
	// Of an object that is too large, and of whatever stands around the objects, no more than this is held.
	maxHead = 64 << 10
	// Of a name, or whatever else the server calls something, errors of lists and watches have no more than this.
	maxQuoted = 256
)

// ErrTooLarge is wrapped by the errors of whatever exceeds a bound: an object, a list, or Options.MaxBytes.
var ErrTooLarge = errors.New("too large")

// brief is what an error shows of a string of the server's.
func brief[S ~string](s S) string {
	if len(s) <= maxQuoted {
		return string(s)
	}
	return strings.ToValidUTF8(string(s[:maxQuoted]), "") + "..."
}

// briefKey is what an error shows of a key.
func briefKey(key Key) string { return brief(key.String()) }

func tooLargeObject() error {
	return fmt.Errorf("%w: an object of more than %d bytes", ErrTooLarge, maxObject)
}
