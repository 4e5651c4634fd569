package keys

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGoneKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone Gone
		wanted := func(key Key) bool { return key.Name == "invalid" }
		gone.Add(Key{Name: "invalid"}, time.Hour, wanted)
		for i := range 100_000 {
			gone.Add(Key{Name: fmt.Sprint(i)}, time.Hour, wanted)
			time.Sleep(time.Minute)
		}
		require.Less(t, len(gone.All()), 2000)
		require.Contains(t, gone.All(), Key{Name: "invalid"})
		require.Contains(t, gone.All(), Key{Name: "99999"})
	})
}
