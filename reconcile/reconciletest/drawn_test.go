package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrawnNames are learned from two ends, and known in a third one.
func TestDrawnNames(t *testing.T) {
	for name, test := range map[string]struct {
		a, b, third string // names of Jobs
		want        string // what a snapshot calls the third one
	}{
		"hexadecimal": {"web-0a1b2c3d", "web-9f8e7d6c", "web-00112233", "web-*"},
		"a UUID": {"0a1b2c3d-0a1b-4a1b-8a1b-0a1b2c3d4e5f", "9f8e7d6c-9f8e-4f8e-8f8e-9f8e7d6c5b4a",
			"a1111111-a111-4111-8111-111111111111", "*-*-*-*-*"},
		"in the middle":        {"web-0a1b2c3d-data", "web-9f8e7d6c-data", "web-00112233-data", "web-*-data"},
		"after a number":       {"web-1-0a1b2c3d", "web-1-9f8e7d6c", "web-27-00112233", "web-27-*"},
		"of another beginning": {"web-0a1b2c3d", "web-9f8e7d6c", "db-00112233", "db-00112233"},
		"of another length":    {"web-0a1b2c3d", "web-9f8e7d6c", "web-0011223344", "web-0011223344"},
		"numbers":              {"web-28000", "web-28010", "web-28020", "web-28020"},
		"short":                {"web-abc", "web-xyz", "web-ddd", "web-ddd"},
		"of several lengths":   {"web-first", "web-second", "web-third", "web-third"},
		"the same":             {"web-0a1b2c3d", "web-0a1b2c3d", "web-00112233", "web-00112233"},
	} {
		end := func(name string) snapshot { return snapshot{"jobs.batch default/" + name: {".spec = {}"}} }
		all := drawnBetween(end(test.a), end(test.b))
		require.Equal(t, test.want, withoutDrawn(all, "jobs.batch", test.third), name)
		require.Equal(t, test.third, withoutDrawn(all, "pods", test.third), name)
	}
	two := snapshot{"pods default/a-0a1b": nil, "pods default/b-0a1b": nil, "pods default/b-0a1c(2)": nil}
	require.Empty(t, drawnBetween(two, snapshot{"pods default/a-9f8e": {""}}), "not as many")
}
