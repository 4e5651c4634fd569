package reconciletest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
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

func TestPairsThatMayNeedLuckAreRunAgain(t *testing.T) {
	for name, test := range map[string]struct {
		shows       int // the run that shows that the program is not deterministic
		times, want int
	}{
		"of a deterministic program, once":                    {times: lucky, want: 2},
		"of one that is not, by the first of them, all":       {shows: 1, times: lucky, want: 2 * lucky},
		"of one that is not, by the last of them, all":        {shows: 2, times: lucky, want: 2 * lucky},
		"of one that is not, if no luck is needed, each once": {shows: 1, times: 1, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var c *check
			before := 0
			c = newCheck(t, &Scenario{Run: func(ctx context.Context, _ *rest.Config) error {
				c.jitters = c.jitters || before > 0 && c.runs == before+test.shows-1
				<-ctx.Done()
				return nil
			}, Steps: []Step{StepFunc("nothing", func(context.Context, *rest.Config) error { return nil })}}, 0)
			c.ideal = c.run(c.schedule(), nil)
			before = c.runs
			runner{c}.tryPairs([]schedule{c.schedule(), c.schedule()}, test.times)
			require.Equal(t, test.want, c.runs-before)
		})
	}
}
