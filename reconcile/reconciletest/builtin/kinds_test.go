package builtin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKinds(t *testing.T) {
	at := time.Now()
	kinds := Kinds()
	t.Log(time.Since(at))
	for _, k := range kinds {
		t.Log(k.GroupVersionResource, k.Kind, k.ShortNames, len(k.Discovery))
	}
	require.NotEmpty(t, kinds)
}
