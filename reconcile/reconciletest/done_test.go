package reconciletest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWhatIsDone says so in a condition, in its own phase, or by a time that is over.
func TestWhatIsDone(t *testing.T) {
	done := func(status map[string]any) bool {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": "Backup", "status": status}}
		return isDone(item{o, &Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com",
			Version: "v1", Resource: "backups"}}})
	}
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, word := range []string{"Complete", "completed", "Succeeded", "Finished", "Done", "Ended", "Expired"} {
		condition := map[string]any{"type": word, "status": "True"}
		require.True(t, done(map[string]any{"conditions": []any{condition}}), word)
		condition["status"] = "False"
		require.False(t, done(map[string]any{"conditions": []any{condition}}), word)
		require.True(t, done(map[string]any{"phase": word}), word)
		require.True(t, done(map[string]any{"backupState": word}), word)
		require.False(t, done(map[string]any{"syncState": word}), word)
	}
	for _, word := range []string{"Processed", "Executed"} {
		require.True(t, done(map[string]any{"phase": word}), word)
		condition := map[string]any{"type": word, "status": "True"}
		require.False(t, done(map[string]any{"conditions": []any{condition}}), word)
	}
	for _, name := range []string{"completionTime", "completionTimestamp", "endTime", "finishTime", "finishedAt",
		"terminationTime"} {
		require.True(t, done(map[string]any{"phase": "Errored", name: in(-time.Minute)}), name)
		require.False(t, done(map[string]any{name: in(time.Hour)}), name)
		require.False(t, done(map[string]any{name: "later"}), name)
	}
	require.False(t, done(map[string]any{"phase": "Running", "startTime": in(-time.Minute)}))
}
