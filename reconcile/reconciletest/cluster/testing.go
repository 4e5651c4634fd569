package cluster

import (
	"context"
	"sync"
	"testing"
)

// shared starts the control plane that all tests of this process use. It ends when the process does.
var shared = sync.OnceValues(func() (*Cluster, error) { return Start(context.Background(), Options{}) })

// Shared returns the control plane of this test process. Tests keep out of each other's way with [Cluster.Namespace]
// and leave the components alone.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Private returns a control plane that is the test's own, for tests that stop or kill components. It ends with the
// test.
func Private(t testing.TB, o ...Options) *Cluster {
	t.Helper()
	var options Options
	if len(o) > 0 {
		options = o[0]
	}
	c, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	c.private = true
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
