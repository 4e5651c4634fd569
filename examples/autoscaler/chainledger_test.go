package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// chainLedger is what the HPA controller did to the sizes of Deployments, as seen on its way to the API server, and
// what it was allowed to do.
type chainLedger struct {
	mu       sync.Mutex
	read     map[string]int32 // guarded by mu; sizes that were read, by path and version
	rescales []rescale        // guarded by mu
	bounds   []bounds         // guarded by mu
	fed      []deed           // guarded by mu; metrics of a Deployment's pods that were read
	outages  []outage         // guarded by mu
	events   []deed           // guarded by mu; of users
	counts   []census         // guarded by mu
}

// rescale is an update of a scale that the API server took.
type rescale struct {
	at       time.Time
	name     string
	from, to int
}

// bounds are those of an HPA from some time on.
type bounds struct {
	at          time.Time
	name        string
	least, most int
	taken       time.Time // when the API server said so; zero: it may not know them
}

// outage is when there was no API server. until is zero if it is not back yet.
type outage struct{ from, until time.Time }

// deed is something that happened to a Deployment or its HPA.
type deed struct {
	at         time.Time
	name, what string
}

// census is how many pods a Deployment should have and how many the largest of its ReplicaSets has. Two of them may
// have more together for a moment: one can grow before the other one has shrunk.
type census struct {
	at           time.Time
	name         string
	wanted, pods int
}

const (
	// delay is how long the HPA controller may act on what is old, while there is an API server: a watch is late, or
	// has to begin anew, and another replica takes over.
	delay = 15 * time.Second
	// lag is how long it may take from a look at the metrics until the size that it leads to is written.
	lag = 6 * time.Second
	// upPeriod is that of the default policies of growth: 4 pods or 100 %, whatever is more.
	upPeriod = 15 * time.Second
	// slow is how long a Deployment may have had more pods: its controllers may be dead, one after the other.
	slow = time.Minute
)

func newChainLedger() *chainLedger { return &chainLedger{read: map[string]int32{}} }

// allow notes bounds before they are asked for. taken is to be called when the API server has taken them.
func (l *chainLedger) allow(name string, least, most int32) (taken func()) {
	l.happened(name, "bounds %d and %d", least, most)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bounds = append(l.bounds, bounds{at: time.Now(), name: name, least: int(least), most: int(most)})
	i := len(l.bounds) - 1
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bounds[i].taken = time.Now()
	}
}

// away notes that there is no API server until back is called. How long its start takes is a matter of the machine.
func (l *chainLedger) away() (back func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages = append(l.outages, outage{from: time.Now()})
	i := len(l.outages) - 1
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.outages[i].until = time.Now()
	}
}

// happened notes what a user does, for the texts of violations.
func (l *chainLedger) happened(name, what string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, deed{time.Now(), name, fmt.Sprintf(what, args...)})
}

func (l *chainLedger) count(name string, wanted, pods int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts = append(l.counts, census{time.Now(), name, wanted, pods})
}

var scalePath = regexp.MustCompile(`/deployments/([^/]+)/scale$`)

// Wrap notes the requests about scales that go through a transport.
func (l *chainLedger) Wrap(next http.RoundTripper) http.RoundTripper { return &noting{l, next} }

type noting struct {
	ledger *chainLedger
	next   http.RoundTripper
}

func (n *noting) WrappedRoundTripper() http.RoundTripper { return n.next }

func (n *noting) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasPrefix(req.URL.Path, "/apis/metrics.k8s.io/") {
		resp, err := n.next.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusOK {
			n.ledger.feed(strings.TrimPrefix(req.URL.Query().Get("labelSelector"), "app="))
		}
		return resp, err
	}
	at := scalePath.FindStringSubmatch(req.URL.Path)
	if at == nil {
		return n.next.RoundTrip(req)
	}
	var asked []byte
	if req.Body != nil {
		var err error
		if asked, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(asked))
	}
	resp, err := n.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	return resp, n.ledger.note(req.Method, at[1], asked, answer)
}

// feed notes that metrics of the pods of a Deployment were read.
func (l *chainLedger) feed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fed = append(l.fed, deed{at: time.Now(), name: name})
}

// note remembers a size that was read or written.
func (l *chainLedger) note(method, name string, asked, answer []byte) error {
	now, err := scaleOf(answer)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if method != http.MethodGet {
		from := int32(-1) // of a version that nobody has read
		before, err := scaleOf(asked)
		if err != nil {
			return err
		}
		if size, ok := l.read[name+" "+before.ResourceVersion]; ok {
			from = size
		}
		l.rescales = append(l.rescales, rescale{time.Now(), name, int(from), int(now.Spec.Replicas)})
		l.counts = append(l.counts, census{time.Now(), name, int(now.Spec.Replicas), 0})
	}
	l.read[name+" "+now.ResourceVersion] = now.Spec.Replicas
	return nil
}

func scaleOf(data []byte) (*autoscalingv1.Scale, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	s, ok := o.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("a %T is no Scale", o)
	}
	return s, nil
}

// judge returns what broke a promise, and how often the HPAs grew and shrank.
func (l *chainLedger) judge() (violations []string, up, down int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	broken := func(r rescale, format string, args ...any) {
		what := fmt.Sprintf("%s %s from %d to %d: ", r.at.Format("15:04:05.000"), r.name, r.from, r.to)
		violations = append(violations, what+fmt.Sprintf(format, args...)+l.before(r))
	}
	for i, r := range l.rescales {
		least, most := l.allowed(r)
		clamped := slices.Contains(least, r.to) || slices.Contains(most, r.to)
		switch {
		case r.to > r.from:
			up++
		case r.to < r.from:
			down++
		}
		switch {
		case r.from < 0:
			broken(r, "the write was not made from what was read")
		case len(least) == 0:
			broken(r, "there is no HPA")
		case r.to == r.from:
			broken(r, "the write changes nothing")
		case r.to < slices.Min(least) || r.to > slices.Max(most):
			broken(r, "the bounds are %v and %v", least, most)
		case r.to > r.from && r.to > l.limit(l.rescales[:i], r) && !slices.Contains(least, r.to):
			broken(r, "the policies allow %d", l.limit(l.rescales[:i], r))
		case r.to < r.from && !slices.Contains(most, r.to) && l.wantedMore(l.rescales[:i], r):
			broken(r, "within the window more was wanted")
		case !clamped && !l.readFor(r):
			broken(r, "nobody has read metrics")
		}
	}
	for i, c := range l.counts {
		most := 0
		for j := i; j >= 0 && c.at.Sub(l.counts[j].at) < slow; j-- {
			if l.counts[j].name == c.name {
				most = max(most, l.counts[j].wanted)
			}
		}
		if c.pods > most+(most+3)/4 { // maxSurge is 25 %
			violations = append(violations, fmt.Sprintf("%s a ReplicaSet of %s has %d pods, and never wanted more "+
				"than %d in the last %s", c.at.Format("15:04:05.000"), c.name, c.pods, most, slow))
		}
	}
	return violations, up, down
}

// sinceLocked returns how much time has passed for those who need the API server: without its outages, and without as
// long again after each of them, which is how long a client may wait until it tries again.
func (l *chainLedger) sinceLocked(from, to time.Time) time.Duration {
	passed := to.Sub(from)
	for _, o := range l.outages {
		if o.until.IsZero() {
			o.until = to
		}
		begins, ends := max(0, o.from.Sub(from)), min(to.Sub(from), o.until.Add(o.until.Sub(o.from)).Sub(from))
		passed -= max(0, ends-begins)
	}
	return passed
}

// allowed returns the bounds that the HPA may have known at the time of a write.
func (l *chainLedger) allowed(r rescale) (least, most []int) {
	for i, b := range l.bounds {
		if b.name != r.name || b.at.After(r.at) {
			continue
		}
		replaced := slices.IndexFunc(l.bounds[i+1:],
			func(next bounds) bool { return next.name == b.name && !next.taken.IsZero() })
		if replaced < 0 || l.sinceLocked(l.bounds[i+1+replaced].taken, r.at) < delay {
			least, most = append(least, b.least), append(most, b.most)
		}
	}
	return least, most
}

// limit is how far the policies let a Deployment grow with a write. What the HPA has taken away within the period may
// come back at once.
func (l *chainLedger) limit(earlier []rescale, r rescale) int {
	start := r.from
	for _, e := range earlier {
		if e.name == r.name && e.to < e.from && l.sinceLocked(e.at, r.at) < upPeriod+delay {
			start += e.from - e.to
		}
	}
	return max(start+4, 2*start)
}

// wantedMore reports whether the HPA has grown to more than what it now shrinks to, within the window, and not only
// because its spec asked for no less.
func (l *chainLedger) wantedMore(earlier []rescale, r rescale) bool {
	return slices.ContainsFunc(earlier, func(e rescale) bool {
		least, _ := l.allowed(e)
		return e.name == r.name && e.to > e.from && e.to > r.to && r.at.Sub(e.at) < chainWindow-lag &&
			!slices.Contains(least, e.to)
	})
}

// readFor reports whether metrics of the Deployment were read shortly before.
func (l *chainLedger) readFor(r rescale) bool {
	return slices.ContainsFunc(l.fed, func(e deed) bool {
		return e.name == r.name && e.at.Before(r.at) && l.sinceLocked(e.at, r.at) < delay
	})
}

// before is what was done to the Deployment in the 20 s before.
func (l *chainLedger) before(r rescale) string {
	events := slices.Clone(l.events)
	for _, e := range l.rescales {
		events = append(events, deed{e.at, e.name, fmt.Sprintf("HPA %d to %d", e.from, e.to)})
	}
	slices.SortStableFunc(events, func(a, b deed) int { return a.at.Compare(b.at) })
	text := ""
	for _, e := range events {
		if e.name == r.name && !e.at.After(r.at) && r.at.Sub(e.at) < 20*time.Second {
			text += fmt.Sprintf("\n    %s %s", e.at.Format("05.000"), e.what)
		}
	}
	return text
}

// TestChainLedger shows that each promise can be broken.
func TestChainLedger(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	for want, bad := range map[string]*chainLedger{
		"": {rescales: []rescale{
			{at(1), "a", 3, 7}, {at(30), "a", 7, 2}, {at(31), "a", 2, 8}, {at(50), "a", 8, 5},
			{at(51), "least", 2, 4}, {at(53), "least", 4, 3}, {at(55), "away", 3, 7}},
			outages: []outage{{at(2), at(22)}}},
		"not made from what was read": {rescales: []rescale{{at(1), "a", -1, 7}}},
		"there is no HPA":             {rescales: []rescale{{at(1), "b", 3, 7}}},
		"changes nothing":             {rescales: []rescale{{at(1), "a", 3, 3}}},
		"the bounds are [1] and [8]":  {rescales: []rescale{{at(1), "a", 8, 9}}},
		"the bounds are [1] and [3]": {rescales: []rescale{{at(57), "away", 3, 7}},
			outages: []outage{{at(2), at(22)}}},
		"the policies allow 6":         {rescales: []rescale{{at(1), "a", 2, 7}}},
		"more was wanted":              {rescales: []rescale{{at(1), "a", 3, 7}, {at(3), "a", 7, 5}}},
		"nobody has read metrics":      {rescales: []rescale{{at(9), "a", 3, 5}}},
		"more than 4 in the last 1m0s": {counts: []census{{at(1), "a", 4, 4}, {at(2), "a", 3, 6}}},
		"of a has 9 pods, and never":   {counts: []census{{at(1), "a", 8, 8}, {at(70), "a", 3, 9}}},
	} {
		bad.bounds = []bounds{{at(0), "a", 1, 8, at(0)}, {at: at(40), name: "a", least: 1, most: 1},
			{at(0), "least", 4, 8, at(0)}, {at(52), "least", 1, 8, at(52)},
			{at(0), "away", 1, 8, at(0)}, {at(1), "away", 1, 3, at(1)}}
		if want != "nobody has read metrics" {
			for _, r := range bad.rescales {
				bad.fed = append(bad.fed, deed{at: r.at.Add(-time.Second), name: r.name})
			}
		}
		violations, _, _ := bad.judge()
		if want == "" {
			require.Empty(t, violations)
			continue
		}
		require.Len(t, violations, 1, "%s: %v", want, violations)
		require.Contains(t, strings.Join(violations, "\n"), want)
	}
}
