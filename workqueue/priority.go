package workqueue

import "slices"

// Priority orders the ready keys: the queue hands out those of a higher one first. The default is 0.
type Priority int8

// line holds the ready keys. As long as all of them have priority 0 and no group it is one list, first in, first out.
// Otherwise it has a class for each priority and in it a flow for each group. pop serves the highest class, and its
// flows in turn, one key each: deficit round robin in which every key costs one. But a class that was passed over
// maxOvertaken times goes first; of several, the one passed over most often. So, while P classes have keys,
//
//   - a class is passed over at most maxOvertaken+P-2 times before one of its keys is handed out, and
//   - a flow is passed over at most once by each other flow of its class before one of its own keys is handed out.
//
// A class counts keys handed out, not time, so these bounds do not depend on how fast the workers are.
type line[K comparable] struct {
	n            int
	plain        list[K]     // empty if there are classes
	classes      []*class[K] // those that have keys, the highest priority first
	maxOvertaken int

	spareClass *class[K] // one for reuse, as most priorities come and go with a single key
	spareFlow  *flow[K]
}

// class is the keys of one priority.
type class[K comparable] struct {
	priority  Priority
	n         int
	overtaken int                 // keys of other classes handed out since the last one of this
	next      *flow[K]            // the flow to serve next, in a ring of those that have keys
	flows     map[*group]*flow[K] // the same flows
	peak      int                 // the most that flows has held; see roomy
}

// flow is the keys of one group in one class.
type flow[K comparable] struct {
	group      *group
	keys       list[K]
	next, prev *flow[K]
}

func (l *line[K]) push(t *turn[K]) {
	l.n++
	if len(l.classes) == 0 && t.priority == 0 && t.group == nil {
		l.plain.push(t)
		return
	}
	l.split()
	c := l.class(t.priority)
	c.n++
	c.flow(l, t.group).keys.push(t)
}

// pop removes the turn that is next, and counts it as handed out.
func (l *line[K]) pop() *turn[K] {
	l.n--
	if len(l.classes) == 0 {
		t := l.plain.head
		l.plain.remove(t)
		return t
	}
	best := l.best()
	for _, c := range l.classes {
		c.overtaken++
	}
	best.overtaken = 0
	f := best.next
	best.next = f.next
	t := f.keys.head
	l.drop(best, f, t)
	return t
}

// best is the class to serve next.
func (l *line[K]) best() *class[K] {
	best := l.classes[0]
	for _, c := range l.classes[1:] {
		if c.overtaken >= l.maxOvertaken && c.overtaken > best.overtaken {
			best = c
		}
	}
	return best
}

// split puts the plain keys into a class.
func (l *line[K]) split() {
	if l.plain.n > 0 {
		c := l.class(0)
		f := c.flow(l, nil)
		f.keys, l.plain = l.plain, list[K]{}
		c.n = f.keys.n
	}
}

func (l *line[K]) remove(t *turn[K]) {
	l.n--
	if len(l.classes) == 0 {
		l.plain.remove(t)
		return
	}
	c := l.class(t.priority)
	l.drop(c, c.flows[t.group], t)
}

// drop removes t from f, and the flow and the class with it if it was their last key.
func (l *line[K]) drop(c *class[K], f *flow[K], t *turn[K]) {
	f.keys.remove(t)
	c.n--
	if f.keys.n > 0 {
		return
	}
	delete(c.flows, f.group)
	c.flows, c.peak = shrunk(c.flows, c.peak)
	f.prev.next, f.next.prev = f.next, f.prev
	if c.next == f {
		c.next = f.next
	}
	*f = flow[K]{}
	l.spareFlow = f
	if c.n > 0 {
		return
	}
	i, _ := l.search(c.priority)
	l.classes = slices.Delete(l.classes, i, i+1)
	c.next = nil
	l.spareClass = c
}

// class returns the class of priority p, a new one if there is none.
func (l *line[K]) class(p Priority) *class[K] {
	i, found := l.search(p)
	if !found {
		c := l.spareClass
		l.spareClass = nil
		if c == nil {
			c = &class[K]{flows: map[*group]*flow[K]{}}
		}
		c.priority, c.overtaken = p, 0
		l.classes = slices.Insert(l.classes, i, c)
	}
	return l.classes[i]
}

func (l *line[K]) search(p Priority) (int, bool) {
	return slices.BinarySearchFunc(l.classes, p, func(c *class[K], p Priority) int { return int(p) - int(c.priority) })
}

// flow returns the flow of group g; a new one is served last.
func (c *class[K]) flow(l *line[K], g *group) *flow[K] {
	f := c.flows[g]
	if f == nil {
		if f = l.spareFlow; f == nil {
			f = new(flow[K])
		}
		l.spareFlow, f.group = nil, g
		if c.next == nil {
			f.next, f.prev, c.next = f, f, f
		} else {
			f.next, f.prev = c.next, c.next.prev
			f.prev.next, f.next.prev = f, f
		}
		c.flows[g] = f
		c.peak = max(c.peak, len(c.flows))
	}
	return f
}
