package main

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// made returns an object with a data field and a status.
func made(name, uid, data, status string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "a", "name": name, "uid": uid, "resourceVersion": uid + data + status},
		"data":     map[string]any{"is": data}, "status": map[string]any{"is": status},
	}}
}

func things(objects ...*unstructured.Unstructured) state {
	s := state{}
	for _, o := range objects {
		s[object{"things", "a", o.GetName()}] = o
	}
	return s
}

func TestEffectsAreWhatHasComeOfWrites(t *testing.T) {
	before := things(made("same", "1", "x", "x"), made("changed", "2", "x", "x"), made("status", "3", "x", "x"),
		made("gone", "4", "x", "x"), made("anew", "5", "x", "x"), made("by-others", "6", "x", "x"))
	after := things(made("same", "1", "x", "x"), made("changed", "2", "y", "y"), made("status", "3", "x", "y"),
		made("anew", "7", "x", "x"), made("by-others", "6", "y", "y"), made("new", "8", "x", ""))
	to := func(verb, name string) write {
		return write{verb: verb, resource: "things", namespace: "a", name: name}
	}
	ofStatus := to("patch", "status")
	ofStatus.status = true
	found, err := effects(before, after, []write{to("update", "same"), to("update", "changed"), ofStatus,
		to("delete", "gone"), to("delete", "anew"), to("create", "anew"), to("create", "new")})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for e := range maps.Keys(found) {
		all = append(all, e.String())
	}
	slices.Sort(all)
	want := []string{"create things a/anew", "create things a/new", "delete things a/anew", "delete things a/gone",
		"status things a/status", "update things a/changed"}
	if !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

func TestWhatNoTwoRunsHaveInCommonIsNotCompared(t *testing.T) {
	one := made("a", "1", "2026-11-26T05:00:00Z", "10.96.0.1")
	other := made("a", "2", "2026-11-27T06:00:00Z", "10.96.7.7")
	for _, part := range []string{"", "status"} {
		found, err := differences(one, other, part)
		if err != nil || len(found) > 0 {
			t.Errorf("%q, %v", found, err)
		}
	}
	found, err := differences(one, made("a", "1", "other", "10.96.0.1"), "")
	if err != nil || !slices.Equal(found, []string{`data.is: "(a time)", "other"`}) {
		t.Errorf("%q, %v", found, err)
	}
}

func TestPodsThatAreNewOnesHaveEnded(t *testing.T) {
	pods := func(uids ...string) state {
		s := state{}
		for i, uid := range uids {
			name := string(rune('a' + i))
			s[object{"pods", "a", "drawn-*" + name}] = made(name, uid, "", "")
		}
		return s
	}
	before, fork, real := pods("1", "2", "3", "4"), pods("1", "12", "13", "4"), pods("1", "22", "3", "24")
	c, err := compared(before, fork, real, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.podsEnded != 2 || !slices.Equal(c.podsMissed, []string{"pods a/d"}) ||
		!slices.Equal(c.podsWrong, []string{"pods a/c"}) {
		t.Errorf("%d have ended, %q were missed, %q are wrong", c.podsEnded, c.podsMissed, c.podsWrong)
	}
}
