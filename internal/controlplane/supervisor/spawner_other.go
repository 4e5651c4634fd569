//go:build !linux

package supervisor

import "syscall"

// Only Linux can tie a child's life to its parent's. Elsewhere the supervisor must not be killed with -9.

func bindToThread() {}

func dieWithParent(*syscall.SysProcAttr) {}
