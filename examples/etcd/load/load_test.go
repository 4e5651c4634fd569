package load

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// TestReads has reads that are right, and those that are not.
func TestReads(t *testing.T) {
	r := newRegister("load/01").pick(1)
	found := func(value string) []*mvccpb.KeyValue {
		return []*mvccpb.KeyValue{{Value: []byte(value), ModRevision: 7}}
	}
	_, _, wrong := r.compare(r.atLeast(), nil)
	require.Empty(t, wrong, "nothing was written yet")
	r.raise(2)
	before := r.atLeast()
	value, revision, wrong := r.compare(before, found("3"))
	require.Empty(t, wrong, "a write without an answer has been applied")
	require.EqualValues(t, 3, value)
	require.EqualValues(t, 7, revision)
	_, _, wrong = r.compare(before, found("2"))
	require.Empty(t, wrong, "a read that began before the other one ended")
	_, _, wrong = r.compare(r.atLeast(), found("2"))
	require.Equal(t, "load/01/00000 was read as 2, after 3 had been acknowledged or read", wrong)
	_, _, wrong = r.compare(r.atLeast(), nil)
	require.NotEmpty(t, wrong, "the key is lost")
}

// TestGaps counts requests by second, and finds the longest time without one that succeeded.
func TestGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := begin(Options{})
		for range 3 {
			time.Sleep(600 * time.Millisecond)
			l.count(true, nil, "")
		}
		time.Sleep(2 * time.Second)
		l.count(true, errors.New("no leader"), "")
		l.count(false, nil, "")
		require.Equal(t, []Second{{Writes: 1}, {Writes: 2}, {}}, l.Seconds())
		time.Sleep(time.Second)
		report := l.Report()
		require.Equal(t, 3, report.Writes.Done)
		require.Equal(t, 1, report.Writes.Failed)
		require.Equal(t, 3*time.Second, report.Writes.Gap, "which has not ended")
		require.Equal(t, began.Add(1800*time.Millisecond), report.Writes.GapAt)
		require.Equal(t, 3800*time.Millisecond, report.Reads.Gap)
		require.Equal(t, report, l.Lap())
		time.Sleep(time.Second)
		l.count(true, nil, "")
		lap := l.Lap()
		require.Equal(t, 1, lap.Writes.Done)
		require.Zero(t, lap.Writes.Failed)
		require.Equal(t, 4*time.Second, lap.Writes.Gap, "which began in the lap before")
	})
}

// TestResume rests for an hour, which is no gap.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(Options{Endpoints: func() []string { return nil }})
		l.run(t.Context())
		time.Sleep(time.Second)
		l.count(true, nil, "")
		time.Sleep(2 * time.Second)
		require.Equal(t, 2*time.Second, l.Stop().Writes.Gap)
		time.Sleep(time.Hour)
		require.Equal(t, 2*time.Second, l.Lap().Writes.Gap)
		l.Resume(t.Context())
		time.Sleep(time.Second)
		require.Equal(t, 3*time.Second, l.Report().Writes.Gap)
		require.Equal(t, 3*time.Second, l.Lap().Writes.Gap)
		l.count(true, nil, "")
		time.Sleep(time.Second)
		require.Equal(t, 3*time.Second, l.Stop().Writes.Gap)
	})
}
