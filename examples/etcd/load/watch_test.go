package load

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAMemberThatIsGone has a member that takes connections and says nothing: the watch goes on at another one.
func TestAMemberThatIsGone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	asked := make(chan struct{}, 100)
	l := begin(Options{Endpoints: func() []string {
		asked <- struct{}{}
		return []string{"http://" + listener.Addr().String()}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.watcher.repeat(ctx) }()
	for range 2 {
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("it waits for the first member without an end")
		}
	}
	cancel()
	<-ended
}
