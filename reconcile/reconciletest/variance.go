package reconciletest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// variance is what may differ between two ends although nothing is wrong. Check learns it from runs in which nothing
// goes wrong: what they differ in, no disturbance can be blamed for.
//
//   - By the time and the versions: the run without disturbances is done once more, later, on a server whose versions
//     are higher. What differs is not compared, whatever it is: objects that are named by the time, the number of them,
//     a version that a status holds.
//   - By what the program has seen: it starts when all steps are done, or their events never come. Fields of a status,
//     annotations and labels for which both of these have the same value, and the run without disturbances has another
//     one, are a history, such as that of the last operation. What it sees may be luck: of a program that is not
//     deterministic one of three such runs is enough. The same holds for those that differ after the same step done
//     twice.
//   - What is left of an earlier step: objects that a program which sees no step does not make, that were there before
//     the last step, and that do not come again when a third party deletes them in the end. Nothing asks for them any
//     more, and whether they may stay cannot be known: "is reversible" looks at that.
//   - Which objects are kept of what has been, as the last ten revisions are: in place of one that is left of an
//     earlier step there may be another one of its sort, which an earlier step has left as well.
//   - What was given an owner: an object of a user's that is there when the program sees no step, and that in the run
//     without disturbances had an owner and went with it. Where the program was not done in time, it stays.
//   - By names that the program draws itself; see drawnName.
//   - By the clock: what the program writes in the 10 minutes after all has settled, such as a job for each minute,
//     says nothing about a restart. It has to make or delete something then: updates without end are a hot loop, if a
//     slow one.
type variance struct {
	noise   map[string]bool // kinds of objects and of fields; see difference.kind
	history map[string]bool // kinds of fields
	empty   map[string]bool // kinds of fields
	left    map[string]bool // objects
	past    map[string]bool // objects that were there after an earlier step, and are gone in the end
	given   map[string]bool // objects
	clocked map[string]bool // kinds of requests
	stays   map[string]int  // by functions; see eachStart
	drawn   []drawnName
}

func newVariance() *variance {
	return &variance{noise: make(map[string]bool), history: make(map[string]bool), empty: make(map[string]bool),
		left: make(map[string]bool), past: make(map[string]bool), given: make(map[string]bool),
		clocked: make(map[string]bool), stays: make(map[string]int)}
}

var (
	countText = regexp.MustCompile(`\(\d+\)$`) // of objects with one generated name
	hashText  = regexp.MustCompile(`<hash of [0-9a-f]+>`)
)

// alikeObjects names the objects that differ from one only by numbers in their names, or by the content that a hash in
// their names is of.
func alikeObjects(object string) string {
	return withoutNumbers(hashText.ReplaceAllString(countText.ReplaceAllString(object, ""), "<hash>"))
}

// matter returns the differences that something has to be blamed for.
func (v *variance) matter(all []difference) []difference {
	return slices.DeleteFunc(all, func(d difference) bool {
		return v.noise[alikeObjects(d.object)] || v.left[d.object] ||
			d.path != "" && (v.noise[d.kind()] || v.history[d.kind()] || v.empty[d.kind()] && d.onlyEmpty())
	})
}

// notSeen are the disturbances with which a program may not be done with a step before the next one.
var notSeen = []string{coldStart, unseen, unseenAll, down, downTwice, early, outage}

// between returns the differences of an end from a that something has to be blamed for.
func (v *variance) between(end, a snapshot, by schedule) []difference {
	blind := slices.ContainsFunc(notSeen, by.has)
	all := end.differences(a)
	kept := v.kept(all, end, a)
	return slices.DeleteFunc(v.matter(all), func(d difference) bool {
		return kept[d.object] || blind && d.onlyInB() && v.given[d.object] && !end.owned(d.object)
	})
}

// kept returns the objects that are kept in place of ones that are left, one for one.
func (v *variance) kept(all []difference, end, a snapshot) map[string]bool {
	missing, kept := map[string]int{}, map[string]bool{}
	for _, d := range all {
		if d.path == "" && d.b == "" && v.left[d.object] {
			missing[a.sort(d.object)]++
		}
	}
	for _, d := range all {
		if sort := end.sort(d.object); d.onlyInB() && v.past[d.object] && missing[sort] > 0 {
			missing[sort]--
			kept[d.object] = true
		}
	}
	return kept
}

// sort returns what the objects have in common of which a program keeps the last ones: the resource, the namespace, how
// their names begin, and their owners. How names end tells them apart.
func (s snapshot) sort(object string) string {
	name := alikeObjects(object)
	sort := name[:strings.LastIndexAny(name, "-./")+1]
	for _, line := range s[object] {
		if strings.HasPrefix(line, ".metadata.ownerReferences") {
			sort += "\n" + line
		}
	}
	return sort
}

// learnNoise takes the differences of two runs in which nothing goes wrong.
func (v *variance) learnNoise(all []difference) {
	for _, d := range all {
		if d.path == "" {
			v.noise[alikeObjects(d.object)] = true
		} else {
			v.noise[d.kind()] = true
		}
	}
}

// learnDrawn takes the names that differ between runs in which nothing goes wrong, once, and reports whether there are
// any.
func (v *variance) learnDrawn(later, ideal, again *ending) bool {
	if len(v.drawn) > 0 {
		return false
	}
	for _, o := range []*ending{later, again} {
		if o.counts() {
			v.drawn = append(v.drawn, drawnBetween(ideal.last, o.last)...)
		}
	}
	return len(v.drawn) > 0
}

// learnClocked takes the kinds of writes of a run that has nothing to do.
func (v *variance) learnClocked(kinds map[string]bool) {
	for kind := range kinds {
		switch verbOf(kind) {
		case "create", "delete", http.MethodPost, http.MethodDelete: // the latter two outside
			v.clocked = maps.Clone(kinds)
		}
	}
}

// learnHistory takes the differences of an end from a, and returns those that cannot be a history.
func (v *variance) learnHistory(all []difference) []difference {
	return slices.DeleteFunc(v.matter(all), func(d difference) bool {
		switch {
		case d.described():
			v.history[d.kind()] = true
		case d.onlyEmpty():
			v.empty[d.kind()] = true
		default:
			return false
		}
		return true
	})
}

// String has a line for each of the reasons that there are.
func (v *variance) String() string {
	text := ""
	for _, part := range []struct {
		why  string
		what []string
	}{
		{"not compared, since it differs by the time or the version of the server", named(v.noise)},
		{"not compared, since it depends on what the program has seen on the way", named(v.history)},
		{"compared only if it is not empty, since what is empty depends on when it was written anew", named(v.empty)},
		{"not compared, since nothing asks for it after the last step", named(v.left)},
		{"allowed to stay, since nobody has given it the owner that it goes with", named(v.given)},
		{"done by the clock, and so no sign that a restart has changed something", named(v.clocked)},
		{"left running by each start, as many each time, until the process ends", named(v.stays)},
	} {
		if len(part.what) > 0 {
			text += "\n  " + part.why + ": " + strings.Join(part.what, ", ")
		}
	}
	return text
}

func named[V any](what map[string]V) []string { return slices.Sorted(maps.Keys(what)) }

const (
	// A run that is done later begins by this time later, and in the end has nothing to do for at least idleFor.
	laterBy = 37*time.Minute + 41*time.Second
	idleFor = 10 * time.Minute
	// laterVersions is by how many versions the server is older then, two of them each.
	laterVersions = 37
)

// learning is the part of a check that learns what may differ.
type learning struct{ *check }

// noise takes what differs between the end of the run that is done later and that of the reference run.
func (c learning) noise(later *ending) {
	if later.counts() {
		c.varies.learnNoise(later.last.differences(c.ideal.last))
	}
}

// counts reports whether an end says what may differ: nothing is wrong with the run, or only what comes to light when
// the end is reached.
func (o *ending) counts() bool {
	return o.failure == nil || slices.Contains([]string{ruleNoLeaks, ruleIdempotent}, o.failure.rule)
}

// history runs the scenario with a program that sees no step, in two ways. What one that is not deterministic sees
// instead may be luck: it runs three times in each.
func (c learning) history() {
	if len(c.scenario.Steps) == 1 {
		return // it sees all that there is to see
	}
	times := 1
	if c.jitters {
		times = 3
	}
	var ends [2][]snapshot
	for i, what := range []string{coldStart, unseenAll} {
		s := c.schedule(disturbance{what: what})
		for range times {
			o := c.run(s, nil)
			if !o.counts() || c.scenario.spares(s.disturbances[0]) {
				return
			}
			ends[i] = append(ends[i], o.last)
		}
	}
	unseen := c.fromIdeal(ends[1])
	both := slices.DeleteFunc(c.fromIdeal(ends[0]), func(d difference) bool {
		return !slices.ContainsFunc(unseen, d.tells)
	})
	for _, d := range both {
		had := func(s snapshot) bool { return s.owned(d.object) }
		if d.onlyInB() && !slices.ContainsFunc(slices.Concat(ends[:]...), had) &&
			slices.ContainsFunc(c.ideal.afterStep, had) {
			c.varies.given[d.object] = true
		}
	}
	c.left(c.varies.learnHistory(both))
}

// fromIdeal returns in what some ends differ from that of the reference run: all of them, or, in a field that only
// describes what the program has done, one of them at least.
func (c learning) fromIdeal(ends []snapshot) (all []difference) {
	times := map[difference]int{}
	for _, end := range ends {
		for _, d := range end.differences(c.ideal.last) {
			resource, _, _ := strings.Cut(d.kind(), " ")
			resource, _, _ = strings.Cut(resource, ".") // without its group
			d.foreign = !c.ideal.made[resource]
			needed := len(ends)
			if d.described() {
				needed = 1
			}
			if times[d]++; times[d] == needed {
				all = append(all, d)
			}
		}
	}
	return all
}

// onlyInB reports whether it is about an object that only the second end has.
func (d difference) onlyInB() bool { return d.path == "" && d.a == "" }

// owned reports whether an object has owners.
func (s snapshot) owned(object string) bool {
	return slices.ContainsFunc(s[object], func(line string) bool {
		return strings.HasPrefix(line, ".metadata.ownerReferences")
	})
}

// tells reports whether another end shows the same: of a field that only describes what the program has done it may be
// another object, since which one it was may be luck, such as which of two volumes was free.
func (d difference) tells(other difference) bool {
	return d == other || d.described() && d.kind() == other.kind() && d.a == other.a && d.b == other.b
}

// left takes what is only in the end of the reference run, and in no end of a program that sees no step.
func (c learning) left(all []difference) {
	var left []string
	for _, d := range all {
		before := c.ideal.afterStep[len(c.scenario.Steps)-2] // with one step nothing differs
		if d.path == "" && d.b == "" && before[d.object] != nil && !countText.MatchString(d.object) {
			left = append(left, d.object)
		}
	}
	if len(left) == 0 {
		return
	}
	s := c.schedule()
	s.deleteLeft = left
	o := c.run(s, nil)
	if !o.counts() {
		return
	}
	for _, object := range left {
		if o.last[object] == nil {
			c.varies.left[object] = true
		}
	}
	for _, after := range c.ideal.afterStep {
		for object := range after {
			if c.ideal.last[object] == nil {
				c.varies.past[object] = true
			}
		}
	}
}

// reversed compares the ends of steps that are the same. What is no history is a finding.
func (c learning) reversed() {
	for i, step := range c.scenario.Steps {
		for j, earlier := range c.scenario.Steps[:i] {
			if step.documents == nil || !slices.Equal(step.documents, earlier.documents) {
				continue
			}
			left := c.varies.learnHistory(c.ideal.afterStep[i].differences(c.ideal.afterStep[j]))
			if len(left) == 0 || c.scenario.isOff(ruleReversible) {
				continue
			}
			o := *c.ideal
			o.failure = breachOf(ruleReversible, fmt.Sprintf("steps %d and %d are the same, and end differently: A is "+
				"what there is after step %[1]d, B after step %[2]d", j+1, i+1), left)
			c.found(c.schedule(), &o, o.failure.about())
		}
	}
}

// age makes a server older by some versions, two of them each.
func age(s *Server, by int) {
	ctx := context.Background()
	for range by {
		err := directRequest(ctx, s, http.MethodPost, "/api/v1/nodes", "application/json",
			[]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"passing"}}`))
		if err == nil {
			err = directRequest(ctx, s, http.MethodDelete, "/api/v1/nodes/passing", "", nil)
		}
		if err != nil {
			panic(err) // the server in memory refuses neither
		}
	}
}
