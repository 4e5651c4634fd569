package plane

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReservedPortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		p, err := reservePort()
		require.NoError(t, err)
		t.Cleanup(p.release)
		require.False(t, seen[p.number], "port %d was given out twice", p.number)
		seen[p.number] = true
	}
}

func TestPortInUse(t *testing.T) {
	p, err := reservePort()
	require.NoError(t, err)
	_, err = tryPort(p.number)
	require.Error(t, err, "reserved by another control plane")

	p.release()
	q, err := tryPort(p.number)
	require.NoError(t, err, "released")
	q.release()

	stranger, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p.number))
	require.NoError(t, err)
	defer stranger.Close()
	_, err = tryPort(p.number)
	require.Error(t, err, "somebody listens who knows nothing of reservations")
	stranger.Close()
	q, err = tryPort(p.number)
	require.NoError(t, err, "a failed attempt keeps no reservation")
	q.release()
}
