package reconcile

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGoneKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone goneKeys
		wanted := func(key Key) bool { return key.Name == "invalid" }
		gone.add(Key{Name: "invalid"}, wanted)
		for i := range 100_000 {
			gone.add(Key{Name: fmt.Sprint(i)}, wanted)
			time.Sleep(time.Minute)
		}
		require.Less(t, len(gone.all()), 2000)
		require.Contains(t, gone.all(), Key{Name: "invalid"})
		require.Contains(t, gone.all(), Key{Name: "99999"})
	})
}
