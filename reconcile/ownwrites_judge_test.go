package reconcile_test

import "fmt"

// version is an object at a time.
type version struct {
	uid    string
	number uint64
}

func (v version) String() string { return fmt.Sprintf("%s at version %d", v.uid, v.number) }

// look compares the caches with what the server had when the last call ended. It does not judge objects that a row
// wrote last for which nobody waits.
func (j *ownJudge) look(key string, k *ownKey) {
	older := map[string][]string{} // by the row that wrote it
	for _, c := range j.caches {
		note := func(name, format string, args ...any) {
			row := k.last[c.kind.name+"/"+name]
			if j.byRow[row].row.notWaitedFor {
				return
			}
			older[row] = append(older[row],
				fmt.Sprintf("%s %s, after %q: ", c.name, name, row)+fmt.Sprintf(format, args...))
		}
		cached := c.of(key)
		for name, o := range k.objects[c.kind] {
			is := version{string(o.GetUID()), number(o.GetResourceVersion())}
			has, held := cached[name]
			switch {
			case !c.admits(o):
				if held {
					note(name, "the cache has %s, and the server has taken it out of the selector in %s", has, is)
				}
			case !held:
				note(name, "the cache has nothing, the server %s", is)
			case has.uid != is.uid || has.number < is.number:
				note(name, "the cache has %s, the server %s", has, is)
			}
		}
		for name, has := range cached {
			if _, ok := k.objects[c.kind][name]; !ok {
				note(name, "the cache has %s, and it is gone", has)
			}
		}
	}
	if len(older) == 0 {
		return
	}
	j.stale.Add(1)
	j.mu.Lock()
	defer j.mu.Unlock()
	for row, lines := range older {
		c := j.byRow[row]
		if c.violations++; c.violations <= 3 {
			j.lines = append(j.lines, lines...)
		}
	}
}
