package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The library's own frames are not the user's, whichever of its rooms they are in.
func TestWhereInUserCode(t *testing.T) {
	frames := func(functions ...string) string {
		stack := "goroutine 7 [running]:"
		for _, f := range functions {
			stack += "\n" + f + "(0x1)\n\t/src/file.go:12 +0x34"
		}
		return stack
	}
	const ours = "github.com/thermostat-go/thermostat/"
	require.Equal(t, "app.find file.go:12", WhereInUserCode(frames(
		ours+"reconcile/internal/writes.(*tracker).RoundTrip", ours+"informer/internal/wire.read",
		ours+"reconcile/events.(*Recorder).Event", "k8s.io/client-go/rest.(*Request).Do",
		"example.com/app.find", "example.com/app.main")))
	require.Empty(t, WhereInUserCode(frames(ours+"reconcile.(*worker).call")))
	require.Equal(t, "replicaset.scale file.go:12", WhereInUserCode(frames(ours+"examples/replicaset.scale")))
}

func TestAGoroutineIsFoundByItsID(t *testing.T) {
	require.Contains(t, StackOfGoroutine(GoroutineID()), "TestAGoroutineIsFoundByItsID")
	require.Equal(t, "not found", StackOfGoroutine("0"))
}
