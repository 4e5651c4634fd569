package reconciletest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// drawnName is how names of a resource look of which a program draws parts itself, such as the first digits of a UUID.
// Check learns it from two runs in which nothing goes wrong: there the same object has two names.
type drawnName struct {
	resource string
	text     *regexp.Regexp // of a whole name, with a group for each part that is drawn
}

// shortestDrawn is how long a part is at least that is drawn. Shorter ones are drawn too seldom, and chosen too often.
const shortestDrawn = 4

var (
	partText  = regexp.MustCompile(`[^-.]+|[-.]`)
	drawnPart = regexp.MustCompile(`^[a-z0-9]+$`)
)

// drawnBetween returns how the names look of objects that only one of two ends has, and that differ in nothing but
// parts of the same length. A number is none: it counts something, or is a time.
func drawnBetween(a, b snapshot) (all []drawnName) {
	inA, inB := onlyIn(a, b), onlyIn(b, a)
	for of, names := range inA {
		if len(names) != len(inB[of]) {
			continue
		}
		others := slices.Clone(inB[of])
		for _, name := range names {
			var text *regexp.Regexp
			i := slices.IndexFunc(others, func(other string) bool {
				text = drawnAlike(name, other)
				return text != nil
			})
			if i < 0 {
				continue
			}
			resource, _, _ := strings.Cut(of, " ")
			all = append(all, drawnName{resource, text})
			others = slices.Delete(others, i, i+1)
		}
	}
	return all
}

// onlyIn returns the names of the objects that only the first of two ends has, by resource and namespace.
func onlyIn(a, b snapshot) map[string][]string {
	names := map[string][]string{}
	for key := range a {
		of, name, ok := strings.Cut(countText.ReplaceAllString(key, ""), "/")
		if ok && b[key] == nil {
			names[of] = append(names[of], name)
		}
	}
	for _, all := range names {
		slices.Sort(all)
	}
	return names
}

// drawnAlike returns what two names look like that differ in parts that are drawn; nil: they differ otherwise, or not
// at all.
func drawnAlike(a, b string) *regexp.Regexp {
	of, other := partText.FindAllString(a, -1), partText.FindAllString(b, -1)
	if a == b || len(of) != len(other) {
		return nil
	}
	text := ""
	for i, part := range of {
		switch {
		case part == other[i]:
			text += numberText.ReplaceAllLiteralString(regexp.QuoteMeta(part), `\d+`)
		case len(part) != len(other[i]), len(part) < shortestDrawn, isNumber(part), isNumber(other[i]),
			!drawnPart.MatchString(part), !drawnPart.MatchString(other[i]):
			return nil
		default:
			text += fmt.Sprintf("([a-z0-9]{%d})", len(part))
		}
	}
	return regexp.MustCompile("^" + text + "$")
}

// withoutDrawn replaces the parts of a name that a program has drawn.
func withoutDrawn(all []drawnName, resource, name string) string {
	for _, d := range all {
		m := d.text.FindStringSubmatchIndex(name)
		if d.resource != resource || m == nil {
			continue
		}
		for i := len(m) - 2; i > 0; i -= 2 {
			name = name[:m[i]] + "*" + name[m[i+1]:]
		}
		break
	}
	return name
}

func isNumber(text string) bool { return strings.Trim(text, "0123456789") == "" }
