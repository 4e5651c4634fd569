package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Apply is a server-side apply: the server makes the fields in config what they are there, creates the object if there
// is none, and remembers that these fields are managed by opts.FieldManager. Fields that the manager has applied before
// and that are not in config any more are removed. The fields of others stay as they are.
//
// apply is a method of a client, Apply or ApplyStatus:
//
//	config := corev1ac.ConfigMap(name, namespace).WithData(data)
//	_, err := objects.Apply(ctx, clientset.CoreV1().ConfigMaps(namespace).Apply, config, metav1.ApplyOptions{FieldManager: "gadget-controller"})
//
// If another manager has set one of the fields to something else, nothing is written, and the error is a
// [*ApplyConflictError] that names the fields and managers. A controller that is the one to decide sets opts.Force, and
// takes the fields over; two that do so over one field fight for ever.
//
// An apply may be repeated: after a timeout the next attempt finds what the lost one has done, and changes nothing.
func Apply[A, T any](ctx context.Context, apply func(context.Context, A, metav1.ApplyOptions) (T, error), config A,
	opts metav1.ApplyOptions) (T, error) {
	var none T
	switch problems := validation.ValidateFieldManager(opts.FieldManager, field.NewPath("FieldManager")); {
	case apply == nil:
		return none, errors.New("Apply: the function is nil")
	case kube.IsNil(config):
		return none, errors.New("Apply: the configuration is nil")
	case opts.FieldManager == "":
		return none, fmt.Errorf("Apply %s: ApplyOptions.FieldManager is empty: somebody has to own the fields",
			nameOf(config))
	case len(problems) > 0:
		return none, fmt.Errorf("Apply %s: %w", nameOf(config), problems.ToAggregate())
	}
	applied, err := apply(ctx, config, opts)
	if err == nil {
		return applied, nil
	}
	operation := fmt.Sprintf("apply %s as %s", nameOf(config), opts.FieldManager)
	if conflicts := conflictsOf(err); len(conflicts) > 0 {
		return none, &ApplyConflictError{Operation: operation, Conflicts: conflicts, Err: err}
	}
	return none, fmt.Errorf("%s: %w", operation, err)
}

// ApplyChanges is Apply without the requests that change nothing. An apply costs the server more than other writes do,
// so a controller should not repeat one in each Reconcile.
//
// seen is the object from a cache; if it is nil there is none yet. extract is the function that is generated next to
// the type of config: it returns the fields of seen that the manager has applied, with the values that they have.
//
//	_, err := objects.ApplyChanges(ctx, maps.Apply, corev1ac.ExtractConfigMap, seen, config, metav1.ApplyOptions{FieldManager: "gadget-controller"})
//
// If they are exactly those of config, an apply would set each to what it is, take none over and remove none: seen is
// returned, and nothing is sent. If there is any doubt, the apply is sent; so it always is if a Transform of the
// informer removes managedFields.
func ApplyChanges[A, T any](ctx context.Context, apply func(context.Context, A, metav1.ApplyOptions) (T, error),
	extract func(seen T, fieldManager string) (A, error),
	seen T, config A, opts metav1.ApplyOptions) (T, error) {
	var none T
	switch {
	case extract == nil:
		return none, errors.New("ApplyChanges: the function to extract with is nil")
	case kube.IsNil(seen) || kube.IsNil(config) || opts.FieldManager == "":
		return Apply(ctx, apply, config, opts)
	}
	has, err := extract(seen, opts.FieldManager)
	if err != nil {
		return none, fmt.Errorf("find out what %s has applied to %s: %w", opts.FieldManager, nameOf(config), err)
	}
	if same, err := sameJSON(has, config); err != nil {
		return none, fmt.Errorf("compare %s with what is there: %w", nameOf(config), err)
	} else if same {
		return seen, nil
	}
	return Apply(ctx, apply, config, opts)
}

// sameJSON reports whether a and b are the same on the wire, which is all that the server would see.
func sameJSON(a, b any) (bool, error) {
	left, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	right, err := json.Marshal(b)
	return bytes.Equal(left, right), err
}

// nameOf returns the key of an apply configuration: of a generated one, or of an unstructured object.
func nameOf(config any) string {
	deref := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	var key informer.Key
	switch c := config.(type) {
	case interface{ GetName() *string }:
		key.Name = deref(c.GetName())
		if c, ok := config.(interface{ GetNamespace() *string }); ok {
			key.Namespace = deref(c.GetNamespace())
		}
	case metav1.Object:
		key = informer.Key{Namespace: c.GetNamespace(), Name: c.GetName()}
	default:
		return fmt.Sprintf("a %T", config)
	}
	return key.String()
}

// ApplyConflictError says that nothing was applied because others manage some of the fields and want them different.
type ApplyConflictError struct {
	Operation string
	Conflicts []FieldConflict
	Err       error // of the server: Conflict
}

// FieldConflict is a field that another manager has set.
type FieldConflict struct {
	Field   string // such as .spec.replicas
	Manager string
}

func (e *ApplyConflictError) Error() string {
	var fields []string
	for _, c := range e.Conflicts {
		fields = append(fields, fmt.Sprintf("%s is managed by %s", c.Field, c.Manager))
	}
	return e.Operation + ": " + strings.Join(fields, ", ")
}

// Unwrap returns the server's error.
func (e *ApplyConflictError) Unwrap() error { return e.Err }

// conflictsOf reads the causes of a conflict: each names the field, and the manager in a sentence that starts with
// conflict with "manager".
func conflictsOf(err error) (conflicts []FieldConflict) {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		manager := strings.TrimPrefix(cause.Message, "conflict with ")
		if quoted, err := strconv.QuotedPrefix(manager); err == nil {
			manager, _ = strconv.Unquote(quoted)
		}
		conflicts = append(conflicts, FieldConflict{Field: cause.Field, Manager: manager})
	}
	return conflicts
}
