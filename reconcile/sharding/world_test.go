package sharding

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestATableNeverGoesBack: what this replica has written itself is known at once, and an event that was under way
// meanwhile shows the table as it was before. Stats and pauses would take that for two more changes of the owner.
func TestATableNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards, err := New(Options{REST: &rest.Config{Host: "https://localhost"}, Namespace: "default", Name: "shards",
			Identity: "a", Slices: 2})
		require.NoError(t, err)
		o := observer{Shards: shards}
		old := groupOf(2, 2)
		group := old.changed(func(t *table) { t.claim([]int{1}, 1) })
		show := func(t *table, at string, leases map[string]sight) {
			o.observed(world{known: true, table: t, at: version{"table", at}, leases: leases}, nil)
		}
		show(old, "9", map[string]sight{"a": {version: version{"a", "1"}}, "b": {version: version{"b", "2"}}})
		begun := time.Now()
		time.Sleep(time.Minute)
		show(group, "10", map[string]sight{"a": {version: version{"a", "8"}}, "b": {version: version{"b", "2"}}})
		show(old, "9", map[string]sight{"a": {version: version{"a", "8"}}, "b": {version: version{"b", "2"}}})
		require.Equal(t, group.Turn, shards.Stats().Turn)
		require.Equal(t, time.Now(), shards.seen.leases["a"].since)
		require.Equal(t, begun, shards.seen.leases["b"].since, "its Lease is as it was")

		show(old, "1", nil)
		require.Equal(t, group.Turn, shards.Stats().Turn)
		show(nil, "11", nil)
		require.Zero(t, shards.Stats().Members, "somebody has edited it: there is none")
	})
}
