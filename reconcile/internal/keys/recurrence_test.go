package keys

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/internal/diff"
)

// A key remembers the objects that each of its runs writes. Of more than there is room for, those go that it no longer
// writes, then those that it has only created.
func TestWhichWrittenObjectsAreForgotten(t *testing.T) {
	const (
		run          = 10
		first, other = 100, 107 // hashes of objects that are there
		last         = first + maxWrittenObjects - 1
	)
	everyRun := writtenObject{lastRun: run, updates: 1}
	ago := func(runs int) writtenObject { return writtenObject{lastRun: run - runs, updates: 1} }
	for name, test := range map[string]struct {
		other   writtenObject
		id      uint64 // the hash of the new object
		created bool
		goes    uint64
	}{
		"all alike: the new one has the largest hash": {other: everyRun, id: last + 1, goes: last + 1},
		"all alike: another has it":                   {other: everyRun, id: 1, goes: last},
		"one was not written lately":                  {other: ago(3), id: 1, goes: other},
		"one was written two runs ago":                {other: ago(2), id: 1, goes: last},
		"one was only created": {other: writtenObject{lastRun: run, created: true}, id: 1,
			goes: other},
		"one was created and updated": {other: writtenObject{lastRun: run, created: true, updates: 1}, id: 1,
			goes: last},
		"one was updated once":   {other: writtenObject{lastRun: run}, id: 1, goes: last},
		"the new one is created": {other: everyRun, id: 1, created: true, goes: 1},
		"the new one is created, and one was not written lately": {other: writtenObject{lastRun: run - 3}, id: 1,
			created: true, goes: other},
	} {
		t.Run(name, func(t *testing.T) {
			ws := writtenObjects{}
			for id := uint64(first); id <= last; id++ {
				o := everyRun
				ws[id] = &o
			}
			ws[other] = &test.other
			added, isNew := ws.of(test.id, test.created, run)
			require.True(t, isNew)
			require.Len(t, ws, maxWrittenObjects)
			require.NotContains(t, ws, test.goes)
			require.Equal(t, test.goes == test.id, added == nil)
		})
	}
}

// The contested objects that a controller has remembered for longest make room for new ones.
func TestTheOldestContestedObjectsMakeRoom(t *testing.T) {
	var rs contestedObjects
	for id := range uint64(maxContested + 3) {
		rs.noteWrite(id, time.Now())
	}
	for id := range uint64(maxContested + 3) {
		_, remembered := rs.byUID[id]
		require.Equal(t, id >= 3, remembered, id)
	}
}

// A rival is one who undoes what the controller has set last, not what it had set before.
func TestARivalUndoesTheLatestValue(t *testing.T) {
	var r contestedObject
	sets := func(value uint64) (again bool) { return r.ownChanges([]diff.Change{{Path: 1, Now: value}}) }
	undoes := func(value uint64) (only bool) { return r.otherChanges([]diff.Change{{Path: 1, Old: value}}) }
	require.False(t, sets(1))
	require.True(t, undoes(1))
	require.False(t, sets(2), "it is another value")
	require.False(t, undoes(1), "it has not been there any more")
	require.True(t, undoes(2))
	require.True(t, sets(2))
}
