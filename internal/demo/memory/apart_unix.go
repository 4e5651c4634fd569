//go:build unix

package main

import "syscall"

// apart gives a process a group of its own: Ctrl-C ends the demo, and the demo ends its processes.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
