//go:build !linux

package processnode

import (
	"errors"
	"fmt"
	"runtime"
)

func givesAddresses() error {
	return fmt.Errorf("%s gives the pods no addresses of their own, only Linux does: %w", runtime.GOOS,
		errors.ErrUnsupported)
}
