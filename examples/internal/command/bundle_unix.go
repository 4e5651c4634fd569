//go:build unix

package command

import (
	"os"
	"syscall"
)

var bundleSignal os.Signal = syscall.SIGUSR1
