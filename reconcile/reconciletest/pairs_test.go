package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCausedIsWhatTheReferenceRunHasNot(t *testing.T) {
	const list, get, create, lease = "list pods", "get pods", "create pods", "update leases"
	ideal := []string{list, lease, create, create, get}
	for name, test := range map[string]struct {
		asked []string
		want  []disturbance
	}{
		"nothing": {asked: []string{list, create, lease, create, get}},
		"a write again": {asked: []string{list, create, create, create, get},
			want: []disturbance{{of: create, n: 3}}},
		"a restart": {[]string{list, create, list, create, get}, []disturbance{{of: list, n: 2}}},
		"more at the end": {append(ideal[:5:5], get, lease, list),
			[]disturbance{{of: get, n: 2}, {of: list, n: 2}}},
		"nothing in common":      {asked: []string{get}},
		"another thing, at once": {[]string{get, list, create, create, get}, []disturbance{{of: get, n: 1}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, caused(test.asked, ideal)) })
	}
	long := ideal[:1:1]
	for range 100 {
		long = append(long, get)
	}
	require.Len(t, caused(long, ideal), mostCaused)
}
