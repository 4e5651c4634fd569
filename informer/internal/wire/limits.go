package wire

import (
	"errors"
	"fmt"
)

// These bounds hold whatever the server sends. They are far above what an API server sends (etcd takes objects of
// 1.5 MB), so only a broken or hostile response meets them. Sizes are in bytes of the encoded form, after the transport
// has unzipped it.
const (
	// maxObject bounds one object. A larger one is an Event with an error; the rest of the response goes on.
	maxObject = 16 << 20
	// maxListBytes bounds one response to a list. A larger one fails as a whole.
	maxListBytes = 16 << 30
	// maxHead bounds the metadata of a list, and every name around the objects; in protobuf also what is read of an
	// object that is too large.
	maxHead = 64 << 10
	// maxTypelessBytes bounds the items without a kind or version of their own that precede those of their list.
	maxTypelessBytes = 64 << 20
)

var (
	// ErrTooLarge is wrapped by the errors of whatever exceeds a bound.
	ErrTooLarge = errors.New("too large")
	// ErrViolation is wrapped by the errors of responses that break the protocol of the Kubernetes API.
	ErrViolation = errors.New("the server broke the protocol")
	// ErrUndecodable is wrapped by the errors of bytes that are no object. It stands for the decoder's own error, which
	// may quote the object, and the object may be a Secret.
	ErrUndecodable = errors.New("the answer could not be read or decoded; the details are withheld, as they may " +
		"quote the object")

	errGarbled = fmt.Errorf("%w: not the protobuf or JSON of the Kubernetes API", ErrUndecodable)
)
