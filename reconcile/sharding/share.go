package sharding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// ByNamespace puts all keys of a namespace into one slice, and a key without a namespace into that of its name.
func ByNamespace(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace
}

// ByKey spreads the keys of a namespace over all slices.
func ByKey(key types.NamespacedName) string { return key.String() }

// withKeysOf returns a function that cuts some namespaces by key, and all others by another function. It also returns
// the namespaces in order, each once.
func withKeysOf(by func(types.NamespacedName) string, namespaces []string) (func(types.NamespacedName) string,
	[]string) {
	if len(namespaces) == 0 {
		return by, nil
	}
	in := slices.Compact(slices.Sorted(slices.Values(namespaces)))
	return func(key types.NamespacedName) string {
		if _, cut := slices.BinarySearch(in, key.Namespace); cut {
			return ByKey(key)
		}
		return by(key)
	}, in
}

// fingerprint tells functions of Options.By apart, by what they make of a few keys, and has the namespaces of ByKeyIn,
// which these keys do not show.
func fingerprint(by func(types.NamespacedName) string, byKeyIn []string) string {
	var all strings.Builder
	for _, key := range []types.NamespacedName{{Namespace: "default", Name: "a"}, {Namespace: "default", Name: "web-0"},
		{Namespace: "kube-system", Name: "a"}, {Namespace: "kube-system", Name: "web-0-7d4b9c"}, {Name: "a"},
		{Name: "node-1.example.com"}, {Namespace: "team-a", Name: "db.example.com"}, {Namespace: "team-b", Name: "42"},
	} {
		_ = lifecycle.Try(func() { fmt.Fprintf(&all, "%q ", by(key)) }) // of some other form than all keys of the user
	}
	for _, namespace := range byKeyIn {
		fmt.Fprintf(&all, "%s/ ", namespace)
	}
	return fmt.Sprintf("%08x", uint32(mix(sum([]byte(all.String())))))
}

// sliceOf returns the slice of a text, of n.
func sliceOf(text string, n int) int { return int(hashOf(text) % uint64(n)) }

func hashOf(text string) uint64 { return mix(sum([]byte(text))) }

// score is how much a slice belongs to a seat: each slice has an order of all seats, and a seat that comes or goes does
// not change the order of the others (rendezvous hashing).
func score(seat string, slice int) uint64 { return mix(sum([]byte(seat)) ^ mix(uint64(slice)+1)) }

// mix is the end of MurmurHash3: FNV alone leaves the high bits of short texts alike.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// targets returns the number of the member that should own each slice: zero if there is none. Each member has its even
// share, to one slice. Only what is above a member's share moves, and goes to those below theirs: of these to the ones
// that the slices belong to most. So a join of one of N moves a share, 1/N, and a leave what was the member's.
func (t *table) targets() []int {
	targets, members := make([]int, len(t.Owners)), t.working()
	if len(members) == 0 {
		return targets
	}
	has := map[int]int{}
	for _, m := range members {
		has[m.Number] = 0
	}
	for slice, owner := range t.Owners {
		if next := t.Next[slice]; next != 0 {
			owner = next
		}
		if _, ok := has[owner]; ok {
			targets[slice] = owner
			has[owner]++
		}
	}
	missing, spare := shares(members, has, len(targets))

	type pair struct {
		slice, to int
		score     uint64
	}
	var pairs []pair
	for slice, owner := range targets {
		if owner != 0 && spare[owner] == 0 {
			continue
		}
		for _, m := range members {
			if missing[m.Number] > 0 {
				pairs = append(pairs, pair{slice, m.Number, score(m.Seat, slice)})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.slice, b.slice), cmp.Compare(a.to, b.to))
	})
	moved := map[int]bool{}
	for _, p := range pairs {
		from := targets[p.slice]
		if moved[p.slice] || missing[p.to] == 0 || from != 0 && spare[from] == 0 {
			continue
		}
		moved[p.slice], targets[p.slice] = true, p.to
		missing[p.to]--
		if from != 0 {
			spare[from]--
		}
	}
	return targets
}

// shares returns how many slices each member has too few, or too many. Some members have a share that is one larger,
// since the slices cannot be divided: first those that have so many and keep them, then the ones that joined first. So
// what a member should have does not change while others ask for theirs.
func shares(members []member, has map[int]int, n int) (missing, spare map[int]int) {
	order, least := slices.Clone(members), n/len(members)
	slices.SortStableFunc(order, func(a, b member) int { return max(has[b.Number], least) - max(has[a.Number], least) })
	missing, spare = map[int]int{}, map[int]int{}
	for i, m := range order {
		share := least
		if i < n%len(order) {
			share++
		}
		missing[m.Number], spare[m.Number] = max(share-has[m.Number], 0), max(has[m.Number]-share, 0)
	}
	return missing, spare
}
