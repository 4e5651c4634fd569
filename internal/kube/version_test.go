package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		a, b                    string
		older, atLeast, ordered bool
	}{
		{"9", "10", true, false, true},
		{"10", "10", false, true, true},
		{"11", "10", false, true, true},
		{"", "1", false, false, false},
		{"9", "", false, false, false},
		{"a", "b", false, false, false},
		{"abc", "abc", false, true, true},
		{"abd", "abc", false, false, false},
		{"007", "8", false, false, false},
	} {
		require.Equal(t, c.older, Older(c.a, c.b), "Older(%q, %q)", c.a, c.b)
		require.Equal(t, c.atLeast, AtLeast(c.a, c.b), "AtLeast(%q, %q)", c.a, c.b)
		require.Equal(t, c.ordered, Ordered(c.a, c.b), "Ordered(%q, %q)", c.a, c.b)
		require.Equal(t, c.ordered, Ordered(c.b, c.a), "Ordered(%q, %q)", c.b, c.a)
	}
}
