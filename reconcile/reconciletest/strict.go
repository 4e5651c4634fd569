package reconciletest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// strictly judges what is wrong with the fields of a request: fields that nobody knows, and fields that are there
// twice. The parameter fieldValidation says what comes of it: Strict refuses the request, with the error that refuse
// makes; Warn, the default, says so in the header Warning; Ignore is silent.
func (c *call) strictly(found []error, refuse func(error) error) error {
	if len(found) == 0 {
		return nil
	}
	switch c.query.Get("fieldValidation") {
	case metav1.FieldValidationStrict:
		return refuse(runtime.NewStrictDecodingError(found))
	case metav1.FieldValidationIgnore:
	default:
		for _, err := range found {
			c.warnings = append(c.warnings, err.Error())
		}
	}
	return nil
}

// cannotHandle is the answer to a body that is not quite an object of the resource.
func (r *Resource) cannotHandle(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", r.Kind, r.Version,
		r.Kind, err))
}
