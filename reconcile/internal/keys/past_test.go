package keys

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A run that found nothing to do is not kept beside another one of that kind.
func TestAQuietRun(t *testing.T) {
	waits := make([]status.Wait, 2)
	for name, test := range map[string]struct {
		run   status.Run
		quiet bool
	}{
		"it did nothing":                   {status.Run{}, true},
		"it was nearly slow":               {status.Run{Took: slowRun - 1}, true},
		"it was slow":                      {status.Run{Took: slowRun}, false},
		"it waited for a worker":           {status.Run{Waits: waits[:1]}, true},
		"it waited for something else too": {status.Run{Waits: waits}, false},
		"it wrote":                         {status.Run{Writes: make([]status.Write, 1)}, false},
		"it failed":                        {status.Run{Error: &status.Error{}}, false},
	} {
		require.Equal(t, test.quiet, quietRun(&test.run), name)
	}
}
