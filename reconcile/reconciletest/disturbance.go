package reconciletest

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// disturbance is one thing that goes wrong in a run: what, and where. It is at a gate, which is the n-th request of the
// program of one kind, or at a step.
//
//	crash after create pods #2
//	late pods in step 1
//	autoscaler: down in step 1
type disturbance struct {
	what string // one of atWrites, atReads or atSteps
	// of is what it hits: the requests of one kind at a gate ("create pods"), a resource at some steps, or empty.
	of string
	// n counts the gates of one kind, and the steps, from 1.
	n int
	// program is which of several it hits; empty: the only one, or all.
	program string
}

// What can go wrong at a request. The server does not see a request that it refuses.
const (
	crashBefore = "crash before"   // the program dies; the server does not see the request
	crashAfter  = "crash after"    // the program dies before it sees the answer
	loseAnswer  = "lose answer to" // the connection breaks after the server has done it
	refuse429   = "429 to"         // refused, with Retry-After: 1
	refuse500   = "500 to"         // refused
	timeout504  = "504 to"         // refused, as when the server's own time is up
	applied504  = "late 504 to"    // done all the same, and answered as when the server's own time is up
	touch       = "touch before"   // a third party annotates the object before the server sees the request
	// in the end the program starts anew, at a server that was left behind right after this
	backTo  = "back to"
	overlap = "second at" // a second incarnation starts, and the first dies 5 s later
	// the user does the next step right after it, when the program is in the middle of its work
	early = "next step at"
	// this request is refused, and all of its kind that come in the next 20 s
	outage = "500 for 20 s from"
	// of an API: it does not see the request, and the connection breaks when the program has waited for 60 s
	unanswered = "no answer to"
	// of an API: it has done what was asked for, and the program sees the answer 20 s later
	lateAnswer = "late answer to"
	// the request comes 5 s later, in which the other programs go on
	held = "held at"
)

// What can go wrong at a request for which the server calls a webhook: it meets all such calls of the next 20 s, but
// for those that a user's requests lead to.
const (
	hookDown  = "webhook down at"
	hookSlow  = "webhook slow at" // it answers when the server does not wait any more
	hookEnded = "webhook certificate ended at"
	hookWrong = "webhook wrong at" // its answer is no review
)

// What can go wrong at a step.
const (
	coldStart = "cold start" // all steps are done before the program starts, but for what a user waits for
	down      = "down in"    // the program dies before the step, and starts again after it
	downTwice = "down over"  // the same, over this step and the next
	// the watches break before the step; after the next one they begin anew, with lists
	unseen = "unseen"
	// the watches break before the first step; after the last one they begin anew, with lists
	unseenAll = "unseen steps"
	// the manifests of the step, in the reverse order of their kinds, each when the program is done with the one before
	reordered = "other order in"
	// the events of a resource come 20 s late from the step on, until it has settled
	late   = "late"
	frozen = "frozen" // the events of a resource do not come from the step on, for 60 s
	cut    = "cut in" // the watches end right after the step
	// the program starts anew after the step, at a server that was left behind before it
	timeTravel = "old cache after"
	// what the step applied is deleted, and made anew when everything has settled, a namespace with what users had
	namesake    = "namesake after"
	namesakeNow = "namesake at once after" // the same without a pause, while the program is down
	// a third party deletes an object that the program has made and no user has applied, after the step has settled
	stray = "delete"
	slow  = "slow" // each request takes 1.2 s
	// the world needs 60 s more to see what is written of a resource in the 2 minutes from the step on
	worldSlow = "world slow with"
	// what the world makes of a resource does not work for 60 s from the step on
	worldFails = "world fails"
)

const (
	pauseAsked = time.Second      // the pause that a refusal with 429 asks for
	outageFor  = 20 * time.Second // how long an outage takes
	overlapFor = 5 * time.Second  // how long two incarnations are at work
	heldFor    = 5 * time.Second  // how long a request waits for other programs
	// how long there is no answer of an API, and how late it is
	unansweredFor, answerLateBy = 60 * time.Second, 20 * time.Second
)

var (
	atWrites = []string{crashBefore, crashAfter, loseAnswer, refuse429, refuse500, timeout504, applied504, touch,
		overlap, early, backTo, outage}
	atReads = []string{refuse500, overlap}
	atHooks = []string{hookDown, hookSlow, hookEnded, hookWrong}
	atSteps = []string{coldStart, unseenAll, slow, reordered, down, downTwice, unseen, cut, timeTravel, backTo,
		namesake, namesakeNow}
	// ofRun are about all steps.
	ofRun = []string{coldStart, unseenAll, slow}
	// ofResources are at a step and hit a resource.
	ofResources = []string{late, frozen, stray, worldSlow, worldFails}
	// atOthers are at a write of one of several programs.
	atOthers = []string{held}
	// atAPIWrites and atAPIReads are at requests to an API of Scenario.Outside.
	atAPIWrites = []string{crashBefore, crashAfter, loseAnswer, unanswered, lateAnswer, refuse429, refuse500,
		timeout504, applied504, overlap, early, backTo, outage}
	atAPIReads = []string{refuse500, unanswered, lateAnswer, overlap}
	// ofAll are about a step, and ofObjects about a resource, whichever program has to do with it.
	ofAll     = []string{reordered, namesake, namesakeNow}
	ofObjects = []string{stray, worldSlow, worldFails}
)

func (d disturbance) String() string { return of(d.program, d.text()) }

// text is the disturbance without the program that it hits.
func (d disturbance) text() string {
	switch {
	case slices.Contains(ofRun, d.what):
		return d.what
	case slices.Contains(ofResources, d.what):
		return fmt.Sprintf("%s %s in step %d", d.what, d.of, d.n)
	case d.of == "":
		return fmt.Sprintf("%s step %d", d.what, d.n)
	}
	return fmt.Sprintf("%s %s #%d", d.what, d.of, d.n)
}

// schedule is what goes wrong in a run, and how much of the scenario it runs.
type schedule struct {
	seed         uint64
	steps        int // how many of the scenario's
	disturbances []disturbance
	// ordered: requests that wait at the same time keep their order, as Scenario.Explore needs it. Otherwise several
	// disturbances let it be drawn.
	ordered bool
	// These are not in its text; see variance. It begins at another time, at other versions of the server, and in the
	// end these objects are deleted.
	later      bool
	deleteLeft []string
}

const scheduleVersion = "v1"

// String returns the text that [Scenario.Replay] takes.
func (s schedule) String() string {
	var all []string
	for _, d := range s.disturbances {
		all = append(all, d.String())
	}
	order := ""
	if s.ordered && len(all) > 1 {
		order = " in order"
	}
	return fmt.Sprintf("%s seed=%d steps=%d%s: %s", scheduleVersion, s.seed, s.steps, order, strings.Join(all, "; "))
}

var (
	scheduleText = regexp.MustCompile(`^v1 seed=(\d+) steps=(\d+)( in order)?: ?(.*)$`)
	atGateText   = regexp.MustCompile(`^(.+) #(\d+)$`)
	atStepText   = regexp.MustCompile(`^(.+) step (\d+)$`)
)

// parseSchedule reads what [schedule.String] has written.
func parseSchedule(text string, steps int) (schedule, error) {
	m := scheduleText.FindStringSubmatch(text)
	if m == nil {
		return schedule{}, fmt.Errorf("%q is no schedule: it has the form %q", text,
			schedule{steps: 1, disturbances: []disturbance{{what: crashAfter, of: "create pods", n: 2}}})
	}
	var s schedule
	var err error
	if s.seed, err = strconv.ParseUint(m[1], 10, 64); err != nil {
		return s, err
	}
	if s.steps, err = strconv.Atoi(m[2]); err != nil || s.steps < 1 || s.steps > steps {
		return s, fmt.Errorf("%q is for %s steps, and the scenario has %d", text, m[2], steps)
	}
	if m[4] == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(m[4], "; ") {
		d, err := parseDisturbance(part)
		if err != nil {
			return s, fmt.Errorf("%q: %w", text, err)
		}
		s.disturbances = append(s.disturbances, d)
	}
	s.ordered = m[3] != "" && len(s.disturbances) > 1
	return s, nil
}

func parseDisturbance(text string) (disturbance, error) {
	program, what, ok := strings.Cut(text, ": ")
	if !ok {
		program, what = "", text
	}
	d, err := parseUnnamed(what)
	d.program = program
	if err == nil && ok && !programName.MatchString(program) {
		err = fmt.Errorf("%q is no name of a program", program)
	}
	return d, err
}

// parseUnnamed reads what [disturbance.text] has written.
func parseUnnamed(text string) (disturbance, error) {
	if slices.Contains(ofRun, text) {
		return disturbance{what: text}, nil
	}
	kinds, m := slices.Concat(atWrites, atReads, atHooks, atOthers, atAPIWrites), atGateText.FindStringSubmatch(text)
	if m == nil {
		kinds, m = slices.Concat(atSteps, ofResources), atStepText.FindStringSubmatch(text)
	}
	if m == nil {
		return disturbance{}, fmt.Errorf("%q names neither a request nor a step", text)
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return disturbance{}, err
	}
	for _, what := range kinds {
		of, ok := strings.CutPrefix(m[1], what)
		if !ok || of != "" && of[0] != ' ' {
			continue
		}
		of = strings.TrimPrefix(of, " ")
		if slices.Contains(ofResources, what) {
			of = strings.TrimSuffix(of, " in")
		}
		if d := (disturbance{what: what, of: of, n: n}); d.String() == text {
			return d, nil
		}
	}
	return disturbance{}, fmt.Errorf("%q is no disturbance", text)
}

// kindsAt returns what can go wrong at requests of a kind, which ask a webhook or do not.
func (s *Scenario) kindsAt(kind string, hooked bool) []string {
	kinds := atReads
	switch {
	case isOutside(kind) && writes(kind):
		kinds = atAPIWrites
	case isOutside(kind):
		kinds = atAPIReads
	case writes(kind):
		kinds = atWrites
	}
	if writes(kind) && len(s.Programs) > 1 {
		kinds = slices.Concat(kinds, atOthers)
	}
	if hooked {
		kinds = slices.Concat(kinds, atHooks)
	}
	return kinds
}

// writes reports whether requests of a kind may change something.
func writes(kind string) bool { return Request{Verb: verbOf(kind)}.Writes() }

// outwait returns how long the steps wait after which the program may begin something, which takes as long then. What
// a cache shows late in a step is over before the steps after it.
func (s schedule) outwait(scenario *Scenario) (wait time.Duration) {
	for _, d := range s.disturbances {
		switch d.what {
		case coldStart, unseenAll, down, downTwice, unseen, timeTravel, backTo, namesake, namesakeNow, stray:
			return scenario.waits(1)
		case late, frozen:
			wait = max(wait, scenario.waits(d.n))
		}
	}
	return wait
}

// fault returns what a disturbance makes of a request; nil: the server answers it.
func (d disturbance) fault(r Request) Fault {
	group := r.Resource.GroupResource()
	switch d.what {
	case loseAnswer:
		return LoseAnswer
	case refuse429:
		return Refuse(apierrors.NewTooManyRequests("the server is busy", int(pauseAsked.Seconds())))
	case refuse500, outage:
		return Refuse(apierrors.NewInternalError(errors.New("a disturbance")))
	case timeout504:
		return Refuse(timedOut(group, r))
	case applied504:
		return AnswerWith(timedOut(group, r))
	}
	return nil
}

// hookFault returns what a disturbance makes of calls of webhooks; nil: it is none of them.
func (d disturbance) hookFault() Fault {
	switch d.what {
	case hookDown:
		return ConnectionRefused
	case hookSlow:
		return Delay(2*conversionPatience, 0) // longer than any timeout of a webhook
	case hookEnded:
		return CertificateEnded
	case hookWrong:
		return WrongAnswer
	}
	return nil
}

func timedOut(group schema.GroupResource, r Request) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
		Message: fmt.Sprintf("request to %s %s did not complete within the allowed timeout", r.Verb, group),
	}}
}
