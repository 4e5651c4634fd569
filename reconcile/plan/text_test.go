package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sample is a report in which there is something of each kind.
func sample() *Report {
	object := func(kind, name string) Object { return Object{"v1", kind, "default", name} }
	setup := Setup{Server: "https://10.0.0.9:6443", Context: "prod", World: "healthy", Admission: true,
		Account: "default/operator", Rules: true, Isolated: true}
	setup.Quiet.Duration, setup.Timeout.Duration = 10*time.Second, time.Minute
	return &Report{Settled: true, Program: "operator", Setup: setup,
		Changes: []Change{
			{Wave: 1, Verb: "update", Object: object("Deployment", "web"), By: "operator", Writes: 2,
				Fields: []Field{{Path: "spec.image", Old: "web:1", New: "web:2"},
					{Path: "spec.paused", Old: true}, {Path: "spec.more", New: []any{"a"}}},
				Restarts: &Restarts{Pods: 2, Why: []string{"spec.image"}}},
			{Wave: 2, Verb: "update", Object: object("StatefulSet", "db"), Writes: 1,
				Restarts: &Restarts{Pods: 3, Why: []string{"spec.template"}, When: "when they are deleted (OnDelete)"}},
			{Wave: 2, Verb: "create", Object: object("Secret", "password"), Writes: 1,
				Fields: []Field{{Path: "data", Hidden: true}}},
			{Wave: 2, Verb: "delete", Object: object("PersistentVolumeClaim", "data"), Writes: 1, LosesData: true,
				Waits: []string{"kubernetes.io/pvc-protection"}},
		},
		Refused: []Refusal{{Verb: "patch", Object: object("configmaps", "a"), Code: 403, Reason: "Forbidden",
			Message: "it may not", Times: 3}},
		HotLoops: []HotLoop{{Object: object("pods", "hot"), Writes: 20, Changes: 10, Seconds: 1.5,
			Fields: []string{"status.at"}}},
		Approximate: []Approximation{{Resource: "crons", Group: "example.com", Why: "its schema is unknown", Times: 2}},
		Missing:     []Right{{Verb: "list", Resource: "nodes"}},
		Unserved:    []string{"routes.v1.example.com"},
		Elsewhere:   []string{"10.0.0.1:443"}, ElsewhereUnknown: "it is a function",
		Anyway:     []Change{{Wave: 1, Verb: "create", Object: object("ConfigMap", "anyway")}},
		NoLonger:   []Change{{Wave: 1, Verb: "delete", Object: object("Pod", "spared"), Restarts: &Restarts{Pods: 1}}},
		OtherSetup: &Setup{Server: "https://10.0.0.8:6443", World: "still"},
		OtherDoubt: "the program had not settled",
	}
}

// parts are what each format has of the sample.
var parts = []string{"operator on a fork of https://10.0.0.9:6443, context prod; healthy world; admission by dry " +
	"runs; rights of default/operator; rules in CEL; isolated; done after 10s of quiet; ended after 1m0s",
	"compared with a report of https://10.0.0.8:6443; still world",
	"4 changes in 2 waves", "2 pods restarted", "1 deletion of data", "1 refused request",
	"1 hot loop", "Wave 2", "web:1", "web:2", "spec.more", "StatefulSet default/db",
	"when they are deleted (OnDelete)", "not shown", "pvc-protection", "configmaps default/a", "403 Forbidden",
	"it may not", "status.at", "crons.example.com", "its schema is unknown", "list nodes", "routes.v1.example.com",
	"10.0.0.1:443", "nobody has looked: it is a function", "ConfigMap default/anyway", "Pod default/spared",
	"of the other report: the program had not settled"}

func TestEachFormatHasAllOfAReport(t *testing.T) {
	spaces := regexp.MustCompile(`\s+`)
	for _, format := range []string{"text", "markdown", "html"} {
		var b bytes.Buffer
		require.NoError(t, sample().Write(&b, format))
		text := spaces.ReplaceAllString(strings.ReplaceAll(b.String(), `\`, ""), " ")
		for _, part := range parts {
			require.Contains(t, text, part, format)
		}
	}
	var b bytes.Buffer
	require.NoError(t, sample().Write(&b, "json"))
	var read Report
	require.NoError(t, json.Unmarshal(b.Bytes(), &read))
	require.Equal(t, sample(), &read)
	require.ErrorContains(t, sample().Write(&b, "yaml"), "text, markdown, html or json")
}

// TestTheReadmeShowsWhatIsPrinted has the report of the README, less what that leaves out with three dots.
func TestTheReadmeShowsWhatIsPrinted(t *testing.T) {
	r := &Report{Settled: true, Changes: make([]Change, 9)} // of the nine one is shown
	of := func(i int, kind, name string, writes int, fields ...Field) {
		r.Changes[i] = Change{Wave: 1, Verb: "update", Object: Object{"v1", kind, "databases", name},
			By: "etcd-operator", Writes: writes, Fields: fields}
	}
	version := func(of, was, is string) Field { return Field{Path: of, Old: was, New: is} }
	for i := range r.Changes {
		of(i, "ConfigMap", fmt.Sprint(i), 1, version("data[v]", "3.6.16", fmt.Sprint(i)))
	}
	of(0, "EtcdCluster", "orders", 5,
		version("status.conditions[Progressing].lastTransitionTime", "2026-11-26T06:01:20Z", "2026-11-26T06:01:35Z"),
		version("status.leader", "orders-1", "orders-2"),
		version("status.members[orders-1].version", "3.6.16", "3.7.3"),
		version("status.members[orders-2].version", "3.6.16", "3.7.3"),
		version("status.members[orders-3].version", "3.6.16", "3.7.3"), version("status.version", "3.6.16", "3.7.3"))
	r.Changes[0].Subresource = "status"
	r.Changes = append(r.Changes, Change{Wave: 1, Verb: "create", Object: Object{"v1", "ConfigMap", "databases", "x"}})
	const image = "spec.containers[etcd].image"
	for _, name := range strings.Fields("cache-1 orders-1 orders-2 orders-3 users-1 users-2 users-3") {
		r.Changes = append(r.Changes, Change{})
		of(len(r.Changes)-1, "Pod", name, 1, version(image, "etcd:v3.6.16", "etcd:v3.7.3"))
		r.Changes[len(r.Changes)-1].Restarts = &Restarts{Pods: 1, Why: []string{image}}
	}
	r.Approximate = []Approximation{
		{"pods", "", "what is written counts as carried out at once, as in a healthy cluster", 7}}
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, sample, _ := strings.Cut(string(readme), "--etcd-version=3.7.3\n...\n")
	sample, _, _ = strings.Cut(sample, "```")
	for part := range strings.SplitSeq(sample, "...\n") {
		require.Contains(t, b.String(), part)
	}
	require.Equal(t, 1, strings.Count(sample, "...\n"))
}

func TestMarkdownCallsNobody(t *testing.T) {
	require.Equal(t, "\\<b\\> @\u200borg/team \\$x\\$ \\&amp;", escaped("<b> @org/team $x$ &amp;"))
}

func TestTextInColoursIsTheSameText(t *testing.T) {
	var plain, coloured strings.Builder
	require.NoError(t, sample().write(&plain, text{}))
	require.NoError(t, sample().write(&coloured, text{coloured: true}))
	require.NotContains(t, plain.String(), "\x1b")
	escape := regexp.MustCompile("\x1b\\[[0-9;]*m")
	require.Equal(t, plain.String(), escape.ReplaceAllString(coloured.String(), ""))
	for _, marked := range []string{"RESTARTS 2 pods", "DATA IS LOST", "2 pods restarted or ended", "403 Forbidden"} {
		require.Contains(t, coloured.String(), "\x1b[1;31m"+marked+"\x1b[0m")
	}
	require.Contains(t, coloured.String(), "\x1b[33mRESTARTS 3 pods\x1b[0m", "not at once")
	require.NotContains(t, coloured.String(), "\x1b[1;31m0")
}

// TestThePageShowsStrangeTextsAsTheyAre has markup, control characters and a name that turns text around in each place
// that others fill.
func TestThePageShowsStrangeTextsAsTheyAre(t *testing.T) {
	const strange = "</style></title><script>alert(1)</script>\x1b\u202e"
	r := sample()
	r.Program = strange
	for i := range r.Changes {
		r.Changes[i].Object.Name, r.Changes[i].By = strange, strange
		r.Changes[i].Waits = []string{strange}
		r.Changes[i].Fields = []Field{{Path: strange, Old: strange, New: map[string]any{strange: strange}}}
		r.Changes[i].Restarts = &Restarts{Pods: 1, Why: []string{strange}, When: strange}
	}
	r.Refused[0].Message, r.Refused[0].Object.Name = strange, strange
	r.HotLoops[0].Fields, r.Approximate[0].Why = []string{strange}, strange
	r.Missing[0].Namespace, r.Unserved[0], r.Elsewhere[0] = strange, strange, strange
	r.ElsewhereUnknown = strange
	r.Anyway, r.NoLonger, r.OtherDoubt = r.Changes, r.Changes, strange
	var b bytes.Buffer
	require.NoError(t, r.WritePage(&b))
	require.NotContains(t, b.String(), "<script")
	require.NotContains(t, b.String(), "\x1b")
	require.NotContains(t, b.String(), "\u202e")
	require.Equal(t, 1, strings.Count(b.String(), "</style>"))
	require.Contains(t, b.String(), "&lt;script&gt;")
	require.NotContains(t, b.String(), "ZgotmplZ", "a value is in a place that html/template does not trust it in")
}

func TestPodsThatAreTooManyEnd(t *testing.T) {
	r := &Report{Changes: []Change{{Verb: "update", Restarts: &Restarts{Pods: 2, Why: []string{"spec.replicas"}}}}}
	for _, format := range []string{"text", "markdown", "html"} {
		var b bytes.Buffer
		require.NoError(t, r.Write(&b, format))
		require.Regexp(t, "(?i)ends 2 pods", b.String())
		require.NotRegexp(t, "(?i)restarts 2 pods", b.String())
	}
}

func TestAPageIsOneFile(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WritePage(&b))
	require.NotRegexp(t, `(src|href)="?(https?:|//|/|\.|[a-z]+\.)`, b.String())
	require.Contains(t, b.String(), `<a href="#change-1">`)
	require.Contains(t, b.String(), `<article id="change-1">`)
	require.Contains(t, b.String(), "--ground: #ffffff", "the style is in it")
	long := &Report{Changes: []Change{{Verb: "update", Fields: []Field{{New: strings.Repeat("x", 10*longestOnPage)}}}}}
	b.Reset()
	require.NoError(t, long.WritePage(&b))
	require.Less(t, b.Len(), 7*longestOnPage)
}

// TestAComparisonSaysWhatComesAnyway has two reports of which each has a change that the other one has not.
func TestAComparisonSaysWhatComesAnyway(t *testing.T) {
	change := func(wave int, name string, fields ...Field) Change {
		return Change{Wave: wave, Verb: "create", Object: Object{"v1", "Service", "default", name}, Fields: fields}
	}
	drawn := func(c Change, values ...string) Change {
		c.Invented = swapsOf(nil).stand
		for _, value := range values {
			c.Invented[value] = "*"
		}
		return c
	}
	ip := func(ip string) Field { return Field{Path: "spec.clusterIP", New: ip, Invented: true} }
	owner := func(uid string) Field {
		return Field{Path: "metadata.ownerReferences[x].uid", New: uid, Invented: true}
	}
	generated := func(wave int, ending string) Change {
		c := change(wave, "web-"+ending, Field{Path: "metadata.generateName", New: "web-"})
		c.NameInvented, c.Invented = true, map[string]string{"web-" + ending: "web-*"}
		return c
	}
	at := func(at string) Field { return Field{Path: "status.at", Old: at, New: at} }
	now := &Report{Changes: []Change{drawn(change(1, "both", ip("10.0.0.1"), owner("u1"),
		at("2026-11-26T05:36:49Z")), "10.0.0.1", "u1"), change(1, "old"), generated(1, "x7x")}}
	next := &Report{Settled: true, Changes: []Change{change(1, "new"), generated(2, "c5d"),
		drawn(change(2, "both", ip("10.0.0.2"), owner("u2"), at("2026-11-26T05:36:58Z")), "10.0.0.2", "u2"),
		generated(2, "d6f")}}
	names := func(all []Change) string {
		var names []string
		for _, c := range all {
			names = append(names, c.Object.Name)
		}
		return fmt.Sprint(names)
	}
	diff, err := next.Without(now)
	require.NoError(t, err)
	require.Equal(t, "[new web-d6f]", names(diff.Changes), "one more with a name that is generated")
	require.Equal(t, "[web-c5d both]", names(diff.Anyway))
	require.Equal(t, "[old]", names(diff.NoLonger))
	require.Contains(t, diff.Summary(), "1 change of the other report no longer")
	require.Equal(t, "the program had not settled", diff.OtherDoubt, "what it lacks seems to be new")
	require.Empty(t, next.Anyway, "the report itself stays")
}

// TestReportsOfOtherClustersDoNotCompare, nor do those with other options, but for how long the programs could run.
func TestReportsOfOtherClustersDoNotCompare(t *testing.T) {
	now := &Report{Settled: true, Setup: sample().Setup}
	for what, change := range map[string]func(s *Setup){
		"": func(s *Setup) {
			s.Context, s.Quiet.Duration, s.Timeout.Duration = "another name", time.Second, time.Hour
		},
		"it is of another cluster": func(s *Setup) { s.Server = "https://10.0.0.8:6443" },
		"it has other options":     func(s *Setup) { s.World = "still" },
	} {
		other := *now
		change(&other.Setup)
		diff, err := now.Without(&other)
		require.NoError(t, err)
		require.Equal(t, other.Setup, *diff.OtherSetup)
		require.Equal(t, what, diff.OtherDoubt)
		require.Equal(t, what != "", diff.ExitStatus() == 1, "nothing differs, but for what does not compare")
	}
}

func TestTheAddressOfAClusterIsShownWithoutAUser(t *testing.T) {
	at, err := url.Parse("https://admin:hunter2@10.0.0.9:6443/")
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.9:6443", setupOf(at, Options{}).Server)
	require.NotNil(t, at.User, "by which the cluster is asked")
}

func TestTheExitStatusOfAReport(t *testing.T) {
	require.Equal(t, 0, (&Report{Settled: true}).ExitStatus())
	require.Equal(t, 1, (&Report{}).ExitStatus())
	require.Equal(t, 1, (&Report{Settled: true, Elsewhere: []string{"10.0.0.1:443"}}).ExitStatus())
	require.Equal(t, 2, sample().ExitStatus())
	require.Equal(t, 2, (&Report{Settled: true, NoLonger: []Change{{}}}).ExitStatus())
}

// TestWhatIsTheSameIsSaidOnce has the same change of many objects, and the same reason for several resources.
func TestWhatIsTheSameIsSaidOnce(t *testing.T) {
	r := &Report{Settled: true}
	for i := range 40 {
		r.Changes = append(r.Changes, Change{Wave: 1, Verb: "update", Object: Object{"apps/v1", "Deployment", "default",
			fmt.Sprint("web-", i)}, Writes: 1, Fields: []Field{{Path: "spec.image", Old: "web:1", New: "web:2"}},
			Restarts: &Restarts{Pods: 1 + i%2, Why: []string{"spec.image"}}})
	}
	for i := range 2 {
		r.Changes = append(r.Changes, Change{Wave: 2, Verb: "create", Object: Object{"v1", "Service", "default",
			fmt.Sprint("web-", i)}, Fields: []Field{{Path: "spec.clusterIP", New: fmt.Sprint("10.0.0.", i),
			Invented: true}}, Invented: map[string]string{fmt.Sprint("10.0.0.", i): "*"}})
	}
	r.NoLonger = r.Changes[:40]
	for _, resource := range []string{"deployments", "replicasets"} {
		r.Approximate = append(r.Approximate, Approximation{resource, "apps", "it is healthy", 20})
	}
	for _, format := range []string{"text", "markdown", "html"} {
		var b strings.Builder
		require.NoError(t, r.Write(&b, format))
		for part, times := range map[string]int{"Deployment, 40 objects": 2, "web:2": 1, "default/web-39": 2,
			"deployments.apps, replicasets.apps": 1, "it is healthy": 1} {
			if format == "html" && part == "Deployment, 40 objects" {
				times++ // in the table of what ends pods
			}
			require.Equal(t, times, strings.Count(strings.ReplaceAll(b.String(), `\`, ""), part), "%s %s", format, part)
		}
		require.Regexp(t, `(?i)restarts 60 pods`, b.String())
		require.NotContains(t, b.String(), "10.0.0.")
		require.Contains(t, b.String(), "42 changes in 2 waves, 60 pods restarted or ended")
	}
	require.Equal(t, 1, r.Changes[0].Restarts.Pods, "the report itself stays")
	require.Equal(t, "10.0.0.0", r.Changes[40].Fields[0].New)
}
