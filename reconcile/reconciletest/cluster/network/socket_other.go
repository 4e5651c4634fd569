//go:build !linux

package network

import (
	"errors"
	"fmt"
	"net"
	"runtime"
)

func inodeOf(_, _ *net.TCPAddr) (uint32, error) { return 0, canTell() }

func canTell() error {
	return fmt.Errorf("%s does not tell which process has a socket, only Linux does: %w", runtime.GOOS,
		errors.ErrUnsupported)
}
