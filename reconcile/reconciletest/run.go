package reconciletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	stdruntime "runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	usualLatency = time.Millisecond
	slowLatency  = 1200 * time.Millisecond // more than a second, so that a time with seconds moves with each request
	// quiet is how long nothing is written until the program is taken to be done, and settleTime how long it may take.
	quiet      = 30 * time.Second
	settleTime = 10 * time.Minute
	// maskedFor is how long after its last write that counts the program is at work if it writes what Mask removes.
	maskedFor = time.Minute
	// worldTime is how long the world may be at work after a step. The program has settleTime from its last write on.
	worldTime = 2 * time.Hour
	// The most writes and requests between two steps: beyond, the program goes in circles.
	mostWrites   = 400
	mostRequests = 8_000
	// restartPause is how long a program that has died needs to start again, and mostCrashes how often it may end by
	// itself.
	restartPause = 100 * time.Millisecond
	// reactAfter is how long Always is not asked after a step that came while the program was at work: it may act on
	// what it has read before.
	reactAfter  = time.Second
	mostCrashes = 5
)

// run is one run of a scenario in a bubble, by a schedule. It belongs to the goroutine of the bubble's test, the
// driver.
type run struct {
	scenario *Scenario
	schedule schedule
	server   *Server
	gates    *gates
	group    lifecycle.Group
	ctx      context.Context

	processes    []*process     // that run or have not been noticed to have ended
	incarnations map[string]int // by program
	crashes      map[string]int // of these: how many have ended by themselves
	beside       []*process
	seen         map[origin]int   // requests of the programs
	places       map[origin]int   // of these, the ones that can be disturbed
	from         []map[origin]int // of seen: what there was before each step that has begun
	// delays are how late events of resources are, for a program that watches; negative: they do not come.
	delays     map[outlook]time.Duration
	made       []identity // objects that the program has made, in order
	touched    map[identity]bool
	deleted    map[identity]time.Time // by the user
	finalizers map[string]bool        // that the program puts on objects or takes off
	varies     *variance
	leaves     map[string]bool // see check
	stays      map[string]int  // see eachStart
	rewrites   map[string]bool // see check
	around     *surroundings
	authors    *authors
	ideal      *ending               // what the end has to be like; nil: nothing
	shortcut   *snapshot             // what it may be like as well; nil: nothing
	versions   map[disturbance]int64 // of the server, where the schedule goes back to
	outages    map[origin]refusing
	hookOutage refusing             // of webhooks; zero: they work
	hooked     map[disturbance]bool // the requests of the program that have asked webhooks
	watched    map[outlook]bool
	happened   map[disturbance]bool
	used       map[string]usage // rights that the programs have made use of
	goroutines int              // of the process, before the run started any
	closely    bool             // see leaks
	cold       bool             // not all steps are done
	calmed     bool             // nothing goes wrong any more
	// void: it judges nothing; the schedule has led to what no program can undo, or the world is not done.
	void      bool
	outliving []needless
	hurried   bool // the next step is due, whatever the program does
	hurriedAt time.Time
	answered  time.Time // when the programs have seen all answers of APIs that are late
	failure   *breach
	crowded   bool // goroutines are left that may be; see leaks

	guards
	journal
	manners
	afterStep []snapshot
	last      snapshot
	idle      map[string]bool // what it has written when there was nothing to do, by kind
}

// identity tells one object from another that has its name later.
type identity struct{ resource, namespace, name, uid string }

// refusing is an outage that lasts until a time.
type refusing struct {
	by    disturbance
	until time.Time
}

// breach is what a run has shown to be wrong.
type breach struct {
	rule   string // what is broken
	detail []string
	// where is what it is about, for breaches that are alike; empty: the detail says it.
	where []string
	// objects are the ones that are not as they should be, where that is known.
	objects []string
}

// about returns what breaches that are alike have in common, beside the rule.
func (b *breach) about() string {
	if b.where != nil {
		return strings.Join(b.where, "\n")
	}
	return withoutNumbers(strings.Join(b.detail, "\n"))
}

// fail notes the first rule that is broken, unless it is switched off.
func (r *run) fail(rule string, detail ...string) { r.breaks(&breach{rule: rule, detail: detail}) }

func (r *run) breaks(b *breach) {
	if r.failure == nil && !r.scenario.isOff(b.rule) {
		r.failure = b
	}
}

// newRun prepares a run. It is called in the bubble.
func newRun(ctx context.Context, sc *Scenario, sched schedule, s *Server) *run {
	r := &run{scenario: sc, schedule: sched, server: s, gates: newGates(s), ctx: ctx,
		guards:       guards{guarded: make(map[string]bool)},
		journal:      journal{begin: time.Now()},
		incarnations: make(map[string]int), crashes: make(map[string]int),
		seen: make(map[origin]int), delays: make(map[outlook]time.Duration), touched: make(map[identity]bool),
		watched: make(map[outlook]bool),
		deleted: make(map[identity]time.Time), finalizers: make(map[string]bool), varies: newVariance(),
		versions: make(map[disturbance]int64), outages: make(map[origin]refusing), hooked: make(map[disturbance]bool),
		happened: make(map[disturbance]bool), used: make(map[string]usage), manners: newManners(), cold: true,
		goroutines: stdruntime.NumGoroutine()}
	r.gates.apis, r.gates.group, r.gates.schedule = sc.makeAPIs(), &r.group, sched.String()
	r.authors = newAuthors(sc)
	s.exemptUsers, s.hosts.used = true, true // nothing else has the server yet
	for _, d := range sched.disturbances {
		r.happened[d] = slices.Contains(ofRun, d.what)
		r.gates.asksToWait = r.gates.asksToWait || d.what == refuse429
	}
	if sc.World != nil {
		r.around, r.gates.changed = newSurroundings(r), s.store.changes
	}
	if len(sched.disturbances) > 1 && !sched.ordered || sched.seed != sc.Seed {
		r.gates.choose = rand.New(rand.NewPCG(sched.seed, 1)).IntN
	}
	return r
}

func (s schedule) hasAt(d disturbance) bool { return slices.Contains(s.disturbances, d) }

func (s schedule) has(what string) bool { return len(s.all(what)) > 0 }

// all returns the disturbances of a kind.
func (s schedule) all(what string) (all []disturbance) {
	for _, d := range s.disturbances {
		if d.what == what {
			all = append(all, d)
		}
	}
	return all
}

// play runs the steps and judges the end. It leaves no goroutine behind, if the programs end when they are killed.
func (r *run) play() {
	defer r.end()
	for _, program := range r.scenario.Beside {
		r.beside = append(r.beside, launch(&r.group, r.gates, Program{Run: program}, 0))
	}
	if r.startDown(); len(r.processes) > 0 {
		r.settle()
	}
	blind := r.schedule.all(unseenAll)
	for _, d := range blind {
		r.disturb(d)
		r.hide(d)
	}
	for i := range r.schedule.steps {
		(&stepRun{r, i + 1}).play()
		if r.failure != nil {
			return
		}
	}
	if r.cold = false; len(r.startDown()) > 0 { // it catches up, in which something can go wrong as well
		r.settle()
	}
	for _, d := range blind {
		r.see(d)
	}
	for _, d := range r.schedule.disturbances { // in order, so that a schedule is the same run each time
		if version, ok := r.versions[d]; ok {
			r.travel(d, version)
		}
	}
	verdict{r}.pass()
}

// end kills what runs.
func (r *run) end() {
	for _, p := range slices.Concat(r.processes, r.beside) {
		r.kill(p)
	}
	r.processes, r.beside = nil, nil
	r.leaks()
}

// start starts one more incarnation of a program.
func (r *run) start(program Program) *process {
	r.incarnations[program.Name]++
	p := launch(&r.group, r.gates, program, r.incarnations[program.Name])
	if r.schedule.hit(slow, p.Name) && !r.calmed {
		p.latency = slowLatency
	}
	r.processes = append(r.processes, p)
	for s, d := range r.delays {
		if s.program == p.Name {
			r.hold(p, s.resource, d)
		}
	}
	r.note(turn, "start of %s", p.title())
	return p
}

// startDown starts the programs of which none runs, and returns their processes: but for those that begin when all
// steps are done, as long as not all are, and those that disturbances keep down.
func (r *run) startDown(but ...disturbance) (started []*process) {
	for _, program := range r.scenario.programs() {
		if r.cold && r.schedule.hit(coldStart, program.Name) || slices.ContainsFunc(but, func(d disturbance) bool {
			return d.hits(program.Name)
		}) || slices.ContainsFunc(r.processes, func(p *process) bool { return p.Name == program.Name }) {
			continue
		}
		started = append(started, r.start(program))
	}
	return started
}

func (r *run) kill(p *process) {
	if p.incarnation > 0 {
		if r.used[p.Name] == nil {
			r.used[p.Name] = make(usage)
		}
		for _, u := range p.link.rights() {
			r.used[p.Name][u] = true
		}
	}
	if err := r.gates.kill(p); err != nil {
		r.fail(ruleEnds, err.Error())
	}
	r.processes = slices.DeleteFunc(r.processes, func(other *process) bool { return other == p })
}

// crash kills the programs that a disturbance hits, and starts them again if they are to go on.
func (r *run) crash(d disturbance, again bool) {
	for _, p := range slices.Clone(r.processes) {
		if d.hits(p.Name) {
			r.note(turn, "CRASH of %s", p.title())
			r.kill(p)
		}
	}
	if again {
		time.Sleep(restartPause)
		for _, program := range r.scenario.hit(d) {
			r.start(program)
		}
	}
}

// die kills one incarnation. A second one lives on; if there is none that stays, the program starts again.
func die(r *run, p *process) {
	r.note(turn, "CRASH of %s", p.title())
	r.kill(p)
	if p.dies.IsZero() {
		time.Sleep(restartPause)
		r.start(p.Program)
	}
}

// settle lets requests through until nothing is written for a while.
func (r *run) settle() {
	begin := time.Now()
	last, writes, requests := begin, 0, 0
	working := last      // of the last write, also one that does not count; see maskedFor
	var idle []time.Time // of requests since the last write
	kinds := map[string]int{}
	for r.failure == nil {
		if r.hurried {
			r.hurried = false
			return
		}
		r.revive()
		limit := earlier(r.around.rests(begin), begin.Add(worldTime)).Add(settleTime)
		if r.answered.After(last) {
			last, working = r.answered, r.answered
		}
		g, over := r.next(earlier(r.around.rests(working).Add(quiet), limit))
		if g == nil && !over {
			continue
		}
		if g == nil {
			r.atRest = len(slices.DeleteFunc(idle, func(at time.Time) bool { return time.Since(at) > quiet }))
			switch took := time.Since(begin).Round(time.Second); {
			case time.Since(last) < quiet:
				r.breaks(restless(r, kinds, fmt.Sprintf("after %s it still writes: %s", took, most(kinds))))
			case r.around.rests(begin).After(time.Now()):
				r.around.unfinished(took)
			}
			return
		}
		wrote := r.let(g)
		requests++
		if g.process.incarnation > 0 && !g.lives() {
			idle = append(idle, time.Now())
		}
		if wrote {
			last, writes, idle = time.Now(), writes+1, nil
			kinds[g.String()]++
		}
		if g.wrote() && time.Since(last) < maskedFor {
			working = time.Now()
		}
		if r.loops(writes, requests, 1+int(time.Since(begin)/(settleTime+time.Second)), begin, kinds, g) {
			return
		}
	}
}

// loops reports whether there were more writes or requests since begin than a program may make in some times of the
// time that it has to settle.
func (r *run) loops(writes, requests, times int, begin time.Time, kinds map[string]int, last *gate) bool {
	times *= len(r.scenario.programs())
	switch {
	case writes > times*mostWrites:
		r.breaks(restless(r, kinds, fmt.Sprintf("hot loop: %d writes in %s: %s", writes, time.Since(begin),
			most(kinds))))
	case requests > times*mostRequests:
		r.fail(ruleRests, fmt.Sprintf("%d requests in %s, the last one %s", requests, time.Since(begin), last))
	default:
		return false
	}
	return true
}

// restless is about writes without an end, by their kinds. Two programs may make each other write.
func restless(r *run, kinds map[string]int, text string) *breach {
	return &breach{rule: ruleRests, where: slices.Sorted(maps.Keys(kinds)), detail: append([]string{text},
		r.authors.fights()...)}
}

// most names what was counted most often.
func most(kinds map[string]int) string {
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(kinds[b]-kinds[a], cmp.Compare(a, b))
	})
	text := ""
	for _, name := range names[:min(3, len(names))] {
		text += fmt.Sprintf("%d × %s; ", kinds[name], name)
	}
	return text
}

// next waits for a request. It returns nil when the time until is over, and also, with over false, when a process is to
// die, or the world has done something or has something to look at: the caller calls revive, and next again.
func (r *run) next(until time.Time) (g *gate, over bool) {
	wake := until
	for _, p := range r.processes {
		if !p.dies.IsZero() {
			wake = earlier(wake, p.dies)
		}
	}
	did, wake := r.around.turn(wake)
	if !did {
		g = r.gates.next(wake)
	}
	if request := r.gates.strayed(); request != "" {
		r.fail(ruleAPIs, request)
	}
	if api := r.gates.brokenAPI(); api != "" {
		r.fail(ruleSteps, api)
	}
	return g, g == nil && !time.Now().Before(until)
}

// revive starts a program again that has ended by itself, unless another incarnation has its place, and kills the older
// of two incarnations when its time has come.
func (r *run) revive() {
	for _, p := range slices.Clone(r.processes) {
		if !p.dies.IsZero() && !time.Now().Before(p.dies) {
			r.note(turn, "CRASH of %s", p.title())
			r.kill(p)
			continue
		}
		if p.running() {
			continue
		}
		p.gone = true
		r.crashes[p.Name]++
		r.note(turn, "%s ended by itself: %v", p.title(), p.why())
		if r.crashes[p.Name] > mostCrashes || len(r.schedule.disturbances) == 0 {
			r.fail(ruleRuns, append([]string{of(p.Name, fmt.Sprintf("it ended by itself: %v", p.why()))},
				hints(p.why())...)...)
			if r.failure != nil {
				return
			}
		}
		r.kill(p)
		if p.dies.IsZero() {
			time.Sleep(backoff(r.crashes[p.Name]))
			r.start(p.Program)
		}
	}
}

// backoff is how long a kubelet waits before it starts a program again that has ended by itself so often: then it may
// end while the API fails, as many do that ask something when they start.
func backoff(ended int) time.Duration {
	if ended < 2 {
		return restartPause
	}
	return 10 * time.Second << (ended - 2)
}

// let lets a request through, with what the schedule says, and reports whether it has changed something that counts.
func (r *run) let(g *gate) bool {
	program := g.process.incarnation > 0
	var fault Fault
	var hit disturbance
	if program {
		hit = meets(r, g)
		if fault = hit.fault(g.request); g.api != nil {
			fault, g.later = hit.apiFault()
			if seen := time.Now().Add(g.later); g.later > 0 && seen.After(r.answered) {
				r.answered = seen
			}
		}
	}
	r.letWebhooks(hit)
	switch hit.what {
	case held:
		r.disturb(hit)
		r.gates.holdBack(g, heldFor)
		return false
	case outage:
		if !r.happened[hit] {
			r.outages[g.origin()] = refusing{hit, time.Now().Add(outageFor)}
		}
	case backTo:
		defer func() { r.versions[hit] = r.server.Version() }()
	case crashBefore:
		r.disturb(hit)
		g.process.link.Close()
	case touch:
		if r.touch(g.request) {
			r.disturb(hit)
		}
	case overlap:
		r.disturb(hit)
		for _, p := range r.processes {
			if p.dies.IsZero() && hit.hits(p.Name) {
				p.dies = time.Now().Add(overlapFor)
			}
		}
		r.start(g.process.Program)
	}
	r.gates.let(g, fault)
	r.observe(g, blameWebhooks(r, g, hit))
	if hit.what == crashAfter {
		g.process.link.Close()
	}
	r.gates.answer(g)
	if hit.what == early && !isLast(r) {
		r.hurried, r.hurriedAt = true, time.Now()
	}
	if hit.what == crashBefore || hit.what == crashAfter {
		die(r, g.process)
	}
	return verdict{r}.changed(g)
}

// meets counts a request of a program, and returns what goes wrong with it.
func meets(r *run, g *gate) disturbance {
	from := g.origin()
	if g.n == 0 { // else it was held back
		r.seen[from]++
		g.n = r.seen[from]
	}
	if g.request.Verb == "list" || g.request.Verb == "watch" {
		r.watched[outlook{from.program, g.request.Resource.Resource}] = true
	}
	i := slices.IndexFunc(r.schedule.disturbances, func(d disturbance) bool {
		return d.of == from.kind && d.n == g.n && d.program == from.program && !slices.Contains(ofResources, d.what) &&
			(d.what != held || !r.happened[d])
	})
	switch {
	case r.calmed:
		return disturbance{}
	case i >= 0:
		return r.schedule.disturbances[i]
	case r.pauses(g):
		return disturbance{refuse429, from.kind, g.n, from.program}
	case time.Now().Before(r.outages[from].until):
		return r.outages[from].by
	}
	return disturbance{}
}

// isLast reports whether the last step has begun.
func isLast(r *run) bool { return len(r.from) == r.schedule.steps }

// letWebhooks lets webhooks fail from a disturbance on, and work again when it is over.
func (r *run) letWebhooks(hit disturbance) {
	switch fault := hit.hookFault(); {
	case fault != nil:
		r.hookOutage = refusing{hit, time.Now().Add(outageFor)}
		r.server.InjectWebhooks(func(WebhookCall) Fault { return fault })
	case !r.hookOutage.until.IsZero() && (r.calmed || !time.Now().Before(r.hookOutage.until)):
		r.hookOutage = refusing{}
		r.server.InjectWebhooks(nil)
	}
}

// blameWebhooks notes that a request of the program has asked a webhook, and returns the disturbance that has met it
// there, or else hit.
func blameWebhooks(r *run, g *gate, hit disturbance) disturbance {
	if g.process.incarnation == 0 || !g.hooked {
		return hit
	}
	r.hooked[disturbance{of: g.kind(), n: g.n, program: g.process.Name}] = true
	if hit.what == "" && !r.hookOutage.until.IsZero() && g.code >= http.StatusInternalServerError {
		return r.hookOutage.by
	}
	return hit
}

// observe notes what a request was and what it has changed, and asks Always.
func (r *run) observe(g *gate, hit disturbance) {
	if g.process.incarnation == 0 {
		return
	}
	if wrong := r.heed(g, hit, time.Since(r.begin)); wrong != nil {
		r.breaks(wrong)
	}
	switch {
	case hit.what != "" && hit.what != touch && hit.what != overlap && hit.what != crashBefore && hit.what != backTo &&
		(hit.what != early || !isLast(r)) && (g.hooked || !slices.Contains(atHooks, hit.what)):
		if !r.happened[hit] {
			r.disturb(hit)
		}
		r.noteRequest(hurt, g)
	case g.wrote():
		r.noteRequest(wrote, g)
	case g.counts():
		r.noteRequest(read, g)
	default:
		r.noteRead(g)
	}
	for _, e := range g.changes {
		r.authors.note(g, e, time.Since(r.begin))
		if e.old == nil {
			r.made = append(r.made, identityOf(e.resource.Resource, e.object))
		}
		for _, f := range slices.Concat(finalizersOf(e.old), finalizersOf(e.object)) {
			moved := !slices.Contains(finalizersOf(e.old), f) || !slices.Contains(finalizersOf(e.object), f)
			if moved && !isProtection(f) {
				r.finalizers[f] = true
			}
		}
		if r.scenario.Always == nil || time.Since(r.hurriedAt) < reactAfter {
			continue
		}
		w := Write{Request: g.request, Program: g.process.Name, Incarnation: g.process.incarnation, Old: treeOf(e.old),
			New: treeOf(e.object)}
		if err := r.scenario.Always(w, r.server); err != nil {
			r.fail(ruleAlways, fmt.Sprintf("%s by %s: %v", g.request, g.process.title(), err))
		}
	}
}

func identityOf(resource string, o object) identity {
	return identity{resource, o.GetNamespace(), o.GetName(), string(o.GetUID())}
}

func finalizersOf(o object) []string {
	if o == nil {
		return nil
	}
	return o.GetFinalizers()
}

// treeOf returns an object as a tree of JSON, a copy; nil for nil.
func treeOf(o object) *unstructured.Unstructured {
	if o == nil {
		return nil
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.DeepCopy()
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(errors.Join(errors.New("an object of the server is no tree"), err))
	}
	return &unstructured.Unstructured{Object: content}
}
