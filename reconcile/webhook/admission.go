package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/thermostat-go/thermostat/informer"
)

// Admission is a write that an API server asks about before it stores it.
type Admission[T informer.Object] struct {
	// Request is what the API server sent: the operation, the user, the subresource. It is read-only.
	Request *admissionv1.AdmissionRequest
	// Object is what is to be stored; nil for DELETE. Old is what is stored; nil for CREATE, and with OldInvalid. Both
	// belong to the call.
	Object, Old T
	// OldInvalid says why what is stored does not fit the Go type, such as what an earlier definition has let pass. The
	// write may repair it, or delete it. Validate's function is only called with it after [Handler.AllowOldInvalid]: it
	// must not take a nil Old for a creation, nor for the permission to change what must not change.
	OldInvalid error

	warnings []string
}

// DryRun reports whether nothing will be stored. A function with effects outside of the cluster must leave them out
// then, and its webhook say sideEffects: NoneOnDryRun.
func (a *Admission[T]) DryRun() bool { return a.Request.DryRun != nil && *a.Request.DryRun }

// Warn adds a warning, which the API server sends to the client whether the write is allowed or refused. If the
// function fails or panics there is no answer, and no warning. An API server cuts off what is longer than 256
// characters, or above 4096 characters in all.
func (a *Admission[T]) Warn(format string, args ...any) {
	a.warnings = append(a.warnings, fmt.Sprintf(format, args...))
}

// Default makes the Handler of a mutating webhook: fill changes a.Object, and the API server is sent a JSON patch with
// what it changed. Fields that T does not have are kept, but for those inside of a list that fill changes. A deletion
// is allowed without a call.
//
// An API server may call it several times for one write, with its own result. So fill is idempotent, and leaves alone
// what is set.
func Default[T informer.Object](gv schema.GroupVersion,
	fill func(ctx context.Context, a *Admission[T]) error) *Handler {
	return newAdmission(gv, func(ctx context.Context, a *Admission[T]) (*admissionv1.AdmissionResponse, error) {
		response := &admissionv1.AdmissionResponse{Allowed: true}
		if a.Request.Operation == admissionv1.Delete {
			return response, nil
		}
		before, err := json.Marshal(a.Object)
		if err != nil {
			return nil, err
		}
		if err := fill(ctx, a); err != nil {
			return denial(err)
		}
		after, err := json.Marshal(a.Object)
		if err != nil {
			return nil, err
		}
		patch, err := patchOf(a.Request.Object.Raw, before, after)
		if err == nil && patch != nil {
			response.Patch, response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
		}
		return response, err
	})
}

// Validate makes the Handler of a validating webhook. check says what is wrong with a write, field by field: the client
// is told all of it, with 422 Invalid. What it changes in the objects is not stored.
//
// A write to an object whose stored state does not fit T is refused with 400, since check could not compare, unless
// [Handler.AllowOldInvalid] has been called.
//
// An error of check that is an API status between 400 and 499, such as one of apierrors.NewForbidden, refuses the write
// with this status. Any other error says that the write cannot be judged: then the failurePolicy decides.
func Validate[T informer.Object](gv schema.GroupVersion,
	check func(ctx context.Context, a *Admission[T]) (field.ErrorList, error)) *Handler {
	h := newAdmission(gv, func(ctx context.Context, a *Admission[T]) (*admissionv1.AdmissionResponse, error) {
		wrong, err := check(ctx, a)
		if err == nil && len(wrong) > 0 {
			kind := schema.GroupKind{Group: a.Request.Kind.Group, Kind: a.Request.Kind.Kind}
			err = apierrors.NewInvalid(kind, a.Request.Name, wrong)
		}
		if err != nil {
			return denial(err)
		}
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
	h.oldMustFit = true
	return h
}

// AllowOldInvalid lets the function of [Validate] judge writes to objects whose stored state does not fit the Go type:
// see Admission.OldInvalid. It returns h. For other handlers it changes nothing.
func (h *Handler) AllowOldInvalid() *Handler {
	h.oldMustFit = false
	return h
}

// denial is the response that refuses a write, if err is an API status that does, and else err.
func denial(err error) (*admissionv1.AdmissionResponse, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err
	}
	result := status.Status()
	if result.Code < http.StatusBadRequest || result.Code >= http.StatusInternalServerError {
		return nil, err
	}
	return &admissionv1.AdmissionResponse{Result: &result}, nil
}

// newAdmission makes a Handler of a function that judges a write.
func newAdmission[T informer.Object](gv schema.GroupVersion,
	judge func(ctx context.Context, a *Admission[T]) (*admissionv1.AdmissionResponse, error)) *Handler {
	kind, err := kindOf[T](gv)
	want := metav1.GroupVersionKind(kind)
	h := &Handler{mistakes: err}
	h.answer = func(ctx context.Context, body []byte) (any, string, error) {
		var review admissionv1.AdmissionReview
		if err := decode(body, &review); err != nil {
			return nil, "", badRequest("the body is no AdmissionReview: %v", err)
		}
		if review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview" ||
			review.Request == nil {
			return nil, "", badRequest("the body is no AdmissionReview of %s with a request",
				admissionv1.SchemeGroupVersion)
		}
		if review.Request.Kind != want {
			return nil, "", badRequest("the object is a %s, and this webhook is for %s: see the rules of its "+
				"configuration", review.Request.Kind, want)
		}
		a := &Admission[T]{Request: review.Request}
		a.OldInvalid = read(review.Request.OldObject, &a.Old)
		response := &admissionv1.AdmissionResponse{Allowed: true}
		if err := read(review.Request.Object, &a.Object); err == nil {
			if h.oldMustFit && a.OldInvalid != nil {
				return nil, "", badRequest("what is stored does not fit the Go type, so nothing can be compared with "+
					"it: %v", a.OldInvalid)
			}
			if response, err = judge(ctx, a); err != nil {
				return nil, "", err
			}
		} else if !leaves(review.Request) {
			return nil, "", badRequest("the object does not fit its Go type: %v", err)
		}
		response.UID, response.Warnings = review.Request.UID, a.warnings
		outcome := outcomeDenied
		if response.Allowed {
			outcome = outcomeAllowed
		}
		return &admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}, outcome, nil
	}
	return h
}

// read decodes an object into a new T, if there is one.
func read[T informer.Object](raw runtime.RawExtension, into *T) error {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil
	}
	object := newObject[T]()
	if err := decode(raw.Raw, object); err != nil {
		return err
	}
	*into = object
	return nil
}

// leaves reports whether a write only takes finalizers from an object that is being deleted. Whether its
// resourceVersion is the stored one is for the API server to judge.
func leaves(write *admissionv1.AdmissionRequest) bool {
	if write.Operation != admissionv1.Update || write.SubResource != "" {
		return false
	}
	is, taken, err1 := apart(write.Object.Raw)
	was, before, err2 := apart(write.OldObject.Raw)
	if errors.Join(err1, err2) != nil || before.DeletionTimestamp == nil {
		return false
	}
	for _, finalizer := range taken.Finalizers {
		if !slices.Contains(before.Finalizers, finalizer) {
			return false
		}
	}
	return maps.EqualFunc(is, was, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}

// finalizing is what leaves reads of metadata.
type finalizing struct {
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
	Finalizers        []string     `json:"finalizers"`
}

// apart returns the fields of an object and of its metadata, but for those that a write that leaves may change. They
// stay text: a tree would take many times the memory.
func apart(raw []byte) (fields map[string]json.RawMessage, m finalizing, err error) {
	var metadata map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, m, err
	}
	if err := errors.Join(json.Unmarshal(fields["metadata"], &metadata),
		json.Unmarshal(fields["metadata"], &m)); err != nil {
		return nil, m, err
	}
	delete(fields, "metadata")
	for key, value := range metadata {
		if key != "finalizers" && key != "managedFields" && key != "resourceVersion" {
			fields["metadata."+key] = value
		}
	}
	return fields, m, nil
}
