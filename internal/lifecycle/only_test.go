package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnErrorSaysOnlyTheTargets(t *testing.T) {
	failed, missing := errors.New("failed"), &os.PathError{Op: "open", Path: "a", Err: os.ErrNotExist}
	for _, only := range []error{context.Canceled, os.ErrNotExist, missing, fmt.Errorf("asking: %w", context.Canceled),
		errors.Join(context.Canceled, fmt.Errorf("%w, then %w", missing, context.Canceled))} {
		require.True(t, IsOnly(only, context.Canceled, os.ErrNotExist), only)
	}
	for _, more := range []error{nil, failed, ErrStuck, errors.Join(context.Canceled, failed), fmt.Errorf("a"),
		fmt.Errorf("%w: %w", fmt.Errorf("%w: %w", context.Canceled, failed), context.Canceled), &PanicError{Value: 1},
		hollow{}} {
		require.False(t, IsOnly(more, context.Canceled, os.ErrNotExist), more)
	}
	require.False(t, IsOnly(nil, nil))
}

// hollow is an error that wraps a list without an error.
type hollow struct{}

func (hollow) Error() string   { return "hollow" }
func (hollow) Unwrap() []error { return nil }
