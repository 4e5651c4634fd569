package reconciletest

import "testing"

// Signatures runs a schedule n times, and returns what happened in each, without the times.
func Signatures(t *testing.T, sc Scenario, text string, n int) []string {
	t.Helper()
	s, err := parseSchedule(text, len(sc.Steps))
	if err != nil {
		t.Fatal(err)
	}
	c := &check{t: t, scenario: &sc}
	var all []string
	for range n {
		all = append(all, c.run(s, nil).signature)
	}
	return all
}

// Validate returns what Check fails with at once.
func Validate(sc Scenario) error {
	if err := sc.validate(); err != nil {
		return err
	}
	_, err := parseSchedule(sc.Replay, len(sc.Steps))
	return err
}
