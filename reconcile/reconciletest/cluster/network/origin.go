package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// origin returns the end that has dialed a connection.
func (n *Network) origin(accepted *net.TCPConn) End {
	n.starting.Lock() // a process that has dialed has started, and is known when those that start are
	ends := n.running()
	n.starting.Unlock()
	socket := socketOf(accepted.RemoteAddr().(*net.TCPAddr), accepted.LocalAddr().(*net.TCPAddr))
	if socket == "" || owns(os.Getpid(), socket) {
		return Outside
	}
	for pid, end := range ends {
		if owns(pid, socket) {
			return end
		}
	}
	for pid, group := range groups() { // children
		if end, ok := ends[group]; ok && pid != group && owns(pid, socket) {
			return end
		}
	}
	return Outside
}

// running returns the processes that run, by PID, and forgets the others.
func (n *Network) running() map[int]End {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.processes = slices.DeleteFunc(n.processes, func(k known) bool {
		select {
		case <-k.ended:
			return true
		default:
			return false
		}
	})
	ends := map[int]End{}
	for _, k := range n.processes {
		ends[k.pid] = k.end
	}
	return ends
}

// socketOf returns what /proc/PID/fd shows for the socket that has one address and is connected to another one. It is
// empty if there is none any more.
func socketOf(local, remote *net.TCPAddr) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // the second one has IPv4 in IPv6
		content, _ := os.ReadFile(table)
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && strings.HasSuffix(fields[1], inTable(local)) &&
				strings.HasSuffix(fields[2], inTable(remote)) && fields[9] != "0" {
				return "socket:[" + fields[9] + "]"
			}
		}
	}
	return ""
}

// inTable is an address as the kernel writes it.
func inTable(a *net.TCPAddr) string {
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a.IP.To4()), a.Port)
}

// owns reports whether a process has a socket.
func owns(pid int, socket string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir) // the process may have ended
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		return target == socket
	})
}

// groups returns the process group of each process, by PID.
func groups() map[int]int {
	found := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		content, _ := os.ReadFile(path)
		name := strings.LastIndex(string(content), ")")
		fields := strings.Fields(string(content[name+1:])) // state, parent, group
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) < 3 || err != nil {
			continue
		}
		if group, err := strconv.Atoi(fields[2]); err == nil {
			found[pid] = group
		}
	}
	return found
}
