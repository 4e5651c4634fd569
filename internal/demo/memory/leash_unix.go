//go:build unix && !linux

package main

import "syscall"

// leash gives a process a group of its own, so that Ctrl-C ends the demo and the demo ends its processes. If the demo
// itself is killed, they stay.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
