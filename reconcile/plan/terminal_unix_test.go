//go:build unix

package plan

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestColoursAreForTerminals(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	file, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer file.Close()
	require.False(t, takesColours(file))
	require.False(t, takesColours(&bytes.Buffer{}))
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	require.True(t, takesColours(terminal))
	t.Setenv("TERM", "dumb")
	require.False(t, takesColours(terminal))
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	require.False(t, takesColours(terminal))
}
