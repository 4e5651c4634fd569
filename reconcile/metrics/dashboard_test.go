package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// TestTheDashboardAsksForWhatThereIs reads the queries of the example's dashboard. A name that is not the collector's
// would be an empty panel.
func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	known := described(t)
	file, err := os.ReadFile("../../examples/replicaset/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(file, &dashboard))
	metric := regexp.MustCompile(`[a-z_]+\{`) // every one is asked for by its labels
	asked := 0
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			names := metric.FindAllString(target.Expr, -1)
			require.NotEmpty(t, names, target.Expr)
			for _, name := range names {
				asked++
				name = strings.TrimSuffix(strings.TrimSuffix(name, "{"), "_bucket")
				require.Contains(t, known, name, "panel %q", panel.Title)
			}
		}
	}
	require.Greater(t, asked, 15)
}

// described returns the names of all metrics that the collector may show.
func described(t *testing.T) (names []string) {
	descs := make(chan *prometheus.Desc, 100)
	New(Options{}).Describe(descs)
	close(descs)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		found := name.FindStringSubmatch(d.String())
		require.Len(t, found, 2)
		names = append(names, found[1])
	}
	return names
}
