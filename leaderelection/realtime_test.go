package leaderelection

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// TestElectorsUnderLoadInRealTime has three electors contend while others ask them everything at once, on a clock that
// does not stand still between two readings of it. Its durations are long, so that no work outlives its tenure on a
// machine that is busy with something else.
func TestElectorsUnderLoadInRealTime(t *testing.T) {
	s := newServer()
	brief := ours(func(c *Config) {
		c.LeaseDuration, c.RenewDeadline = 40*time.Second, 20*time.Second
		c.RetryPeriod, c.StopGrace = 100*time.Millisecond, 15*time.Second
	})
	var all []*process
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, spawn(t, brief, s.link(name), func(p *process) {
			// then the next one leads
			p.act = func(ctx context.Context) error { lifecycle.Sleep(ctx, 200*time.Millisecond); return nil }
		}))
	}
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 2 {
		for _, p := range all {
			asking.Go(func() {
				refused := 0
				for {
					select {
					case <-stop:
						return
					default:
					}
					e := p.elector.Load()
					if e == nil {
						continue
					}
					if stats := e.Stats(); stats.Leading != (stats.Remaining > 0) {
						t.Errorf("leading: %t, with %s left", stats.Leading, stats.Remaining)
					}
					if err := e.Check(nil); err != nil {
						t.Error(err)
					}
					e.Token()
					_ = e.Ready()
					e.SetHandover("a word")
					e.Handover()
					wire := roundTrip(func(req *http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
					})
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/api/v1/pods", nil)
					response, err := e.Fence(wire).RoundTrip(req)
					switch {
					case err == nil:
						_ = response.Body.Close()
					case errors.Is(err, ErrNotLeading):
						refused++
					default:
						t.Error(err)
					}
					time.Sleep(50 * time.Microsecond)
				}
			})
		}
	}
	tenures := func() (n int) {
		for _, p := range all {
			n += len(p.tenures())
		}
		return n
	}
	began := time.Now()
	for i := 0; time.Since(began) < 4400*time.Millisecond || tenures() < 2 && time.Since(began) < time.Minute; i++ {
		time.Sleep(200 * time.Millisecond)
		if i%2 == 0 && tenures() > 0 { // so there is a Lease
			annotate(s)
		}
	}
	s.edit(wipe) // whoever leads finds that out
	time.Sleep(200 * time.Millisecond)
	close(stop)
	asking.Wait()
	require.Zero(t, overlap(all...))
	require.Greater(t, tenures(), 1)
	for _, p := range all {
		p.stop()
	}
}
