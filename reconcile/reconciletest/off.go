package reconciletest

import (
	"fmt"
	"slices"
	"strings"
)

// The rules, by which [Scenario.Off] switches them off.
const (
	ruleRests      = "comes to rest"
	ruleConverges  = "converges"
	ruleSameEnd    = "ends alike"
	ruleReversible = "is reversible"
	ruleRepeats    = "repeats a write that failed"
	ruleIdempotent = "is idempotent"
	ruleStays      = "stays settled"
	ruleAlways     = "Always"
	ruleForeign    = "leaves alone what belongs to others"
	ruleLetsGo     = "lets go of what was deleted"
	ruleValid      = "is not refused again and again"
	ruleWaits      = "waits as long as the server asks"
	ruleInsists    = "does not insist on a conflict"
	ruleQuiet      = "is quiet at rest"
	ruleRuns       = "runs until its ctx ends"
	ruleNoLeaks    = "leaves no goroutine behind"
	ruleRights     = "has the rights that it needs"
	ruleServed     = "has its webhooks served"
	ruleAPIs       = "has its APIs served"

	// These two end a run, so they are always on.
	ruleEnds  = "ends with its ctx"
	ruleSteps = "the step works"
)

var switchable = []string{ruleRests, ruleConverges, ruleSameEnd, ruleReversible, ruleRepeats, ruleIdempotent, ruleStays,
	ruleAlways, ruleForeign, ruleLetsGo, ruleValid, ruleWaits, ruleInsists, ruleQuiet, ruleRuns, ruleNoLeaks,
	ruleRights, ruleServed, ruleAPIs}

// nameOfKind returns the name of a kind of disturbances: its words, without those that lead over to what it is at.
func nameOfKind(what string) string {
	if what == backTo {
		return what
	}
	for _, end := range []string{" to", " in", " at", " from", " with"} {
		what = strings.TrimSuffix(what, end)
	}
	return what
}

// isOff reports whether a rule is switched off.
func (s *Scenario) isOff(rule string) bool { return slices.Contains(s.Off, rule) }

// spares reports whether a disturbance is switched off.
func (s *Scenario) spares(d disturbance) bool {
	return slices.ContainsFunc(s.Off, func(off string) bool {
		name := nameOfKind(d.what)
		return off == name || d.of != "" && off == name+" "+d.of ||
			off == of(d.program, name) || d.of != "" && off == of(d.program, name+" "+d.of)
	})
}

// validateOff returns an error for what is neither a rule nor a disturbance.
func (s *Scenario) validateOff() error {
	for i, off := range s.Off {
		known := slices.Contains(switchable, off)
		if program, rest, ok := strings.Cut(off, ": "); ok && slices.Contains(s.names(), program) {
			off = rest
		}
		for _, what := range slices.Concat(atWrites, atReads, atHooks, atOthers, atAPIWrites, atSteps, ofResources) {
			name := nameOfKind(what)
			known = known || off == name || strings.HasPrefix(off, name+" ")
		}
		if !known {
			return fmt.Errorf("Scenario.Off[%d] is %q: it is neither a rule nor a disturbance that can be switched off",
				i, off)
		}
	}
	return nil
}
