package main

import (
	"strings"
	"testing"
)

func TestOperatorsAreChosenByName(t *testing.T) {
	first := operators[0]
	for _, args := range [][]string{{"none-such"}, {first.name + "@v9"}, {first.name, "none-such"}} {
		want := "no operator " + args[len(args)-1]
		if _, err := chosenBy(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	if all, err := chosenBy(nil); err != nil || len(all) != len(operators) {
		t.Errorf("without a name: %d, %v, want %d", len(all), err, len(operators))
	}
	one, err := chosenBy([]string{first.name + "@" + first.old})
	if err != nil || len(one) != 1 || one[0].old != first.old {
		t.Errorf("by its version: %v, %v", one, err)
	}
}
