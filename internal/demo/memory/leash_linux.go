package main

import "syscall"

// leash gives a process a group of its own, so that Ctrl-C ends the demo and the demo ends its processes; and it lets
// the kernel end them if the demo itself is killed.
func leash() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
