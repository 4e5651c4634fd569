package informer

import "cmp"

// Relist asks for a list of a namespace that begins after this call, and returns its number: when [Health].Listed has
// reached it the store holds everything that the server had there when Relist was called, and handlers that are inline
// have been told. It does not wait. A list that is under way is completed first; those who ask before the next one
// begins share it. The wait after a failure ends for it, unless the server asked for that wait. Out of scope nothing is
// listed.
//
// doubt, if not nil, says why the cache is not to be believed: it is Stale for that reason until the list is complete,
// unless it has never been complete, or is worse than Stale. Of several doubts the last one counts.
func (inf *SharedIndexInformer[T]) Relist(namespace string, doubt error) (list int) {
	list = int(inf.health.lists.Load()) + 1
	for _, l := range inf.followed.Load().in(namespace) {
		l.reflector.want(doubt)
	}
	return list
}

// want leaves the token of somebody who wants a list.
func (r *reflector[T]) want(doubt error) {
	for {
		select {
		case r.asked <- doubt:
			return
		case before := <-r.asked: // somebody has asked already; it is one list for both, and one of the doubts
			doubt = cmp.Or(doubt, before)
		}
	}
}

// askedTo ends the watch for a list that somebody asked for.
func (r *reflector[T]) askedTo(doubt error) {
	r.doubted(doubt)
	r.resourceVersion = ""
}

// doubted makes known what somebody has asked for a list for, unless nobody believes the cache anyway.
func (r *reflector[T]) doubted(doubt error) {
	if state := r.health.get().State; doubt != nil && r.synced && (state == Live || state == Stale) {
		r.health.enter(Stale, doubt)
	}
}
