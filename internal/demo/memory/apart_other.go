//go:build !unix

package main

import "syscall"

// apart has no meaning here.
func apart() *syscall.SysProcAttr { return nil }
