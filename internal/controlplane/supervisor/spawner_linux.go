package supervisor

import (
	"runtime"
	"syscall"
)

// bindToThread keeps the calling goroutine on its thread for good. A child that dieWithParent prepared is killed when
// the thread that started it ends, not when the process does; a thread that Go returned to its pool could end at any
// time.
func bindToThread() { runtime.LockOSThread() }

// dieWithParent has the kernel kill the child when the supervisor is killed itself and so cannot.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
