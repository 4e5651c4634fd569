package keys

import (
	"fmt"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// maxCauses is how many causes of one run are kept apart.
const maxCauses = 4

// Causes are those of one key. A waiting key nearly always has one.
type Causes struct {
	n     int // the causes in first and rest
	more  int
	first cause
	rest  []cause
}

// cause is a status.Cause as it is kept for each key that waits: small.
type cause struct {
	source          string
	object          Key
	resourceVersion string
	count           int
	from, to        int64 // Unix time in nanoseconds
}

// add counts a change.
func (cs *Causes) add(source string, object Key, resourceVersion string, now int64) {
	for i := range cs.n {
		if c := cs.at(i); c.object == object && c.source == source {
			c.resourceVersion, c.to = resourceVersion, now
			c.count++
			return
		}
	}
	c := cause{source, object, resourceVersion, 1, now, now}
	switch cs.n {
	case maxCauses:
		cs.more++
		return
	case 0:
		cs.first = c
	default:
		cs.rest = append(cs.rest, c)
	}
	cs.n++
}

func (cs *Causes) at(i int) *cause {
	if i == 0 {
		return &cs.first
	}
	return &cs.rest[i-1]
}

// moveOut returns the causes, and leaves none.
func (cs *Causes) moveOut() Causes {
	taken := *cs
	*cs = Causes{}
	return taken
}

// list returns them as Causes does.
func (cs *Causes) list() (list []status.Cause) {
	for i := range cs.n {
		c := cs.at(i)
		list = append(list, status.Cause{Source: c.source, Namespace: c.object.Namespace, Name: c.object.Name,
			ResourceVersion: c.resourceVersion, Count: c.count, First: time.Unix(0, c.from), Last: time.Unix(0, c.to)})
	}
	return list
}

// String is what logs show.
func (cs *Causes) String() string {
	if cs.n == 0 {
		return "[its delay has ended]"
	}
	s := fmt.Sprint(cs.list())
	if cs.more > 0 {
		s += fmt.Sprintf(" and %d more", cs.more)
	}
	return s
}
