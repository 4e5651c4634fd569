package sharding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestWrongOptionsAreNamed(t *testing.T) {
	right := Options{
		REST: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "default", Name: "shards", Identity: "a",
	}
	_, err := New(right)
	require.NoError(t, err)
	for want, change := range map[string]func(*Options){
		"Options.REST is nil":   func(o *Options) { o.REST = nil },
		`Options.Namespace ""`:  func(o *Options) { o.Namespace = "" },
		`Options.Name "A b"`:    func(o *Options) { o.Name = "A b" },
		"Options.Identity":      func(o *Options) { o.Identity = "a\nb" },
		`Options.ByKeyIn "A"`:   func(o *Options) { o.ByKeyIn = []string{"big", "A"} },
		"Options.Slices":        func(o *Options) { o.Slices = -1 },
		"Options.LeaseDuration": func(o *Options) { o.LeaseDuration = -time.Second },
		"Options.RetryPeriod":   func(o *Options) { o.RetryPeriod = 6 * time.Second },
		// The next owner waits for LeaseDuration on a fast clock, and this one may work for the others on a slow one:
		// 10.5 s + 3.15 s against 14.25 s as they are, and 12.075 s + 3.15 s here.
		"the next owner could start before this one has stopped": func(o *Options) {
			o.RenewDeadline = 11500 * time.Millisecond
		},
	} {
		o := right
		change(&o)
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
}
