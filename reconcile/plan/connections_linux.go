package plan

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// connections are the addresses that the processes of a group are connected to by TCP, other than the fork and each
// other. A process that leaves the group is not seen.
type connections struct {
	group  int
	fork   netip.AddrPort
	found  map[netip.AddrPort]bool
	looked bool // at a process
	closed bool // a process does not let this one look

	proc    string // the folder /proc
	entries func(folder string) ([]os.DirEntry, error)
}

func newConnections(group int, fork *net.TCPAddr) *connections {
	at := fork.AddrPort()
	return &connections{group: group, fork: netip.AddrPortFrom(at.Addr().Unmap(), at.Port()),
		found: make(map[netip.AddrPort]bool), proc: "/proc", entries: os.ReadDir}
}

// all returns the addresses, in order.
func (c *connections) all() (addresses []string) {
	for _, address := range slices.SortedFunc(maps.Keys(c.found), netip.AddrPort.Compare) {
		addresses = append(addresses, address.String())
	}
	return addresses
}

// unknown says why not all has been seen, if a process could not be looked at.
func (c *connections) unknown() string {
	switch {
	case !c.looked:
		return "the process had ended before, or does not let this one look"
	case c.closed:
		return "a process that the program has started does not let this one look"
	}
	return ""
}

// look adds what is connected at this moment. What is not there any more belongs to a process that has ended.
func (c *connections) look() {
	sockets := map[string]bool{}
	stats, _ := filepath.Glob(filepath.Join(c.proc, "[0-9]*/stat")) // the pattern is a good one
	for _, stat := range stats {
		if !c.isOf(stat) {
			continue
		}
		files := filepath.Join(filepath.Dir(stat), "fd")
		entries, err := c.entries(files)
		if err != nil {
			// The files of a process that has ended may be another user's until its parent has seen that.
			c.closed = c.closed || errors.Is(err, fs.ErrPermission) && c.isOf(stat)
			continue
		}
		c.looked = true
		for _, entry := range entries {
			to, _ := os.Readlink(filepath.Join(files, entry.Name()))
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	if len(sockets) == 0 {
		return
	}
	var all []connection
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} { // the network is that of this process
		data, _ := os.ReadFile(table)
		all = append(all, connectionsOf(data, sockets)...)
	}
	c.add(all)
}

// isOf reports whether a process is of the group, and has not ended.
func (c *connections) isOf(stat string) bool {
	data, err := os.ReadFile(stat)
	return err == nil && groupOf(data) == c.group && !hasEnded(data)
}

// hasEnded reports whether a process has ended, and its parent has not seen that yet, by its state: the first field
// after the name.
func hasEnded(stat []byte) bool {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(fields) > 0 && bytes.ContainsAny(fields[0], "ZXx")
}

// add adds the remote addresses of connections, but for the fork's, those of clients of the group's servers, and those
// of the group's own sockets.
func (c *connections) add(all []connection) {
	listens, local := map[uint16]bool{}, map[uint16]bool{}
	for _, one := range all {
		local[one.local.Port()] = true
		if one.listens {
			listens[one.local.Port()] = true
		}
	}
	for _, one := range all {
		own := one.remote.Addr().IsLoopback() && local[one.remote.Port()]
		if !one.listens && !listens[one.local.Port()] && one.remote != c.fork && !own {
			c.found[one.remote] = true
		}
	}
}

// groupOf returns the group of a process, by /proc/PID/stat: the third field after the name, which stands in brackets.
func groupOf(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return 0
	}
	group, err := strconv.Atoi(string(fields[2]))
	if err != nil {
		return 0
	}
	return group
}

// connection is a line of /proc/net/tcp.
type connection struct {
	local, remote netip.AddrPort
	listens       bool
}

const listening = "0A" // of the states of a socket

// connectionsOf returns those lines of /proc/net/tcp that are of the sockets.
func connectionsOf(table []byte, sockets map[string]bool) (all []connection) {
	lines := bufio.NewScanner(bytes.NewReader(table))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || !sockets[fields[9]] {
			continue
		}
		local, err1 := addressOf(fields[1])
		remote, err2 := addressOf(fields[2])
		if err1 == nil && err2 == nil {
			all = append(all, connection{local, remote, fields[3] == listening})
		}
	}
	return all
}

// addressOf reads an address such as 0100007F:1F90: words of 32 bits, each as this machine has it, and the port.
func addressOf(s string) (netip.AddrPort, error) {
	words, port, _ := strings.Cut(s, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil || len(words)%8 != 0 {
		return netip.AddrPort{}, fmt.Errorf("no address: %s", s)
	}
	var data []byte
	for word := range slices.Chunk([]byte(words), 8) {
		n, err := strconv.ParseUint(string(word), 16, 32)
		if err != nil {
			return netip.AddrPort{}, err
		}
		data = binary.NativeEndian.AppendUint32(data, uint32(n))
	}
	ip, ok := netip.AddrFromSlice(data)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("no address: %s", s)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), nil
}
