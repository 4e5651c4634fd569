package network

import (
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
	inode, err := inodeOf(accepted.RemoteAddr().(*net.TCPAddr), accepted.LocalAddr().(*net.TCPAddr))
	if err != nil {
		return Outside // the client has closed it
	}
	socket := fmt.Sprintf("socket:[%d]", inode)
	for pid, end := range ends {
		if owns(pid, socket) {
			return end
		}
	}
	if owns(os.Getpid(), socket) {
		return Outside
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
