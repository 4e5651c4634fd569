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

	processes    []*process // that run or have not been noticed to have ended
	incarnations int
	crashes      int
	beside       []*process
	seen         map[string]int // requests of the program by kind
	places       map[string]int // of these, the ones that can be disturbed
	lastFrom     map[string]int // of seen: what there was before the last step
	// delays are how late events of resources are, for whoever watches; negative: they do not come.
	delays     map[string]time.Duration
	made       []identity // objects that the program has made, in order
	touched    map[identity]bool
	deleted    map[identity]time.Time // by the user
	finalizers map[string]bool        // that the program puts on objects or takes off
	varies     *variance
	around     *surroundings
	ideal      *ending               // what the end has to be like; nil: nothing
	versions   map[disturbance]int64 // of the server, where the schedule goes back to
	outages    map[string]refusing   // of kinds of requests
	hookOutage refusing              // of webhooks; zero: they work
	hooked     map[disturbance]bool  // the requests of the program that have asked webhooks
	watched    map[string]bool
	happened   map[disturbance]bool
	used       usage // rights that the program has made use of
	goroutines int   // of the process, before the run started any
	calmed     bool  // nothing goes wrong any more
	void       bool  // it judges nothing: the schedule has led to what no program can undo, or the world is not done
	hurried    bool  // the next step is due, whatever the program does
	hurriedAt  time.Time
	failure    *breach

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
	r := &run{scenario: sc, schedule: sched, server: s, gates: newGates(s, usualLatency), ctx: ctx,
		journal: journal{begin: time.Now()},
		seen:    make(map[string]int), delays: make(map[string]time.Duration), touched: make(map[identity]bool),
		watched: make(map[string]bool),
		deleted: make(map[identity]time.Time), finalizers: make(map[string]bool), varies: newVariance(),
		versions: make(map[disturbance]int64), outages: make(map[string]refusing), hooked: make(map[disturbance]bool),
		happened: make(map[disturbance]bool), used: make(usage), manners: newManners(),
		goroutines: stdruntime.NumGoroutine()}
	s.exemptUsers, s.hosts.used = true, true // nothing else has the server yet
	for _, d := range sched.disturbances {
		r.happened[d] = slices.Contains(ofRun, d.what)
	}
	if sc.World != nil {
		r.around, r.gates.changed = newSurroundings(r), s.store.changes
	}
	if sched.has(slow) {
		r.gates.latency = slowLatency
	}
	if len(sched.disturbances) > 1 && !sched.ordered || sched.seed != sc.Seed {
		r.gates.choose = rand.New(rand.NewPCG(sched.seed, 1)).IntN
	}
	return r
}

func (s schedule) hasAt(d disturbance) bool { return slices.Contains(s.disturbances, d) }

func (s schedule) has(what string) bool {
	return slices.ContainsFunc(s.disturbances, func(d disturbance) bool { return d.what == what })
}

// play runs the steps and judges the end. It leaves no goroutine behind, if the programs end when they are killed.
func (r *run) play() {
	defer r.end()
	for _, program := range r.scenario.Beside {
		r.beside = append(r.beside, launch(&r.group, r.gates, "", 0, program))
	}
	if !r.schedule.has(coldStart) {
		r.start()
		r.settle()
	}
	if r.schedule.has(unseenAll) {
		r.disturb(disturbance{what: unseenAll})
		r.hide()
	}
	for i := range r.schedule.steps {
		(&stepRun{r, i + 1}).play()
		if r.failure != nil {
			return
		}
	}
	if len(r.processes) == 0 { // it catches up, in which something can go wrong as well
		r.start()
		r.settle()
	}
	if r.schedule.has(unseenAll) {
		r.see()
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

// start starts one more incarnation of the program.
func (r *run) start() *process {
	r.incarnations++
	p := launch(&r.group, r.gates, r.scenario.User, r.incarnations, r.scenario.Run)
	r.processes = append(r.processes, p)
	for resource, d := range r.delays {
		r.hold(p, resource, d)
	}
	r.note(turn, "start of incarnation %d", p.incarnation)
	return p
}

func (r *run) kill(p *process) {
	if p.incarnation > 0 {
		for _, u := range p.link.rights() {
			r.used[u] = true
		}
	}
	if err := r.gates.kill(p); err != nil {
		r.fail(ruleEnds, err.Error())
	}
	r.processes = slices.DeleteFunc(r.processes, func(other *process) bool { return other == p })
}

// crash kills the program, and starts it again if it is to go on.
func (r *run) crash(again bool) {
	for _, p := range slices.Clone(r.processes) {
		r.note(turn, "CRASH of incarnation %d", p.incarnation)
		r.kill(p)
	}
	if again {
		time.Sleep(restartPause)
		r.start()
	}
}

// settle lets requests through until nothing is written for a while.
func (r *run) settle() {
	begin := time.Now()
	last, writes, requests := begin, 0, 0
	var idle []time.Time // of requests since the last write
	kinds := map[string]int{}
	for r.failure == nil {
		if r.hurried {
			r.hurried = false
			return
		}
		r.revive()
		limit := earlier(r.around.rests(begin), begin.Add(worldTime)).Add(settleTime)
		g, over := r.next(earlier(r.around.rests(last).Add(quiet), limit))
		if g == nil && !over {
			continue
		}
		if g == nil {
			r.atRest = len(slices.DeleteFunc(idle, func(at time.Time) bool { return time.Since(at) > quiet }))
			switch took := time.Since(begin).Round(time.Second); {
			case time.Since(last) < quiet:
				r.breaks(&breach{rule: ruleRests, where: slices.Sorted(maps.Keys(kinds)), detail: []string{
					fmt.Sprintf("after %s it still writes: %s", took, most(kinds))}})
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
			kinds[g.request.String()]++
		}
		if r.loops(writes, requests, 1+int(time.Since(begin)/(settleTime+time.Second)), begin, kinds, g) {
			return
		}
	}
}

// loops reports whether there were more writes or requests since begin than a program may make in some times of the
// time that it has to settle.
func (r *run) loops(writes, requests, times int, begin time.Time, kinds map[string]int, last *gate) bool {
	switch {
	case writes > times*mostWrites:
		r.breaks(&breach{rule: ruleRests, where: slices.Sorted(maps.Keys(kinds)), detail: []string{
			fmt.Sprintf("hot loop: %d writes in %s: %s", writes, time.Since(begin), most(kinds))}})
	case requests > times*mostRequests:
		r.fail(ruleRests, fmt.Sprintf("%d requests in %s, the last one %s", requests, time.Since(begin), last.request))
	default:
		return false
	}
	return true
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
	return g, g == nil && !time.Now().Before(until)
}

// revive starts a program again that has ended by itself, unless another incarnation has its place, and kills the older
// of two incarnations when its time has come.
func (r *run) revive() {
	for _, p := range slices.Clone(r.processes) {
		if !p.dies.IsZero() && !time.Now().Before(p.dies) {
			r.note(turn, "CRASH of incarnation %d", p.incarnation)
			r.kill(p)
			continue
		}
		if p.running() {
			continue
		}
		r.crashes++
		r.note(turn, "incarnation %d ended by itself: %v", p.incarnation, p.err)
		if r.crashes > mostCrashes || len(r.schedule.disturbances) == 0 {
			if r.fail(ruleRuns, fmt.Sprintf("Run returned by itself: %v", p.err)); r.failure != nil {
				return
			}
		}
		r.kill(p)
		if p.dies.IsZero() {
			time.Sleep(restartPause)
			r.start()
		}
	}
}

// let lets a request through, with what the schedule says, and reports whether it has changed something that counts.
func (r *run) let(g *gate) bool {
	program := g.process.incarnation > 0
	var fault Fault
	var hit disturbance
	if program {
		kind := g.kind()
		r.seen[kind]++
		g.n = r.seen[kind]
		if g.request.Verb == "list" || g.request.Verb == "watch" {
			r.watched[g.request.Resource.Resource] = true
		}
		if i := slices.IndexFunc(r.schedule.disturbances, func(d disturbance) bool {
			return !r.calmed && d.of == kind && d.n == g.n && !slices.Contains(ofResources, d.what)
		}); i >= 0 {
			hit = r.schedule.disturbances[i]
		} else if !r.calmed && r.pauses(g) {
			hit = disturbance{refuse429, kind, g.n}
		} else if !r.calmed && time.Now().Before(r.outages[kind].until) {
			hit = r.outages[kind].by
		}
		fault = hit.fault(g.request)
	}
	r.letWebhooks(hit)
	switch hit.what {
	case outage:
		if !r.happened[hit] {
			r.outages[hit.of] = refusing{hit, time.Now().Add(outageFor)}
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
			if p.dies.IsZero() {
				p.dies = time.Now().Add(overlapFor)
			}
		}
		r.start()
	}
	r.gates.let(g, fault)
	r.observe(g, blameWebhooks(r, g, hit))
	if hit.what == crashAfter {
		g.process.link.Close()
	}
	r.gates.answer(g)
	if hit.what == early && r.lastFrom == nil {
		r.hurried, r.hurriedAt = true, time.Now()
	}
	if hit.what == crashBefore || hit.what == crashAfter {
		r.crash(true)
	}
	return g.counts() && len(g.changes) > 0
}

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
	r.hooked[disturbance{of: g.kind(), n: g.n}] = true
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
		(hit.what != early || r.lastFrom == nil) && (g.hooked || !slices.Contains(atHooks, hit.what)):
		if !r.happened[hit] {
			r.disturb(hit)
		}
		r.noteRequest(hurt, g)
	case g.counts() && len(g.changes) > 0:
		r.noteRequest(wrote, g)
	case g.counts():
		r.noteRequest(read, g)
	default:
		r.noteRead(g)
	}
	for _, e := range g.changes {
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
		w := Write{Request: g.request, Incarnation: g.process.incarnation, Old: treeOf(e.old),
			New: treeOf(e.object)}
		if err := r.scenario.Always(w, r.server); err != nil {
			r.fail(ruleAlways, fmt.Sprintf("%s by incarnation %d: %v", g.request, w.Incarnation, err))
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
