package informer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// In a synctest bubble time stands still while anything runs, so two readings of the clock in one critical section are
// the same there, and what falls between them is never seen. These tests run in real time, next to each other; each
// ends by itself unless a wake-up is lost.
func TestInRealTime(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"rotation": rotationInRealTime, "quarantine": quarantineInRealTime, "gate": gateInRealTime,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// soon is far more than anything here takes, also on a busy machine.
const soon = time.Minute

// rotationInRealTime lets a rotation be driven by a timer as an informer does it, and take turns that last longer than
// they are apart. No turn may be early, and when none is due the timer is set for the next. It goes on for a second,
// and until one of the keys has had three turns, for which a busy machine may take longer.
func rotationInRealTime(t *testing.T) {
	const period, keys = 100 * time.Millisecond, 1000
	r := newRotation(period)
	all := func() (all []Key) {
		for i := range keys {
			all = append(all, named(fmt.Sprint("p", i)))
		}
		return all
	}
	had := map[Key][]time.Time{}
	timer, stuck := time.NewTimer(0), time.NewTimer(soon)
	defer timer.Stop()
	defer stuck.Stop()
	calls := 0
	for began := time.Now(); time.Since(began) < time.Second || len(had[named("p0")]) < 3; calls++ {
		select {
		case <-timer.C:
		case <-stuck.C:
			t.Fatal("no turn came")
		}
		now := time.Now()
		for n := 0; ; n++ {
			due := r.due
			took, ok := r.next(now, all)
			if !ok {
				break
			}
			require.False(t, due.After(now), "a turn is %v early", due.Sub(now))
			require.LessOrEqual(t, n, turns+1, "it comes to an end")
			for _, key := range took {
				had[key] = append(had[key], due)
			}
			time.Sleep(rand.N(period / turns))
		}
		require.True(t, r.due.After(now))
		require.LessOrEqual(t, r.due.Sub(now), period/turns)
		timer.Reset(r.due.Sub(now))
		stuck.Reset(soon)
	}
	require.Len(t, had, keys)
	least := soon
	rounds := len(had[named("p0")])
	for key, times := range had {
		require.InDelta(t, rounds, len(times), 1, "%s", key)
		for i := range times[1:] {
			least = min(least, times[i+1].Sub(times[i]))
		}
	}
	require.GreaterOrEqual(t, least, period/turns*turns, "a period lies between two turns of a key")
	t.Logf("%d calls, %d rounds", calls, rounds)
}

// quarantineInRealTime adds objects, one after the other, each of which is refused once. Nothing else happens after
// that: an object whose second try is forgotten never comes.
func quarantineInRealTime(t *testing.T) {
	const pods = 300
	var mu sync.Mutex
	refused := map[string]time.Time{}
	var early []time.Duration
	api := newPodAPI()
	inf := start(t, api, Options[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
		mu.Lock()
		defer mu.Unlock()
		at, again := refused[p.Name]
		if !again {
			refused[p.Name] = time.Now()
			return nil, errors.New("not yet")
		}
		// What is due within the next second is tried with what is due now, so the time says only that a second after
		// the first refusal of all has passed.
		if since := time.Since(refused["p0"]); since < firstRetry || at.IsZero() {
			early = append(early, since)
		}
		return p, nil
	}})
	synced(t, inf)
	for i := range pods {
		api.Create(pod(fmt.Sprint("p", i)))
		time.Sleep(rand.N(8 * time.Millisecond))
	}
	for deadline := time.Now().Add(soon); inf.Len() < pods; time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "%d of %d objects came: %s", inf.Len(), pods, inf.Health())
	}
	require.Zero(t, inf.Health().Rejected)
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, early)
}

// refusing is a server that asks to be left alone for a second when it is first asked, and notes when it is asked.
type refusing struct {
	mu      sync.Mutex
	refused time.Time
	asked   []time.Time
}

func (s *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.asked = append(s.asked, now)
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(&bytes.Buffer{})}
	if s.refused.IsZero() {
		s.refused = now
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "1")
	}
	return resp, nil
}

// gateInRealTime lets many requests come to a gate in the moments in which it closes and opens. None passes before its
// time, and none stays.
func gateInRealTime(t *testing.T) {
	var gate Gate
	server := &refusing{}
	client := gate.Wrap(server)
	ask := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server.example/", nil)
		if err != nil {
			return err
		}
		resp, err := client.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	require.NoError(t, ask())
	errs := make(chan error)
	const askers, each = 20, 10
	for range askers {
		go func() {
			for range each {
				time.Sleep(rand.N(100 * time.Millisecond))
				errs <- ask()
			}
		}()
	}
	stuck := time.After(soon)
	for i := range askers * each {
		select {
		case err := <-errs:
			require.NoError(t, err)
		case <-stuck:
			t.Fatalf("%d requests are still at the gate", askers*each-i)
		}
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	require.Len(t, server.asked, 1+askers*each)
	require.True(t, slices.IsSortedFunc(server.asked, time.Time.Compare))
	require.GreaterOrEqual(t, server.asked[1].Sub(server.refused), time.Second)
}
