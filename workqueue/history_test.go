package workqueue

import (
	"fmt"
	"slices"
)

// event is one line of a history: what happened to a key, in the order in which it happened.
type event struct {
	what string // one of the below
	key  string
}

const (
	added   = "added"   // somebody asked for a run; written before the call that asks
	started = "started" // a worker has the key; written after the call that gave it
	ended   = "ended"   // the worker gives it back; written before the call that does
	dropped = "dropped" // a delay was cancelled before it ended, and it was the only reason to run
)

// validate says whether a history keeps the promises of a queue, where undone are the keys that were left in it.
//
//	I6  one worker at a time has a key
//	I7  however often a key is added, it waits once (only if exact: every call was over before the next began)
//	I8  each add is followed by a run that begins after it, or its key is left undone
//	I9  a key runs only as often as somebody asked for it
func validate(history []event, undone []string, exact bool) error {
	type tally struct {
		active         bool
		asked, started int
		wanted         bool
	}
	keys := map[string]*tally{}
	for i, e := range history {
		k := keys[e.key]
		if k == nil {
			k = &tally{}
			keys[e.key] = k
		}
		switch e.what {
		case added:
			k.asked++
			k.wanted = true
		case dropped:
			k.wanted = false
		case started:
			k.started++
			switch {
			case k.active:
				return fmt.Errorf("I6: event %d gives %s to a second worker", i, e.key)
			case exact && !k.wanted:
				return fmt.Errorf("I7: event %d starts %s, for which no add is left", i, e.key)
			case k.started > k.asked:
				return fmt.Errorf("I9: event %d starts %s, which nobody asked for", i, e.key)
			}
			k.active, k.wanted = true, false
		case ended:
			k.active = false
		}
	}
	for key, k := range keys {
		if k.wanted && !slices.Contains(undone, key) {
			return fmt.Errorf("I8: %s was added and never run", key)
		}
	}
	return nil
}
