package objects_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

type configMapConfig = *corev1ac.ConfigMapApplyConfiguration

// applies is an Apply that notes what it is asked for, and gives one answer.
type applies struct {
	t       *testing.T
	configs []configMapConfig
	opts    []metav1.ApplyOptions
	err     error
}

func (a *applies) Apply(ctx context.Context, config configMapConfig, opts metav1.ApplyOptions) (*corev1.ConfigMap,
	error) {
	require.NotNil(a.t, ctx.Value(ctxKey{}))
	a.configs, a.opts = append(a.configs, config), append(a.opts, opts)
	return &corev1.ConfigMap{}, a.err
}

var asMe = metav1.ApplyOptions{FieldManager: "me"}

func config(value string) configMapConfig {
	return corev1ac.ConfigMap("a", "default").WithData(map[string]string{"key": value})
}

func TestAnApplyIsPassedOnAsItIs(t *testing.T) {
	server := &applies{t: t}
	want, opts := config("v"), metav1.ApplyOptions{FieldManager: "me", Force: true, DryRun: []string{metav1.DryRunAll}}
	_, err := objects.Apply(testCtx(t), server.Apply, want, opts)
	require.NoError(t, err)
	require.Equal(t, []configMapConfig{want}, server.configs)
	require.Equal(t, []metav1.ApplyOptions{opts}, server.opts)
}

func TestAnApplyConflictNamesFieldsAndManagers(t *testing.T) {
	cause := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: message}
	}
	server := &applies{t: t, err: apierrors.NewApplyConflict([]metav1.StatusCause{
		cause(".data.key", `conflict with "kubectl" using v1 at 2001-02-03T04:05:06Z`),
		cause(".data.other", `conflict with "say \"hi\"" with subresource "status" using v1`),
		cause(".data.odd", `disagreement`),
		{Type: "Something", Field: ".data.else", Message: `conflict with "nobody"`},
	}, "Apply failed with 3 conflicts")}
	_, err := objects.Apply(testCtx(t), server.Apply, config("v"), asMe)
	var conflict *objects.ApplyConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []objects.FieldConflict{{".data.key", "kubectl"}, {".data.other", `say "hi"`},
		{".data.odd", "disagreement"}}, conflict.Conflicts)
	require.EqualError(t, err, `apply ConfigMap default/a as me: .data.key is managed by kubectl, .data.other is `+
		`managed by say "hi", .data.odd is managed by disagreement`)
	require.True(t, apierrors.IsConflict(err))
}

// TestAConflictOfVersionsIsNoConflictOfFields: a configuration with a resourceVersion is refused in another way, and
// with another cure.
func TestAConflictOfVersionsIsNoConflictOfFields(t *testing.T) {
	for _, failure := range []error{apierrors.NewConflict(resource, "a", errors.New("it has changed")),
		errors.New("connection reset")} {
		server := &applies{t: t, err: failure}
		_, err := objects.Apply(testCtx(t), server.Apply, config("v"), asMe)
		require.ErrorIs(t, err, failure)
		require.ErrorContains(t, err, "apply ConfigMap default/a as me: ")
		var conflict *objects.ApplyConflictError
		require.False(t, errors.As(err, &conflict))
	}
}

func TestAnApplyThatWouldChangeNothingIsNotSent(t *testing.T) {
	seen := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	extracts := func(c configMapConfig, err error) func(*corev1.ConfigMap, string) (configMapConfig, error) {
		return func(o *corev1.ConfigMap, manager string) (configMapConfig, error) {
			require.Same(t, seen, o)
			require.Equal(t, "me", manager)
			return c, err
		}
	}
	failure := errors.New("no such schema")
	for name, test := range map[string]struct {
		seen    *corev1.ConfigMap
		extract func(*corev1.ConfigMap, string) (configMapConfig, error)
		sent    int
		err     error
	}{
		"as it is":           {seen, extracts(config("v"), nil), 0, nil},
		"another value":      {seen, extracts(config("w"), nil), 1, nil},
		"a field too many":   {seen, extracts(config("v").WithLabels(map[string]string{"a": "b"}), nil), 1, nil},
		"never applied":      {seen, extracts(corev1ac.ConfigMap("a", "default"), nil), 1, nil},
		"there is none yet":  {nil, extracts(nil, failure), 1, nil},
		"it cannot be known": {seen, extracts(nil, failure), 0, failure},
	} {
		t.Run(name, func(t *testing.T) {
			server := &applies{t: t}
			got, err := objects.ApplyChanges(testCtx(t), server.Apply, test.extract, test.seen, config("v"), asMe)
			require.ErrorIs(t, err, test.err)
			require.Len(t, server.configs, test.sent)
			if test.sent == 0 && err == nil {
				require.Same(t, seen, got)
			}
		})
	}
}

func TestApplyRefusesMistakes(t *testing.T) {
	server := &applies{t: t}
	same := func(*corev1.ConfigMap, string) (configMapConfig, error) { return config("v"), nil }
	for want, call := range map[string]func() (*corev1.ConfigMap, error){
		"function is nil": func() (*corev1.ConfigMap, error) {
			return objects.Apply[configMapConfig, *corev1.ConfigMap](testCtx(t), nil, config("v"), asMe)
		},
		"configuration is nil": func() (*corev1.ConfigMap, error) {
			return objects.Apply(testCtx(t), server.Apply, configMapConfig(nil), asMe)
		},
		"applies configurations of type *v1.ConfigMapApplyConfiguration, not a *v1.SecretApplyConfiguration": func() (
			*corev1.ConfigMap, error) {
			return objects.Apply(testCtx(t), server.Apply, corev1ac.Secret("a", "default"), asMe)
		},
		"default/a: ApplyOptions.FieldManager is empty": func() (*corev1.ConfigMap, error) {
			return objects.ApplyChanges(testCtx(t), server.Apply, same, &corev1.ConfigMap{}, config("v"),
				metav1.ApplyOptions{Force: true})
		},
		"default/a: FieldManager: Too long": func() (*corev1.ConfigMap, error) {
			return objects.Apply(testCtx(t), server.Apply, config("v"),
				metav1.ApplyOptions{FieldManager: strings.Repeat("x", 129)})
		},
		"the extract function is nil": func() (*corev1.ConfigMap, error) {
			return objects.ApplyChanges(testCtx(t), server.Apply, nil, &corev1.ConfigMap{}, config("v"), asMe)
		},
	} {
		_, err := call()
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, server.configs)
}

func TestErrorsNameWhatWasApplied(t *testing.T) {
	u := &unstructured.Unstructured{}
	u.SetNamespace("default")
	u.SetName("a")
	fail := errors.New("down")
	_, err := objects.Apply(testCtx(t),
		func(context.Context, *unstructured.Unstructured, metav1.ApplyOptions) (*unstructured.Unstructured, error) {
			return nil, fail
		}, u, asMe)
	require.EqualError(t, err, "apply default/a as me: down")
	_, err = objects.Apply(testCtx(t),
		func(context.Context, map[string]string, metav1.ApplyOptions) (int, error) { return 0, fail },
		map[string]string{}, asMe)
	require.EqualError(t, err, "apply a map[string]string as me: down")
}
