package reconcile

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
)

// A Lease has no room for any number of namespaces. Of too many the next leader is told how far the furthest has got,
// and waits for that in each.
func TestAHandoverAboutTooManyNamespacesTellsThemNotApart(t *testing.T) {
	for _, namespaces := range []int{500, 2000} { // and one of another resource
		all := []debts.Legacy{{Host: "server", Resource: "configmaps", Namespace: "default", ResourceVersion: "7"}}
		for i := range namespaces { // the last is not the latest
			all = append(all, debts.Legacy{Host: "server", Resource: "pods", Namespace: fmt.Sprintf("team-%d", i),
				ResourceVersion: fmt.Sprint(1000 + i*7%namespaces), Relist: i == 3})
		}
		text := (&Manager{}).handoverText(all)
		require.LessOrEqual(t, len(text), maxHandoverBytes)
		var left []debts.Legacy
		require.NoError(t, json.Unmarshal([]byte(text), &left))
		if namespaces == 500 {
			require.Len(t, left, namespaces+1)
			continue
		}
		require.ElementsMatch(t, []debts.Legacy{
			{Host: "server", Resource: "pods", ResourceVersion: fmt.Sprint(1000 + namespaces - 1), Relist: true},
			{Host: "server", Resource: "configmaps", ResourceVersion: "7"},
		}, left)
	}
}

// What no cache here is to show is passed on, in the format of the Lease. A handover is never empty.
func TestAHandoverIsPassedOn(t *testing.T) {
	inherited := []debts.Legacy{{Informer: "lively", ResourceVersion: "7"}}
	require.Equal(t, `[{"informer":"lively","resourceVersion":"7"}]`, (&Manager{}).handoverText(inherited))
	require.Equal(t, "[]", (&Manager{}).handoverText(nil))
}
