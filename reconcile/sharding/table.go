package sharding

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// A table says who owns which slice. It is the value of an annotation of one Lease, changed by conditional updates
// only, so its versions are one after the other. The functions below are all changes that there are: each returns a new
// table and leaves the old one as it was.
type table struct {
	// Life names the table from when it was made, or made anew, until somebody deletes or edits it.
	Life string `json:"life"`
	// Turn counts the changes of a life.
	Turn int64 `json:"turn"`
	// Open is false until nobody can be at work under an earlier life. Before that no slice has an owner.
	Open bool `json:"open,omitempty"`
	// Last is the highest number that a member has had. Numbers are not used twice in a life.
	Last int `json:"last"`
	// By is the fingerprint of Options.By, by which the slices of keys are. Only members with the same own slices, and
	// it changes when none of them is left.
	By      string   `json:"by"`
	Members []member `json:"members"` // in the order in which they joined
	// Owners has the number of each slice's owner: zero is nobody. Epochs has the turn in which it came to own it.
	Owners []int   `json:"owners"`
	Epochs []int64 `json:"epochs"`
	// Next has who asks for a slice and is prepared for it: the owner hands it over when its work has ended.
	Next map[int]int `json:"next,omitempty"`
	// Words has what earlier owners of slices have left for whoever owns them next: see words.go.
	Words []word `json:"words,omitempty"`
}

// A member is a replica as the table has it. Its Lease has the same name, which no other replica ever has.
type member struct {
	Number  int    `json:"number"`
	Name    string `json:"name"`
	Seat    string `json:"seat"`    // what its share is chosen by: the same again after a restart
	Seconds int    `json:"seconds"` // its LeaseDuration
	By      string `json:"by"`      // the fingerprint of its Options.By
	// Leaving says that it gets no slices any more: it works on those that it has until others, who prepare for them,
	// have asked for them. Ending says that it does so no longer: it gives each away as soon as its work has ended.
	Leaving bool `json:"leaving,omitempty"`
	Ending  bool `json:"ending,omitempty"`
}

func freshTable(life string, n int) *table {
	return &table{Life: life, Owners: make([]int, n), Epochs: make([]int64, n)}
}

// member returns the member of that name.
func (t *table) member(name string) (member, bool) {
	i := slices.IndexFunc(t.Members, func(m member) bool { return m.Name == name })
	if i < 0 {
		return member{}, false
	}
	return t.Members[i], true
}

// name returns the name of the member of that number, or "".
func (t *table) name(number int) string {
	for _, m := range t.Members {
		if m.Number == number {
			return m.Name
		}
	}
	return ""
}

// changed returns a copy that is one turn later, changed by the function.
func (t *table) changed(change func(*table)) *table {
	next := *t
	next.Turn++
	next.Members, next.Owners = slices.Clone(t.Members), slices.Clone(t.Owners)
	next.Epochs, next.Next = slices.Clone(t.Epochs), maps.Clone(t.Next)
	change(&next)
	return &next
}

// give makes a member the owner of a slice. It is called in changes only.
func (t *table) give(slice, to int) {
	t.Owners[slice], t.Epochs[slice] = to, t.Turn
	delete(t.Next, slice)
}

// join adds a member. Two with one seat do not share it: the later one is placed by its name.
func (t *table) join(m member) {
	if slices.ContainsFunc(t.Members, func(other member) bool { return other.Seat == m.Seat }) {
		m.Seat = m.Name
	}
	t.Last++
	m.Number = t.Last
	t.Members = append(t.Members, m)
	t.agree()
}

// agree takes over the fingerprint of the first member if nobody has the table's: then no slice has an owner.
func (t *table) agree() {
	if len(t.Members) > 0 && !slices.ContainsFunc(t.Members, func(m member) bool { return m.By == t.By }) {
		t.By = t.Members[0].By
	}
}

// working returns the members that may come to own slices.
func (t *table) working() (all []member) {
	for _, m := range t.Members {
		if m.By == t.By && !m.Leaving {
			all = append(all, m)
		}
	}
	return all
}

// remove takes a member out, whose work has ended: its slices are free.
func (t *table) remove(name string) {
	m, ok := t.member(name)
	if !ok {
		return
	}
	t.Members = slices.DeleteFunc(t.Members, func(other member) bool { return other.Name == name })
	maps.DeleteFunc(t.Next, func(_, to int) bool { return to == m.Number })
	for slice, owner := range t.Owners {
		if owner == m.Number {
			t.give(slice, t.Next[slice])
		}
	}
	t.agree()
}

// assign gives the free slices to those who should have them.
func (t *table) assign() {
	if !t.Open {
		return
	}
	targets := t.targets()
	for slice, owner := range t.Owners {
		if owner == 0 && targets[slice] != 0 {
			t.give(slice, targets[slice])
		}
	}
}

// free reports whether there are slices without an owner, and somebody who may own them.
func (t *table) free() bool { return slices.Contains(t.Owners, 0) && len(t.working()) > 0 }

// claim asks the owners of slices for them.
func (t *table) claim(slices []int, by int) {
	if t.Next == nil {
		t.Next = map[int]int{}
	}
	for _, slice := range slices {
		t.Next[slice] = by
	}
}

// handOver gives the slices, whose work has ended, to those who have asked for them: they are free if nobody has.
func (t *table) handOver(slices []int) {
	for _, slice := range slices {
		t.give(slice, t.Next[slice])
	}
}

// retire says that a member leaves, or ends. It gets no slices any more, nor those that it has asked for.
func (t *table) retire(number int, ending bool) {
	for i := range t.Members {
		if m := &t.Members[i]; m.Number == number {
			m.Leaving, m.Ending = true, m.Ending || ending
		}
	}
	maps.DeleteFunc(t.Next, func(_, to int) bool { return to == number })
}

// encode returns the text of a table, with its sum in front: a table that was edited by hand is not believed.
func (t *table) encode() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // a table has nothing that could fail
	}
	return fmt.Sprintf("%016x %s", sum(text), text)
}

func sum(text []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}

var errEdited = errors.New("the table is not as a replica has written it")

func decodeTable(text string) (*table, error) {
	front, body, _ := strings.Cut(text, " ")
	if front != fmt.Sprintf("%016x", sum([]byte(body))) {
		return nil, errEdited
	}
	t := &table{}
	if err := json.Unmarshal([]byte(body), t); err != nil {
		return nil, fmt.Errorf("%w: %w", errEdited, err)
	}
	if len(t.Owners) == 0 || len(t.Owners) != len(t.Epochs) {
		return nil, errEdited
	}
	return t, nil
}
