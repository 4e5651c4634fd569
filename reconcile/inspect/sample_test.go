package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// sample is a Manager as pages see it, made up: a controller "web" with keys in every state.
type sample struct {
	m       status.Manager
	list    []status.KeySummary
	details map[reconcile.Key]status.Key
	acted   []string
}

// sampleTime is when the samples were taken.
var sampleTime = time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)

func ago(d time.Duration) time.Time { return sampleTime.Add(-d) }

// newSample makes a controller with n keys; name makes the name of each.
func newSample(n int, name func(i int) string) *sample {
	s := &sample{m: sampleStatus(), details: make(map[reconcile.Key]status.Key)}
	for i := range n {
		k := status.KeySummary{Namespace: []string{"default", "shop", "billing"}[i%3], Name: name(i),
			State: status.KeySettled, Since: ago(time.Duration(i+1) * 777 * time.Millisecond)}
		if i < 3*len(urgency) && i%3 == 0 {
			k.State = urgency[i/3]
		}
		switch k.State {
		case status.KeyBackingOff:
			k.Failures, k.Next, k.LastResult = 7, sampleTime.Add(1280*time.Millisecond), "error"
		case status.KeyScheduled:
			k.Next, k.LastResult = sampleTime.Add(42*time.Minute), "requeue_after"
		case status.KeyFailed:
			k.Failures, k.LastResult = 1, "terminal"
		default:
			k.LastResult = "success"
		}
		k.Runs, k.LastRun = i%8, k.Since
		s.list = append(s.list, k)
		if i < 100 {
			s.details[reconcile.Key{Namespace: k.Namespace, Name: k.Name}] = sampleKey(k)
		}
	}
	return s
}

func (s *sample) now() time.Time { return sampleTime }

func (s *sample) status() status.Manager { return s.m }

func (s *sample) controllers() []string { return []string{s.m.Controllers[0].Name} }

func (s *sample) keys(_ context.Context, controller string) ([]status.KeySummary, bool) {
	return slices.Clone(s.list), controller == s.m.Controllers[0].Name
}

func (s *sample) key(_ context.Context, controller string, k reconcile.Key) (status.Key, bool) {
	d, ok := s.details[k]
	if !ok {
		d = status.Key{At: sampleTime, Controller: controller, Namespace: k.Namespace, Name: k.Name,
			State: status.KeyUnknown, Why: k.String() + " is unknown."}
	}
	return d, controller == s.m.Controllers[0].Name
}

func (s *sample) act(controller, action string, key reconcile.Key) bool {
	s.acted = append(s.acted, controller+" "+action+" "+key.String())
	return true
}

func sampleStatus() status.Manager {
	denied := &status.Error{Type: "*errors.StatusError", Reason: "Forbidden", Code: 403}
	return status.Manager{
		At: sampleTime, Started: ago(26*time.Hour + 5*time.Minute), Stage: status.StageWorking,
		StageSince: ago(26 * time.Hour), NotReady: []string{"informer pods: Stale"},
		Leadership: &status.Leadership{Lease: "kube-system/web", Identity: "web-7d4b9-x2x9p", Leading: true,
			Holder: "web-7d4b9-x2x9p", HolderSince: ago(1300 * time.Millisecond), Transitions: 14, Tenures: 2,
			TenureSince: ago(26 * time.Hour), Handover: "complete", HandoverTook: 31 * time.Millisecond},
		Controllers: []status.Controller{
			{Name: "web", Sources: []string{"For webs", "Owns pods"}, Workers: 5, Objects: 10000, Ready: 12,
				Running: 5, Delayed: 3, Failing: 2, Parked: 1, Stuck: 1, OldestReady: 240 * time.Millisecond,
				LongestRun: 3 * time.Minute, LongestParked: 14 * time.Second, Runs: 1234567, Failures: 89,
				Recent: []status.RunSummary{
					{Namespace: "default", Name: "web-0", Started: ago(40 * time.Millisecond),
						Took: 3200 * time.Microsecond, Result: "success", Writes: 1},
					{Namespace: "shop", Name: "web-1", Started: ago(90 * time.Millisecond),
						Took: 12 * time.Microsecond, Result: "success"},
					{Namespace: "billing", Name: "web-2", Started: ago(900 * time.Millisecond),
						Took: 870 * time.Millisecond, Result: "error", Writes: 3}}},
			{Name: "db", Workers: 1, Sources: []string{"For pods"}, Objects: 12, Runs: 40},
		},
		Informers: []status.Informer{
			{Name: "webs", Resource: "webs", Objects: 10000, ByMetadata: 10007, Bytes: 31_400_000,
				ResourceVersion: "48213377", State: "Live", Since: ago(26 * time.Hour),
				LastProgress: ago(3 * time.Second), Lists: 1},
			{Name: "pods", Resource: "pods", Version: "v1", Objects: 41234, ResourceVersion: "48213005",
				State: "Stale", Since: ago(75 * time.Second), LastProgress: ago(75 * time.Second), Lists: 3,
				Reason: denied, Namespaces: []status.Namespace{
					{Name: "shop", State: "Live", ResourceVersion: "48213399", Since: ago(time.Hour)},
					{Name: "billing", State: "Denied", Since: ago(75 * time.Second), Reason: denied}}},
		},
	}
}

// sampleKey has runs, waits, writes and debts of every kind.
func sampleKey(k status.KeySummary) status.Key {
	s := status.Key{
		At: sampleTime, Controller: "web", Namespace: k.Namespace, Name: k.Name, State: k.State, Since: k.Since,
		Next: k.Next, Failures: k.Failures,
		Why: fmt.Sprintf("%s/%s waits since 3.2 s: its last run created pod %s-x at version 48213377, and the pods "+
			"cache is at 48213005 and Stale since 09:25:38 because the watch is refused (403, watch pods).",
			k.Namespace, k.Name, k.Name),
		Objects: []status.Object{{Informer: "webs", Exists: true, ResourceVersion: "48213370",
			Owner: &status.Owner{Kind: "Pod", Name: "root"}}},
		Debts: []status.Debt{{Kind: status.DebtChange, Informer: "pods", Namespace: k.Namespace,
			Name: k.Name + "-x", ResourceVersion: "48213377", Since: ago(3200 * time.Millisecond),
			CacheVersion: "48213005", CacheState: "Stale", CacheSince: ago(75 * time.Second),
			CacheReason: &status.Error{Type: "*errors.StatusError", Reason: "Forbidden", Code: 403}}},
		Waits: []status.Wait{{For: status.WaitParked, From: ago(3200 * time.Millisecond)}},
		Causes: []status.Cause{{Source: "For webs", Namespace: k.Namespace, Name: k.Name,
			ResourceVersion: "48213379", Count: 3, First: ago(2 * time.Second), Last: ago(time.Second)}},
	}
	began := ago(10 * time.Minute)
	for i := range 6 {
		began = began.Add(time.Duration(1<<(3*i)) * time.Millisecond)
		s.Runs = append(s.Runs, sampleRun(k, began, i))
	}
	s.Runs = append(s.Runs, sampleRun(k, ago(3300*time.Millisecond), 7))
	return s
}

func sampleRun(k status.KeySummary, began time.Time, i int) status.Run {
	r := status.Run{Started: began, Took: time.Duration(1+13*i) * time.Millisecond, Result: "success",
		Requests: 2,
		Causes: []status.Cause{
			{Source: "For webs", Namespace: k.Namespace, Name: k.Name, ResourceVersion: "48213370", Count: 1},
			{Source: "Owns pods", Namespace: k.Namespace, Name: k.Name + "-abcde", ResourceVersion: "48213371",
				Count: 2}},
		Waits: []status.Wait{{For: status.WaitQueue, From: began.Add(-300 * time.Microsecond), To: began}},
		Writes: []status.Write{
			{At: began, Took: 2 * time.Millisecond, Verb: "create", Resource: "pods", Namespace: k.Namespace,
				Name: k.Name + "-x", Code: 201, ResourceVersion: "48213377"},
			{At: began, Took: 3 * time.Millisecond, Verb: "patch", Resource: "webs", Subresource: "status",
				Namespace: k.Namespace, Name: k.Name, Code: 200, ResourceVersion: "48213378",
				Paths: []string{"status.conditions.status", "status.observedGeneration", "status.replicas"}}},
	}
	if i >= 1 && i < 6 {
		r.Result = "error"
		r.Error = &status.Error{Type: "*errors.StatusError", Reason: "Conflict", Code: 409}
		r.Writes[1].Error, r.Writes[1].Code, r.Writes[1].ResourceVersion = r.Error, 409, ""
		r.Waits = append([]status.Wait{{For: status.WaitBackoff,
			From: began.Add(-time.Duration(1<<(3*i)) * time.Millisecond * 8 / 10),
			To:   r.Waits[0].From}}, r.Waits...)
	}
	return r
}
