package reconciletest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhereTwoRunsDiffer(t *testing.T) {
	trace := func(texts ...string) (lines []line) {
		for _, text := range texts {
			lines = append(lines, line{text: text, at: time.Duration(len(lines))})
		}
		return lines
	}
	require.Empty(t, difference(trace("a", "b"), trace("a", "b")))
	require.Equal(t, `: line 2 of one is "b", of the other "c"`, difference(trace("a", "b"), trace("a", "c")))
	require.Equal(t, `: line 2 of one is "b", of the other "no more requests"`,
		difference(trace("a", "b"), trace("a")))
}
