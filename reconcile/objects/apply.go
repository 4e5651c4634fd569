package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// Apply makes a server-side apply: the server gives the fields in config the values that they have there, creates the
// object if there is none, and records opts.FieldManager as the manager of these fields. It removes fields that the
// manager has applied before and that are no longer in config. Fields of other managers stay as they are.
//
// apply is the method Apply or ApplyStatus of an [informer.Resource] or of a typed client. config is of the type that
// the method takes: a Resource takes the apply configurations of all types, a typed client those of its own.
//
//	config := corev1ac.ConfigMap(name, namespace).WithData(data)
//	_, err := objects.Apply(ctx, maps.In(namespace).Apply, config,
//		metav1.ApplyOptions{FieldManager: "gadget-controller"})
//
// If another manager has set one of the fields to another value, nothing is written, and the error is an
// [*ApplyConflictError] that names the fields and managers. A controller that has the last word sets opts.Force and
// takes the fields over; two controllers that do so for one field overwrite each other without end.
//
// An apply may be repeated: after a timeout the next one finds what the lost one has done, and changes nothing.
func Apply[A, T, C any](ctx context.Context, apply func(context.Context, A, metav1.ApplyOptions) (T, error), config C,
	opts metav1.ApplyOptions) (T, error) {
	var none T
	switch problems := validation.ValidateFieldManager(opts.FieldManager, field.NewPath("FieldManager")); {
	case apply == nil:
		return none, errors.New("Apply: the function is nil")
	case kube.IsNil(config):
		return none, errors.New("Apply: the configuration is nil")
	case opts.FieldManager == "":
		return none, fmt.Errorf("Apply %s: ApplyOptions.FieldManager is empty, so the fields would have no manager",
			nameOf(config))
	case len(problems) > 0:
		return none, fmt.Errorf("Apply %s: %w", nameOf(config), problems.ToAggregate())
	}
	accepted, ok := any(config).(A)
	if !ok {
		return none, fmt.Errorf("Apply %s: the client applies configurations of type %s, not a %T", nameOf(config),
			reflect.TypeFor[A](), config)
	}
	applied, err := apply(ctx, accepted, opts)
	if err == nil {
		return applied, nil
	}
	operation := fmt.Sprintf("apply %s as %s", nameOf(config), opts.FieldManager)
	if conflicts := conflictsOf(err); len(conflicts) > 0 {
		return none, &ApplyConflictError{Operation: operation, Conflicts: conflicts, Err: err}
	}
	return none, fmt.Errorf("%s: %w", operation, err)
}

// ApplyChanges is Apply without the requests that change nothing. An apply costs the server more than other writes, so
// a controller should not repeat it in each Reconcile.
//
// seen is the object from a cache, nil if there is none yet. extract is the function that is generated next to the type
// of config: it returns the fields of seen that the manager has applied, with their values.
//
//	_, err := objects.ApplyChanges(ctx, maps.Apply, corev1ac.ExtractConfigMap, seen, config,
//		metav1.ApplyOptions{FieldManager: "gadget-controller"})
//
// If these fields and values are exactly those of config, nothing is sent, and seen is returned. Otherwise the apply is
// sent. It is always sent if a Transform of the informer removes managedFields.
func ApplyChanges[A, T, C any](ctx context.Context, apply func(context.Context, A, metav1.ApplyOptions) (T, error),
	extract func(seen T, fieldManager string) (C, error),
	seen T, config C, opts metav1.ApplyOptions) (T, error) {
	var none T
	switch {
	case extract == nil:
		return none, errors.New("ApplyChanges: the extract function is nil")
	case kube.IsNil(seen) || kube.IsNil(config) || opts.FieldManager == "":
		return Apply(ctx, apply, config, opts)
	}
	has, err := extract(seen, opts.FieldManager)
	if err != nil {
		return none, fmt.Errorf("extract what %s has applied to %s: %w", opts.FieldManager, nameOf(config), err)
	}
	if same, err := sameJSON(has, config); err != nil {
		return none, fmt.Errorf("compare %s with the cached object: %w", nameOf(config), err)
	} else if same {
		return seen, nil
	}
	return Apply(ctx, apply, config, opts)
}

// sameJSON reports whether a and b are encoded alike: the server would see no difference.
func sameJSON(a, b any) (bool, error) {
	left, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	right, err := json.Marshal(b)
	return bytes.Equal(left, right), err
}

// nameOf returns the kind and the key of an apply configuration: of a generated one, or of an unstructured object.
func nameOf(config any) string {
	deref := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	var kind string
	var key informer.Key
	switch c := config.(type) {
	case interface{ GetName() *string }:
		key.Name = deref(c.GetName())
		if c, ok := config.(interface{ GetNamespace() *string }); ok {
			key.Namespace = deref(c.GetNamespace())
		}
		if c, ok := config.(interface{ GetKind() *string }); ok {
			kind = deref(c.GetKind())
		}
	case informer.Object:
		kind, key = c.GetObjectKind().GroupVersionKind().Kind, informer.KeyOf(c)
	default:
		return fmt.Sprintf("a %T", config)
	}
	return strings.TrimSpace(kind + " " + key.String())
}

// ApplyConflictError says that nothing was applied, because other managers have set some of the fields to other values.
type ApplyConflictError struct {
	Operation string
	Conflicts []FieldConflict
	Err       error // the server's: Conflict
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

// conflictsOf reads the causes of a conflict. Each has the name of the field, and a message that begins with: conflict
// with "manager".
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
