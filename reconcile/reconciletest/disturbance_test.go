package reconciletest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScheduleIsReadAsItWasWritten is about every kind of disturbance.
func TestScheduleIsReadAsItWasWritten(t *testing.T) {
	s := schedule{seed: 17, steps: 3, ordered: true}
	for _, what := range slices.Concat(atWrites, atReads, atHooks, atAPIWrites, atOthers) {
		s.disturbances = append(s.disturbances, disturbance{what, "update clusters/status", 2, "a.b-1"})
	}
	for _, what := range atSteps {
		d := disturbance{what: what, n: 3}
		if slices.Contains(ofRun, what) {
			d.n = 0
		}
		s.disturbances = append(s.disturbances, d)
	}
	for _, what := range ofResources {
		s.disturbances = append(s.disturbances, disturbance{what: what, of: "pods", n: 1})
	}
	again, err := parseSchedule(s.String(), 3)
	require.NoError(t, err)
	require.Equal(t, s, again)
}

func FuzzSchedule(f *testing.F) {
	f.Add("v1 seed=0 steps=1: crash after create pods #2; late pods in step 1; slow")
	f.Add("v1 seed=9 steps=2: ")
	f.Add("v1 seed=9 steps=2: scaler: held at update sets #3; scaler: down in step 1; no answer to POST dns.example #1")
	f.Add("v1 seed=9 steps=2 in order: slow; cold start")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSchedule(text, 3)
		if err != nil {
			return
		}
		again, err := parseSchedule(s.String(), 3)
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}
