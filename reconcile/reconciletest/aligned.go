package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// unordered reports whether the order of a list says when its elements have come, and nothing else: those of a status,
// finalizers and owners. A program that adds to the end of such a list is right, whatever it has seen first.
func unordered(list string) bool {
	return strings.HasPrefix(list, ".status.") || list == ".metadata.finalizers" || list == ".metadata.ownerReferences"
}

// anyList is unordered, as a list in an element of one that is.
func anyList(string) bool { return true }

// elementText is a path through an element of a list whose elements are called by their numbers: the outermost one. Its
// groups are the list, the number, and the path in the element.
var elementText = regexp.MustCompile(`^((?:[^\[]|\[\D)*)\[(\d+)\](.*)$`)

// elements are those of lists: by the path of the list, and by their numbers there, their values by their paths.
type elements map[string]map[string]map[string]string

// aligned returns the values of B, by their paths. In the lists that are unordered an element has the number that it
// has in A, and those that A does not have take the numbers that are left, in their order.
func aligned(a, b map[string]string, isUnordered func(list string) bool) map[string]string {
	inA, _ := elementsIn(a, isUnordered)
	inB, values := elementsIn(b, isUnordered)
	for list, all := range inB {
		others := inA[list]
		for number, as := range numbersIn(others, all) {
			for path, value := range aligned(others[as], all[number], anyList) {
				values[fmt.Sprintf("%s[%s]%s", list, as, path)] = value
			}
		}
	}
	return values
}

// elementsIn returns the elements of the lists among some values that are unordered, and the other values.
func elementsIn(values map[string]string, isUnordered func(list string) bool) (elements, map[string]string) {
	all, rest := elements{}, map[string]string{}
	for path, value := range values {
		m := elementText.FindStringSubmatch(path)
		if m == nil || !isUnordered(m[1]) {
			rest[path] = value
			continue
		}
		list, number := m[1], m[2]
		if all[list] == nil {
			all[list] = map[string]map[string]string{}
		}
		if all[list][number] == nil {
			all[list][number] = map[string]string{}
		}
		all[list][number][m[3]] = value
	}
	return all, rest
}

// numbersIn returns the numbers that the elements of a list get to be those of another one.
func numbersIn(others, all map[string]map[string]string) map[string]string {
	as, taken := map[string]string{}, map[string]bool{}
	take := func(number, other string) { as[number], taken[other] = other, true }
	for _, number := range byNumber(all) {
		for _, other := range byNumber(others) {
			if !taken[other] && alikeValues(others[other], all[number]) {
				take(number, other)
				break
			}
		}
	}
	next := 0
	for _, number := range byNumber(all) {
		for as[number] == "" {
			if free := fmt.Sprint(next); !taken[free] {
				take(number, free)
			}
			next++
		}
	}
	return as
}

// alikeValues reports whether two elements are the same but for the order of lists in them.
func alikeValues(a, b map[string]string) bool {
	return len(a) == len(b) && (maps.Equal(a, b) || maps.Equal(a, aligned(a, b, anyList)))
}

// byNumber returns the numbers of elements, the lowest first.
func byNumber(all map[string]map[string]string) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}
