package status_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// A key that waits for its own write, read from a bundle of another process.
func ExampleWhy() {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	key := status.Key{At: at, Controller: "web", Namespace: "default", Name: "a", State: status.KeyParked,
		Since: at.Add(-2 * time.Second),
		Debts: []status.Debt{{Kind: status.DebtChange, Informer: "pods", Namespace: "default", Name: "a-1",
			ResourceVersion: "1004", Since: at.Add(-2 * time.Second), RelistAt: at.Add(8 * time.Second),
			CacheVersion: "1003", CacheState: "Live"}}}
	why := status.Why(&key, &status.Controller{Name: "web", Workers: 1}, &status.Manager{Stage: status.StageWorking})
	fmt.Println(strings.NewReplacer(": ", ":\n", ". ", ".\n").Replace(why))
	// Output:
	// default/a has waited for 2 s:
	// its last run wrote default/a-1 in pods at version 1004, and the cache of pods is at 1003.
	// If nothing comes within 10 s, the informer lists anew.
}
