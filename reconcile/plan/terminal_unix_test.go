//go:build unix

package plan

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func openTerminal(t *testing.T) *os.File {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { terminal.Close() })
	return terminal
}
