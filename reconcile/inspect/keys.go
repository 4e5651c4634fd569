package inspect

import (
	"cmp"
	"container/heap"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// keyList is a page of the keys of a controller. It is also what JSON has.
type keyList struct {
	moment     `json:"-"`
	Controller string              `json:"controller"`
	Total      int                 `json:"total"`   // keys of the controller
	Matches    int                 `json:"matches"` // of them, those that fit the search and the state
	Page       int                 `json:"page"`    // the first is 1
	Pages      int                 `json:"pages"`
	Keys       []status.KeySummary `json:"keys"`

	query keyQuery
	// States counts the keys that fit the search, by state, the most urgent first.
	States []stateCount `json:"states"`
}

// stateCount is how many keys are in a state.
type stateCount struct {
	State status.KeyState `json:"state"`
	Count int             `json:"count"`
}

// keysPerPage is how many keys a page has.
const keysPerPage = 50

// keyQuery is what the address of a list asks for.
type keyQuery struct {
	Controller, Search, Sort string
	State                    status.KeyState
	Page                     int
}

func keyQueryOf(query url.Values) keyQuery {
	page, err := strconv.Atoi(query.Get("p"))
	if err != nil || page < 1 {
		page = 1
	}
	q := keyQuery{Controller: query.Get("controller"), Search: query.Get("search"), Sort: query.Get("sort"),
		State: status.KeyState(query.Get("state")), Page: page}
	if _, ok := orders[q.Sort]; !ok {
		q.Sort = "state"
	}
	return q
}

// URL is the address of the list with some values changed, given as name, value, name, value.
func (q keyQuery) URL(changes ...string) string {
	v := url.Values{"controller": {q.Controller}}
	for name, value := range map[string]string{"search": q.Search, "sort": q.Sort, "state": string(q.State)} {
		if value != "" && !(name == "sort" && value == "state") {
			v.Set(name, value)
		}
	}
	for i := 0; i+1 < len(changes); i += 2 {
		v.Del(changes[i])
		if changes[i+1] != "" {
			v.Set(changes[i], changes[i+1])
		}
	}
	return "keys?" + v.Encode()
}

// urgency orders the states: what needs a look first.
var urgency = []status.KeyState{status.KeyStuck, status.KeyFailed, status.KeyInvalid,
	status.KeyBackingOff, status.KeyResting, status.KeyParked, status.KeyPaused, status.KeyRunning,
	status.KeyReady, status.KeySyncing, status.KeyStandby, status.KeyNotStarted, status.KeyScheduled,
	status.KeySettled, status.KeyUnknown}

var ranks = func() map[status.KeyState]int {
	m := make(map[status.KeyState]int)
	for i, s := range urgency {
		m[s] = i
	}
	return m
}()

// urgencyOf returns the place of a state in the order. A bundle may have states that are not known here.
func urgencyOf(s status.KeyState) int {
	if rank, ok := ranks[s]; ok {
		return rank
	}
	return len(urgency)
}

// orders compare keys for each sort. Those that are equal are sorted by name.
var orders = map[string]func(a, b *status.KeySummary) int{
	"name": func(a, b *status.KeySummary) int { return 0 },
	"state": func(a, b *status.KeySummary) int {
		return cmp.Or(cmp.Compare(urgencyOf(a.State), urgencyOf(b.State)), earlierFirst(a.Since, b.Since))
	},
	"age":      func(a, b *status.KeySummary) int { return earlierFirst(a.Since, b.Since) },
	"next":     func(a, b *status.KeySummary) int { return earlierFirst(a.Next, b.Next) },
	"failures": func(a, b *status.KeySummary) int { return cmp.Compare(b.Failures, a.Failures) },
	"runs":     func(a, b *status.KeySummary) int { return cmp.Compare(b.Runs, a.Runs) },
	"last":     func(a, b *status.KeySummary) int { return b.LastRun.Compare(a.LastRun) },
}

// earlierFirst compares times; one that is zero comes last.
func earlierFirst(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// compare orders two keys.
func (q keyQuery) compare(a, b *status.KeySummary) int {
	return cmp.Or(orders[q.Sort](a, b), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// matches reports whether a key has the searched text in its namespace/name, whatever the case.
func (q keyQuery) matches(k *status.KeySummary, search string) bool {
	if search == "" {
		return true
	}
	name := k.Name
	if k.Namespace != "" {
		name = k.Namespace + "/" + k.Name
	}
	return strings.Contains(strings.ToLower(name), search)
}

func keysView(ctx context.Context, from source, query url.Values) view {
	q := keyQueryOf(query)
	all, ok := from.keys(ctx, q.Controller)
	if !ok {
		return view{problem: "There is no such controller."}
	}
	l := listKeys(all, q)
	l.Now = from.now()
	return view{title: q.Controller, controller: q.Controller, template: "keys", body: l, data: l, filter: q}
}

// listKeys returns the page that is asked for.
func listKeys(all []status.KeySummary, q keyQuery) keyList {
	l := keyList{Controller: q.Controller, Total: len(all), query: q}
	search, states := strings.ToLower(q.Search), make(map[status.KeyState]int)
	fitting := all[:0]
	for i := range all {
		if k := &all[i]; q.matches(k, search) {
			states[k.State]++
			if q.State == "" || q.State == k.State {
				fitting = append(fitting, *k)
			}
		}
	}
	for s, n := range states {
		l.States = append(l.States, stateCount{s, n})
	}
	slices.SortFunc(l.States, func(a, b stateCount) int {
		return cmp.Or(cmp.Compare(urgencyOf(a.State), urgencyOf(b.State)), cmp.Compare(a.State, b.State))
	})
	l.Matches = len(fitting)
	l.Pages = max((len(fitting)+keysPerPage-1)/keysPerPage, 1)
	l.Page = min(q.Page, l.Pages)
	first := (l.Page - 1) * keysPerPage
	l.Keys = firstKeys(fitting, min(first+keysPerPage, len(fitting)), q)[first:]
	return l
}

// firstKeys returns the first n keys in order. Where n is small it does not sort the others.
func firstKeys(all []status.KeySummary, n int, q keyQuery) []status.KeySummary {
	if n > 1000 {
		slices.SortFunc(all, func(a, b status.KeySummary) int { return q.compare(&a, &b) })
		return all[:n]
	}
	first := lastFirst{q: q}
	for i := range all {
		switch {
		case len(first.keys) < n:
			heap.Push(&first, &all[i])
		case n > 0 && q.compare(&all[i], first.keys[0]) < 0:
			first.keys[0] = &all[i]
			heap.Fix(&first, 0)
		}
	}
	slices.SortFunc(first.keys, q.compare)
	sorted := make([]status.KeySummary, len(first.keys))
	for i, k := range first.keys {
		sorted[i] = *k
	}
	return sorted
}

// lastFirst is a heap whose root is the last key in order.
type lastFirst struct {
	q    keyQuery
	keys []*status.KeySummary
}

func (h *lastFirst) Len() int           { return len(h.keys) }
func (h *lastFirst) Less(i, j int) bool { return h.q.compare(h.keys[i], h.keys[j]) > 0 }
func (h *lastFirst) Swap(i, j int)      { h.keys[i], h.keys[j] = h.keys[j], h.keys[i] }
func (h *lastFirst) Push(k any)         { h.keys = append(h.keys, k.(*status.KeySummary)) }
func (h *lastFirst) Pop() any {
	n := len(h.keys) - 1
	k := h.keys[n]
	h.keys = h.keys[:n]
	return k
}

// Query is for the template.
func (l keyList) Query() keyQuery { return l.query }

// First and Last are the numbers of the keys that are shown.
func (l keyList) First() int { return min((l.Page-1)*keysPerPage+1, l.Matches) }
func (l keyList) Last() int  { return l.First() + max(len(l.Keys)-1, 0) }

// Previous and Next are the addresses of the neighbouring pages, or empty.
func (l keyList) Previous() string { return l.pageURL(l.Page - 1) }
func (l keyList) Next() string     { return l.pageURL(l.Page + 1) }

func (l keyList) pageURL(page int) string {
	if page < 1 || page > l.Pages {
		return ""
	}
	return l.query.URL("p", strconv.Itoa(page))
}

// Columns are the heads of the table: a name, and the sort that a click on it asks for.
func (l keyList) Columns() []column {
	return []column{{"Key", "name", "Key"}, {"State", "state", "State"}, {"For", "age", "For"},
		{"Next run", "next", "Next run"}, {"Failures", "failures", "Failures in a row"},
		{"Runs", "runs", "Runs that are remembered"}, {"Last run", "last", "Last run"}}
}

type column struct{ Name, Sort, Title string }
