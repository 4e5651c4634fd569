package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// maxCauses is how many causes of one run are kept apart.
const maxCauses = 4

// Causes reports why the current call was triggered: what has named the key since the call before it. ctx must be the
// one that Reconcile was given. It returns the first four causes that differ in source or object, and how many changes
// there were besides. Several changes of one object are one [status.Cause]. It returns none if only the last run asked
// for this one, and none after the call has returned.
//
// Causes is for logs, to find out why a key is reconciled so often. The loop itself logs causes at verbosity 4, and
// with errors. Do not branch on them: changes are merged and may be missing, and after a restart all causes are new. A
// Reconcile looks at the state.
//
// The cost: a fraction of a microsecond and no allocation for a change that names a key; about 200 bytes for a waiting
// key.
func Causes(ctx context.Context) (causes []status.Cause, more int) {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return nil, 0
	}
	return r.causes()
}

// causes are those of one key. A waiting key nearly always has one.
type causes struct {
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
func (cs *causes) add(source string, object Key, resourceVersion string, now int64) {
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

func (cs *causes) at(i int) *cause {
	if i == 0 {
		return &cs.first
	}
	return &cs.rest[i-1]
}

// moveOut returns the causes, and leaves none.
func (cs *causes) moveOut() causes {
	taken := *cs
	*cs = causes{}
	return taken
}

// list returns them as Causes does.
func (cs *causes) list() (list []status.Cause) {
	for i := range cs.n {
		c := cs.at(i)
		list = append(list, status.Cause{Source: c.source, Namespace: c.object.Namespace, Name: c.object.Name,
			ResourceVersion: c.resourceVersion, Count: c.count, First: time.Unix(0, c.from), Last: time.Unix(0, c.to)})
	}
	return list
}

// String is what logs show.
func (cs *causes) String() string {
	if cs.n == 0 {
		return "[its delay has ended]"
	}
	s := fmt.Sprint(cs.list())
	if cs.more > 0 {
		s += fmt.Sprintf(" and %d more", cs.more)
	}
	return s
}
