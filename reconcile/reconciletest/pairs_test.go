package reconciletest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCausedIsWhatTheReferenceRunHasNot(t *testing.T) {
	const list, get, create, lease = "list pods", "get pods", "create pods", "update leases"
	ideal := origins(list, lease, create, create, get)
	for name, test := range map[string]struct {
		asked []origin
		want  []disturbance
	}{
		"nothing": {asked: origins(list, create, lease, create, get)},
		"a write again": {asked: origins(list, create, create, create, get),
			want: []disturbance{{of: create, n: 3}}},
		"a restart": {origins(list, create, list, create, get), []disturbance{{of: list, n: 2}}},
		"more at the end": {append(ideal[:5:5], origins(get, lease, list)...),
			[]disturbance{{of: get, n: 2}, {of: list, n: 2}}},
		"nothing in common":      {asked: origins(get)},
		"another thing, at once": {origins(get, list, create, create, get), []disturbance{{of: get, n: 1}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, caused(test.asked, ideal)) })
	}
	long := ideal[:1:1]
	for range 100 {
		long = append(long, origin{kind: get})
	}
	require.Len(t, caused(long, ideal), mostCaused)
}
