package reconciletest_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

var update = flag.Bool("update", false, "write testdata/effects.txt anew")

// TestWhatEachDisturbanceDoes compares what happens in a run with each kind of disturbance with a file. The program
// gives a Greeting a ConfigMap with its text, and lists from the server's cache.
func TestWhatEachDisturbanceDoes(t *testing.T) {
	var b strings.Builder
	for _, disturbance := range []string{
		"",
		"crash before create configmaps #1", "crash after create configmaps #1", "lose answer to update configmaps #1",
		"429 to update configmaps #1", "500 to update configmaps #1", "504 to update configmaps #1",
		"late 504 to update configmaps #1", "touch before update configmaps #1", "second at update configmaps #1",
		"next step at create configmaps #1", "back to create configmaps #1", "500 for 20 s from update configmaps #1",
		"500 to list greetings #2", "second at watch greetings #1",
		"cold start", "unseen steps",
		"down in step 2", "down over step 2", "unseen step 2", "unseen step 3", "cut in step 2",
		"old cache after step 2", "back to step 2", "namesake after step 2", "namesake at once after step 2", "slow",
		"late greetings in step 2", "frozen greetings in step 2", "delete configmaps in step 2",
		"back to create configmaps #1; back to update configmaps #1",
		"cold start; second at list greetings #1; crash before create configmaps #1",
	} {
		b.WriteString("== " + disturbance + "\n")
		for _, line := range reconciletest.Story(t, greets(plainAt("0", right)), "v1 seed=0 steps=3: "+disturbance) {
			b.WriteString(line + "\n")
		}
	}
	const file = "testdata/effects.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}
