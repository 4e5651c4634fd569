//go:build unix

package cluster

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// tryLock takes a lock that ends with the file, or with this process.
func tryLock(file *os.File) (locked bool, err error) {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}

// ownGroup keeps a Ctrl-C at the terminal from a command.
func ownGroup(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
