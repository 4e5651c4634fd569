package plan

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConnectionsAreOfTheGroup has the lines of /proc/net/tcp of a program that is connected to the fork, to a server
// elsewhere, to itself and to a client of its server, and of another program.
func TestConnectionsAreOfTheGroup(t *testing.T) {
	hex := func(ip net.IP, port int) (s string) {
		for i := 0; i < len(ip); i += 4 {
			s += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(ip[i:]))
		}
		return fmt.Sprintf("%s:%04X", s, port)
	}
	self, remote, six := net.IPv4(127, 0, 0, 1).To4(), net.IPv4(10, 1, 2, 3).To4(), net.ParseIP("fd00::1")
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(local, remote, state string, inode int) {
		table += fmt.Sprintf("   0: %s %s %s 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", local,
			remote, state, inode)
	}
	line(hex(self, 8080), hex(net.IPv4zero.To4(), 0), "0A", 1)
	line(hex(self, 50001), hex(self, 6443), "01", 1) // the fork
	line(hex(remote, 50002), hex(remote, 443), "01", 1)
	line(hex(self, 50003), hex(self, 8080), "01", 1)   // itself
	line(hex(self, 8080), hex(self, 50003), "01", 1)   // itself, the other end
	line(hex(self, 8080), hex(remote, 50004), "01", 1) // a client
	line(hex(six, 50005), hex(six, 5432), "02", 1)
	line(hex(self, 50006), hex(self, 8001), "01", 1)  // a proxy on this machine
	line(hex(self, 50007), hex(remote, 444), "01", 2) // another program's
	c := newConnections(1, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443})
	c.add(connectionsOf([]byte(table+"broken\n"), map[string]bool{"1": true}))
	require.Equal(t, []string{"10.1.2.3:443", "127.0.0.1:8001", "[fd00::1]:5432"}, c.all())
}

// TestAProcessThatCannotBeLookedAtIsSaid has this process, which can be, and a group in which there is none.
func TestAProcessThatCannotBeLookedAtIsSaid(t *testing.T) {
	own, err := syscall.Getpgid(0)
	require.NoError(t, err)
	for group, seen := range map[int]bool{own: true, -1: false} {
		c := newConnections(group, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443})
		c.look()
		require.Equal(t, seen, c.unknown() == "")
	}
}

// TestAProcessBesideOthersThatCannotBeLookedAtIsSaid has a group with a process that lets nobody look, one that does,
// and one that has ended.
func TestAProcessBesideOthersThatCannotBeLookedAtIsSaid(t *testing.T) {
	const open, closed, ended, others = "41 (a) S 1 40 40", "42 (b) S 1 40 40", "43 (c) Z 1 40 40", "44 (d) S 1 44 44"
	const ends = "45 (e) S 1 40 40" // while it is looked at
	for name, test := range map[string]struct {
		processes []string
		unknown   string
	}{
		"all":    {[]string{open, ended, others, ends}, ""},
		"one":    {[]string{open, closed, others}, "a process that the program has started does not let this one look"},
		"none":   {[]string{closed}, "the process had ended before, or does not let this one look"},
		"no one": {nil, "the process had ended before, or does not let this one look"},
	} {
		c := newConnections(40, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443})
		c.proc = t.TempDir()
		for _, stat := range test.processes {
			folder := filepath.Join(c.proc, stat[:2])
			require.NoError(t, os.MkdirAll(filepath.Join(folder, "fd"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "stat"), []byte(stat), 0o600))
		}
		c.entries = func(folder string) ([]os.DirEntry, error) {
			switch folder {
			case filepath.Join(c.proc, "41", "fd"):
				return nil, nil
			case filepath.Join(c.proc, "45", "fd"):
				require.NoError(t, os.WriteFile(filepath.Join(c.proc, "45", "stat"), []byte("45 (e) Z 1 40 40"), 0o600))
			}
			return nil, fs.ErrPermission
		}
		c.look()
		require.Equal(t, test.unknown, c.unknown(), name)
	}
}

func TestTheGroupOfAProcess(t *testing.T) {
	require.Equal(t, 40, groupOf([]byte("41 (a (strange) name) S 1 40 40 0 -1")))
	require.Zero(t, groupOf([]byte("41 (x)")))
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	require.NotZero(t, groupOf(stat))
}
