package informer

// Filter wraps a handler that wants to be told of some objects only. An object becomes wanted when keep says so of it:
// for h it is Added then, Updated as long as it stays wanted, and Deleted when it is no longer wanted or no longer
// there. So h sees the rounds that [Event] promises, of a smaller world.
//
// keep must depend on the object alone and must not change it. Use one Filter for one AddHandler: it remembers the keys
// that h knows of. Filter panics if keep or h is nil.
func Filter[T any](keep func(T) bool, h Handler[T]) Handler[T] {
	switch {
	case keep == nil:
		panic("informer: Filter needs a function that says which objects to keep; it is nil")
	case h == nil:
		panic("informer: Filter needs a handler; it is nil")
	}
	// The last state of a deleted object does not tell whether an earlier one was wanted, so that has to be remembered.
	// A handler is never called twice at once, hence no lock. A panic of h leaves known as it was, because the event
	// will come again.
	known := make(map[Key]struct{})
	return func(e Event[T]) {
		_, knew := known[e.Key]
		wants := e.Type != Deleted && keep(e.New)
		var none T
		switch {
		case !knew && !wants:
			return
		case !knew:
			e.Type, e.Old = Added, none
		case !wants && e.Type == Updated:
			e.Type, e.New = Deleted, none
		}
		h(e)
		if wants {
			known[e.Key] = struct{}{}
		} else {
			delete(known, e.Key)
		}
	}
}
