package wire

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestLongStringsAreCut(t *testing.T) {
	long := strings.Repeat("é", 5000)
	require.LessOrEqual(t, len(Brief("x"+long)), maxQuoted+len("..."))
	require.True(t, utf8.ValidString(Brief("x"+long)))
	require.Equal(t, "é", Brief("é"))
}
