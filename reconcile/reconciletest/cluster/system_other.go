//go:build !unix

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// The library compiles everywhere, and so must its tests. The control plane is run by Unix signals.

func tryLock(*os.File) (locked bool, err error) {
	return false, fmt.Errorf("a cluster needs a Unix system: %w", errors.ErrUnsupported)
}

func ownGroup(*exec.Cmd) {}
