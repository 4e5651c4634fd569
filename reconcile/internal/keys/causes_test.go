package keys

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

func TestCausesSayWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cs Causes
		began := time.Now()
		cs.add("For x", parent, "1", began.UnixNano())
		cs.add("For x", parent, "2", began.Add(time.Minute).UnixNano())
		require.Equal(t, []status.Cause{{Source: "For x", Namespace: parent.Namespace, Name: parent.Name,
			ResourceVersion: "2", Count: 2, First: began.Local(),
			Last: began.Add(time.Minute).Local()}}, cs.list())
		for i := range 5 {
			cs.add(fmt.Sprint("source ", i), parent, "", 0)
		}
		require.Equal(t, "[For x default/parent@2 (2 times) source 0 default/parent source 1 default/parent source "+
			"2 default/parent] and 2 more", cs.String())
	})
}

// BenchmarkNote is what it costs to name a key: one that waits, and one that is reconciled each time, its begin and end
// included.
func BenchmarkNote(b *testing.B) {
	t := newTable(false, defaultHistory)
	keys := make([]Key, 10_000)
	for i := range keys {
		keys[i] = Key{Namespace: "default", Name: fmt.Sprint("object-", i)}
	}
	b.Run("waiting", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			t.Named(keys[i%len(keys)], "For objects", keys[i%len(keys)], "7",
				Sighting{WriteID: WriteID{"u", "7"}})
		}
		b.ReportAllocs()
	})
	b.Run("reconciled", func(b *testing.B) {
		w := &Turn{}
		for i := 0; b.Loop(); i++ {
			k := keys[i%len(keys)]
			t.Named(k, "For objects", k, "7", Sighting{WriteID: WriteID{"u", "7"}})
			r := &Run{Turn: w, Key: k}
			t.Begin(r)
			t.End(r, Outcome{Result: "success"}, time.Now())
		}
		b.ReportAllocs()
	})
}
