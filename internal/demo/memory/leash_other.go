//go:build !unix

package main

import "syscall"

// leash has no meaning here.
func leash() *syscall.SysProcAttr { return nil }
