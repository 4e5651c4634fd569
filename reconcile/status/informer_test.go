package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

func TestSize(t *testing.T) {
	for bytes, size := range map[int]string{0: "0 kB", 1: "1 kB", 998_001: "999 kB", 3_400_000: "3.4 MB",
		1_250_000_000: "1.25 GB"} {
		require.Equal(t, size, status.Informer{Bytes: bytes}.Size())
	}
}
