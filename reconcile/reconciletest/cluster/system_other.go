//go:build !unix

package cluster

import (
	"errors"
	"os"
	"os/exec"
)

// The library compiles everywhere, and so must its tests. The control plane is run by Unix signals.

func tryLock(*os.File) (locked bool, err error) {
	return false, errors.New("a test cluster needs a Unix system")
}

func ownGroup(*exec.Cmd) {}
