package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// drawing is what a fork draws in one run.
type drawing struct{ ip, ending, uid string }

// reportOf records writes of one wave: pairs of what was and what is.
func reportOf(t *testing.T, r *recorder, writes ...[2]reconciletest.Object) *Report {
	for _, w := range writes {
		o := w[1]
		if o == nil {
			o = w[0]
		}
		resource := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")) + "s"
		r.Wrote(reconciletest.BaseWrite{Old: w[0], New: w[1], Request: reconciletest.Request{Name: o.GetName(),
			Resource: corev1.SchemeGroupVersion.WithResource(resource)}})
	}
	report, err := r.report()
	require.NoError(t, err)
	return report
}

func creation(o reconciletest.Object) [2]reconciletest.Object { return [2]reconciletest.Object{nil, o} }

func serviceAt(uid types.UID, ip string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: "s-" + string(uid)}}
	if s.Spec.ClusterIP = ip; ip != "" {
		s.Spec.ClusterIPs = []string{ip}
	}
	return s
}

// run is a report in which a program writes what was drawn for it here and there. mode is what the program decides.
func (d drawing) run(t *testing.T, mode string) *Report {
	name := "web-" + d.ending
	data := map[string]string{"args": "--svc=" + d.ip + ":80 --mode=" + mode, "uid": "pvc-" + d.uid,
		"host": "db-0." + name + ".ns.svc", "lines": strings.Repeat("same\n", 500) + d.ip + "\n" + mode}
	owned := metav1.ObjectMeta{UID: types.UID(d.uid + "2"), Name: "job-" + name + "-svc",
		OwnerReferences: []metav1.OwnerReference{{Name: name, Kind: "ConfigMap", UID: types.UID(d.uid)}}}
	return reportOf(t, newRecorder(), creation(serviceAt("1", d.ip)),
		creation(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: types.UID(d.uid), Name: name,
			GenerateName: "web-"}}),
		creation(&corev1.ConfigMap{ObjectMeta: owned, Data: data}))
}

// TestOnlyWhatIsDrawnDoesNotCount has values of which a part is drawn, and another part is what differs.
func TestOnlyWhatIsDrawnDoesNotCount(t *testing.T) {
	now, next := drawing{"10.96.0.5", "x7x8k", "7d3c"}, drawing{"10.96.0.77", "b2b4c", "9a41"}
	diff, err := next.run(t, "a").Without(now.run(t, "a"))
	require.NoError(t, err)
	require.Empty(t, diff.Changes)
	require.Empty(t, diff.NoLonger)
	diff, err = next.run(t, "b").Without(now.run(t, "a"))
	require.NoError(t, err)
	require.Len(t, diff.Changes, 1)
	require.Equal(t, "job-web-b2b4c-svc", diff.Changes[0].Object.Name)
	require.Len(t, diff.NoLonger, 1)
	for _, c := range now.run(t, "a").Changes {
		if c.Object.Name != "job-web-x7x8k-svc" {
			continue
		}
		require.True(t, c.NameInvented)
		for _, f := range c.Fields {
			require.True(t, f.Invented, f.Path)
		}
	}
}

// TestAnAddressThatIsChosenCounts has a Service that the next version makes headless.
func TestAnAddressThatIsChosenCounts(t *testing.T) {
	run := func(ip string) *Report { return reportOf(t, newRecorder(), creation(serviceAt("1", ip))) }
	diff, err := run("None").Without(run("10.96.0.5"))
	require.NoError(t, err)
	require.Len(t, diff.Changes, 1)
}

// TestADrawnNameIsShortenedOnce has two prefixes of which one is a part of the other one.
func TestADrawnNameIsShortenedOnce(t *testing.T) {
	run := func(prefix, ending string) *Report {
		return reportOf(t, newRecorder(), creation(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1",
			Name: prefix + ending, GenerateName: prefix}}))
	}
	strip := func(r *Report) *Report {
		r.Changes[0].Fields = nil
		return r
	}
	diff, err := strip(run("run-db1-", "x7x8k")).Without(strip(run("run-", "b2b4c")))
	require.NoError(t, err)
	require.Len(t, diff.Changes, 1)
	long := strings.Repeat("a", 60)
	require.True(t, run(long[:58], "x7x8k").Changes[0].NameInvented)
	report := reportOf(t, newRecorder(), creation(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1",
		Name: long[:58] + "x7x8k", GenerateName: long}}))
	require.True(t, report.Changes[0].NameInvented, "a prefix that a server cuts")
}

// TestWhatTheClusterHasIsNotInvented has a Service and a pod that were there before.
func TestWhatTheClusterHasIsNotInvented(t *testing.T) {
	is, labelled := serviceAt("1", "10.96.0.1"), serviceAt("1", "10.96.0.1")
	labelled.Labels = map[string]string{"a": "10.96.0.1"}
	r := newRecorder()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2", Name: "p"}, Status: corev1.PodStatus{PodIP: "10.0.0.7"}}
	r.Wrote(reconciletest.BaseWrite{By: worldManager, Old: pod, New: pod,
		Request: reconciletest.Request{Resource: corev1.SchemeGroupVersion.WithResource("pods")}})
	going := labelled.DeepCopy()
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{}, []string{"a/b"}
	report := reportOf(t, r, [2]reconciletest.Object{is, labelled}, [2]reconciletest.Object{labelled, going},
		creation(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "3", Name: "c"},
			Data: map[string]string{"pod": "10.0.0.7"}}))
	require.Len(t, report.Changes, 3)
	for _, c := range report.Changes {
		for _, f := range c.Fields {
			require.False(t, f.Invented, f.Path)
		}
	}
}

// TestTheHashesOfAHealthyWorldAreInvented has a ReplicaSet of which the program writes the name.
func TestTheHashesOfAHealthyWorldAreInvented(t *testing.T) {
	r := newRecorder()
	const hash = "5d8f7c9b64"
	r.drew(hash)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2", Name: "web-" + hash + "-x7x8k",
		GenerateName: "web-" + hash + "-"}}
	r.Wrote(reconciletest.BaseWrite{By: worldManager, New: pod})
	report := reportOf(t, r, creation(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "3", Name: "c"},
		Data: map[string]string{"pod": pod.Name, "set": "web-" + hash}}))
	var fields []any
	for _, f := range report.Changes[0].withoutInvented().Fields {
		fields = append(fields, f.New)
	}
	require.Equal(t, []any{"web-*-*", "web-*"}, fields)
}

// TestWhatIsAPartOfItsOwn has texts in which a drawn value stands, and others that only look like it.
func TestWhatIsAPartOfItsOwn(t *testing.T) {
	s := swapsOf(map[string]string{"10.96.0.1": "*", "fd00::5": "*", "30001": "*", "web-x7x8k": "web-*", "7d3c": "*",
		"web-x7x8k-b2b4c": "web-*-*"})
	for text, want := range map[string]string{
		"https://10.96.0.1:443": "https://*:443", "10.96.0.11": "", "110.96.0.1": "", "1.10.96.0.1": "",
		"10.96.0.1.5": "", "10.96.0.1.nip.io": "*.nip.io", "at 10.96.0.1.": "at *.",
		"[fd00::5]:80": "[*]:80", "fd00::5a": "", "fd00::5:1": "", "fd00::5": "*",
		"node:30001": "node:*", "30001": "*", "30001 requests": "", "https://10.96.0.1:30001/": "https://*:*/",
		"job-web-x7x8k-svc": "job-web-*-svc", "web-x7x8": "", "web-x7x8kk": "", "myweb-x7x8k": "",
		"web-x7x8k-b2b4c.web.svc": "web-*-*.web.svc", "pvc-7d3c": "pvc-*", "a7d3c": "",
	} {
		if want == "" {
			want = text
		}
		require.Equal(t, want, s.replaced(text, nil), text)
	}
	path := s.replacedIn("spec.ports", []any{map[string]any{"nodePort": int64(30001), "port": int64(30001)}}, nil)
	require.Equal(t, []any{map[string]any{"nodePort": "*", "port": int64(30001)}}, path)
}

// TestAGroupShowsWhatIsNotDrawn in text and on a page.
func TestAGroupShowsWhatIsNotDrawn(t *testing.T) {
	r := &Report{Settled: true}
	for i := range 2 {
		ip := fmt.Sprint("10.96.0.", i)
		r.Changes = append(r.Changes, Change{Wave: 1, Verb: "update", Object: Object{"v1", "Pod", "default",
			fmt.Sprint("p", i)}, Fields: []Field{{Path: "spec.args", Old: "--at=" + ip, New: "--at=" + ip + " -v",
			Invented: true}}, Invented: map[string]string{ip: "*"}})
	}
	for _, format := range []string{"text", "html"} {
		var b strings.Builder
		require.NoError(t, r.Write(&b, format))
		require.Contains(t, b.String(), "--at=* -v")
		require.NotContains(t, b.String(), "<i>none</i>")
	}
	named := []Change{{Verb: "create", NameInvented: true, Invented: map[string]string{"x": "*"}}}
	for _, r := range []*Report{{Anyway: named}, {NoLonger: named}} {
		for _, format := range []string{"text", "markdown", "html"} {
			var b strings.Builder
			require.NoError(t, r.Write(&b, format))
			require.Contains(t, b.String(), "(name invented)")
			require.Contains(t, b.String(), inventedNote)
		}
	}
}

// TestTiesAreInOneOrder has what a report sorts out of maps.
func TestTiesAreInOneOrder(t *testing.T) {
	said := map[string]bool{}
	for range 30 {
		r := newRecorder()
		resource := corev1.SchemeGroupVersion.WithResource("secrets")
		for i := range int32(4) {
			r.refused[refusal{verb: "update", resource: resource, code: 400 + i}] = 1
		}
		for _, status := range []bool{true, false} {
			r.writes[place{resource: resource.GroupResource(), status: status}] = &rewrites{resource: resource, n: 50,
				was: &corev1.Secret{}, is: &corev1.Secret{}}
		}
		report, err := r.report()
		require.NoError(t, err)
		said[fmt.Sprint(report.Refused, report.HotLoops)] = true
		require.Len(t, report.HotLoops, 2)
	}
	require.Len(t, said, 1)
}

// TestTheStatusOfADrawnNameComesBeforeItsDeletion has verbs whose alphabet is another order.
func TestTheStatusOfADrawnNameComesBeforeItsDeletion(t *testing.T) {
	pod := func(phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Name: "web-x7x8k", GenerateName: "web-"},
			Status: corev1.PodStatus{Phase: phase}}
	}
	r := newRecorder()
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	for _, w := range []reconciletest.BaseWrite{{By: worldManager, New: pod("")},
		{Request: reconciletest.Request{Subresource: "status"}, Old: pod(""), New: pod("Failed")},
		{Old: pod("Failed")}} {
		w.Resource = resource
		r.Wrote(w)
	}
	report, err := r.report()
	require.NoError(t, err)
	var verbs []string
	for _, c := range report.Changes {
		verbs = append(verbs, c.Verb)
	}
	require.Equal(t, []string{"update", "delete"}, verbs)
}

// TestWhatAClusterMakesIsOfWhatIsThere has a Service that is made twice, one without endpoints, and one that goes.
func TestWhatAClusterMakesIsOfWhatIsThere(t *testing.T) {
	selects := func(uid types.UID) *corev1.Service {
		s := serviceAt(uid, "")
		s.Name, s.Spec.Selector = "a", map[string]string{"a": "b"}
		return s
	}
	outside := selects("3")
	outside.Name, outside.Spec.Type = "outside", corev1.ServiceTypeExternalName
	bare := serviceAt("4", "")
	last := selects("5")
	last.Name = "last"
	writes := [][2]reconciletest.Object{creation(selects("1")), {selects("1"), nil}, creation(selects("2")),
		creation(outside), creation(bare)}
	require.Equal(t, []string{"EndpointSlices of new services (1)"}, reportOf(t, newRecorder(), writes...).Unlisted)
	writes = slices.Concat(writes, [][2]reconciletest.Object{creation(last)})
	require.Equal(t, []string{"EndpointSlices of new services (2)"}, reportOf(t, newRecorder(), writes...).Unlisted)
}
