package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// TestTimeline draws a key from its first wait to its next run.
func TestTimeline(t *testing.T) {
	run := status.Run{Started: ago(10 * time.Second), Took: time.Second, Result: "success",
		Waits: []status.Wait{{For: status.WaitQueue, From: ago(11 * time.Second),
			To: ago(10 * time.Second)}}}
	failed := status.Run{Started: ago(5 * time.Second), Took: time.Second, Result: "error",
		Waits: []status.Wait{{For: status.WaitBackoff, From: ago(8 * time.Second),
			To: ago(5 * time.Second)}}}
	k := status.Key{At: sampleTime, State: status.KeyBackingOff, Since: ago(4 * time.Second),
		Next: sampleTime.Add(time.Second)}
	tl := timelineOf(k, []keyRun{{Run: run, Number: 1}, {Run: failed, Number: 2}})
	var kinds, titles []string
	x := 0
	for _, b := range tl.Bars {
		require.Equal(t, x, b.X, "one bar follows the other")
		x += b.Width + 1
		kinds, titles = append(kinds, b.Kind), append(titles, b.Title)
	}
	require.Equal(t, []string{"queue", "run", "idle", "backoff", "failed", "backoff", "pending"}, kinds)
	require.Equal(t, []string{"Queued: 1.0 s", "Run at 09:26:43.000: 1.0 s", "Nothing to do: 1.0 s",
		"Backing off: 3.0 s",
		"Failed run at 09:26:48.000: 1.0 s", "Backing off: 4.0 s", "Next run in: 1.0 s"}, titles)
	require.Equal(t, tl.Bars[0].Width, tl.Bars[1].Width)
	require.Greater(t, tl.Bars[3].Width, tl.Bars[1].Width)
	require.Equal(t, []string{"run", "failed", "queue", "backoff", "idle", "pending"}, kindsOf(tl.Legend()))
	require.Equal(t, k.Next, tl.To, "the last bar ends with the next run")
	require.Empty(t, timelineOf(status.Key{At: sampleTime}, nil).Bars)
}

func kindsOf(legend []barKind) (kinds []string) {
	for _, k := range legend {
		kinds = append(kinds, k.Kind)
	}
	return kinds
}

func TestDurationsAreShort(t *testing.T) {
	for want, d := range map[string]time.Duration{"0 s": 0, "1 µs": 1, "999 µs": 999 * time.Microsecond,
		"1.5 ms": 1500 * time.Microsecond, "42 ms": 42 * time.Millisecond, "9.9 s": 9990 * time.Millisecond,
		"59 s": 59 * time.Second, "1 min": time.Minute, "1 min 1 s": 61 * time.Second, "2 h 5 min": 125 * time.Minute,
		"3 d": 72 * time.Hour, "400 d 1 h": 9601 * time.Hour} {
		require.Equal(t, want, duration(d))
	}
	require.Equal(t, "1,234,567", count(1234567))
	require.Equal(t, "backing off", words(status.KeyBackingOff))
	require.Equal(t, "requeue after", words("requeue_after"))
}

// TestOwners: the owner of a key leads to its page if a controller of the Manager has its kind.
func TestOwners(t *testing.T) {
	k := status.Key{Objects: []status.Object{
		{Owner: &status.Owner{Kind: "Pod", Name: "a"}}, {},
		{Owner: &status.Owner{Group: "apps", Kind: "Pod", Name: "b"}}}}
	require.Equal(t, []owner{{*k.Objects[0].Owner, "db"}, {*k.Objects[2].Owner, ""}}, ownersOf(k, sampleStatus()))
}
