package main

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A look is two requests, for the scale and for the metrics, and a third one if the status changes.
// THERMOSTAT_HPAS=1000 measures so many, of five pods each; the figures contain the API server in memory.
func TestWhatALookCosts(t *testing.T) {
	n := 20
	if text := os.Getenv("THERMOSTAT_HPAS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	inLab(t, 0, func(l *lab) {
		for i := range n {
			name := fmt.Sprintf("app%d", i)
			l.deploy(name, 5)
			l.metrics.set(func() {
				for pod := range 5 {
					l.metrics.pods[fmt.Sprintf("%s-%d", name, pod)] = "500m"
				}
			})
			l.create(hpa(name, 1, 10, with(cpu(50))))
		}
		l.wait(15 * time.Second)
		var requests atomic.Int64
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource != "" { // not discovery
				requests.Add(1)
			}
			return nil
		})
		measure := func(what string, perLook int) {
			const intervals = 4
			requests.Store(0)
			before := cpuTime(t)
			l.wait(intervals * 15 * time.Second)
			t.Logf("%s: %d HPAs, %d requests and %v of CPU in each interval", what, n, requests.Load()/intervals,
				((cpuTime(t) - before) / intervals).Round(time.Millisecond))
			require.EqualValues(t, intervals*perLook*n, requests.Load())
		}
		measure("nothing changes", 2)
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource != "" {
				requests.Add(1)
			}
			if r.Subresource == "scale" { // within the tolerance, so that only the status changes
				usage := fmt.Sprintf("%dm", 480+time.Now().Unix()/15%5*10)
				l.metrics.set(func() {
					for pod := range 5 {
						l.metrics.pods[fmt.Sprintf("%s-%d", r.Name, pod)] = usage
					}
				})
			}
			return nil
		})
		measure("each status changes", 3)
	})
}

func cpuTime(t *testing.T) time.Duration {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
