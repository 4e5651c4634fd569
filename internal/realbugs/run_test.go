package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// printed is what Check prints, shortened.
const printed = `=== RUN   TestJobSet
    check_test.go:77: 463 runs in 35s (13 a second), 12,345 requests of the program (350 a second)
    check_test.go:77: reconciletest.Check: finding 1 of 2, after 17 runs in 273ms, by the rule "Always":
            delete volumes default/a-0 by incarnation 2: a-0 is in use, and its data is lost
        what happened:
              0.000s  start of incarnation 1
             30.000s  step 1: apply Set a
        again, alone: Replay: "v1 seed=0 steps=1: namesake at once after step 1"
    check_test.go:77: reconciletest.Check: finding 2 of 2, after 1 run in 2s, by the rule "ends alike":
            two runs end differently
        what happened:
              0.000s  start of incarnation 1
        again, alone: Replay: "v1 seed=0 steps=1: late jobs"
--- FAIL: TestJobSet (35.00s)
`

func TestFindingsAreRead(t *testing.T) {
	f := read(printed)
	if f.runs != 463 || len(f.all) != 2 {
		t.Fatalf("%d runs, %d findings, want 463, 2", f.runs, len(f.all))
	}
	found, others := f.of(bug{shows: regexp.MustCompile(`its data is lost`)})
	if found == nil || found.rule != "Always" || found.runs != 17 || found.timeline != 2 {
		t.Errorf("found: %+v", found)
	}
	if len(others) != 1 || others[0].rule != "ends alike" || others[0].runs != 1 || others[0].timeline != 1 ||
		others[0].replay != `"v1 seed=0 steps=1: late jobs"` {
		t.Errorf("the others: %+v", others)
	}
	if found, _ := f.of(bug{shows: regexp.MustCompile(`no such`)}); found != nil {
		t.Errorf("found: %+v", found)
	}
}

func TestProgramsAreChosenByName(t *testing.T) {
	if _, _, err := chosenBy([]string{"jobset", "none-such"}); err == nil || err.Error() != "no program none-such" {
		t.Error(err)
	}
	if all, plain, err := chosenBy(nil); err != nil || len(all) != len(programs) || len(plain) != len(releases) {
		t.Errorf("without a name: %d, %d, %v", len(all), len(plain), err)
	}
	if one, plain, err := chosenBy([]string{"statefulset"}); err != nil || len(one) != 1 || len(plain) != 0 ||
		one[0].name != "statefulset" {
		t.Errorf("by its name: %v, %v, %v", one, plain, err)
	}
	if one, plain, err := chosenBy([]string{"trust-manager"}); err != nil || len(one) != 0 || len(plain) != 1 ||
		plain[0].name != "trust-manager" {
		t.Errorf("a release by its name: %v, %v, %v", one, plain, err)
	}
}

// TestBugsAreInTheList that was made before any was tried.
func TestBugsAreInTheList(t *testing.T) {
	list, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		for _, b := range p.bugs {
			if !strings.Contains(string(list), b.published) {
				t.Errorf("README.md lacks %s", b.published)
			}
		}
	}
}

// TestReleasesAreInTheList that was made before any was tried.
func TestReleasesAreInTheList(t *testing.T) {
	list, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		row := regexp.MustCompile(`(?m)^\| [A-Z] \| \S*` + regexp.QuoteMeta(r.name) + `.* \| ` +
			regexp.QuoteMeta(r.new) + ` \|`)
		if !row.Match(list) {
			t.Errorf("README.md lacks %s %s", r.name, r.new)
		}
	}
}
