package informer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// TestTheRecoveryOfACacheIsLoggedAsLoudlyAsItsLoss: a log of errors alone tells both.
func TestTheRecoveryOfACacheIsLoggedAsLoudlyAsItsLoss(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		log, down := &lines{}, time.Now()
		p.BeforeWatch = func(metav1.ListOptions) error {
			if time.Now().Before(down) {
				return errors.New("down")
			}
			return nil
		}
		runOn(t, inf, klog.New(log))
		synctest.Wait()
		down = time.Now().Add(time.Minute)
		p.Cut()
		time.Sleep(3 * time.Minute)
		require.Equal(t, Live, inf.Health().State)
		var messages []string
		for _, l := range log.all() {
			if l.isError {
				messages = append(messages, l.message)
			}
		}
		require.Equal(t, []string{"The cache does not follow the server", "The cache follows the server again"},
			slices.Compact(messages))
	})
}

// Another goroutine may change the state while the line of the change before is written.
func TestTheLinesOfAStateAreInItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, log := make(chan struct{}), &lines{}
		h := newListWatchHealth(&health{}, whole)
		h.logTo(klog.New(log))
		h.listed(1)
		log.each = func() { <-slow }
		go h.failed(errors.New("down"), "")
		synctest.Wait()
		h.listed(2)
		h.following(2)
		require.Equal(t, Live, h.get().State)
		close(slow)
		synctest.Wait()
		var states []string
		for _, l := range log.all() {
			states = append(states, l.state)
		}
		require.Equal(t, []string{"Live", "Stale", "Live"}, states)
	})
}

// A handler that returns after all does not hide another one that does not.
func TestEachStuckHandlerIsRemembered(t *testing.T) {
	var h health
	var one, other pulse
	running, stuck := make(chan struct{}), errors.New("one does not return")
	h.handlerStuck(&one, running, stuck)
	h.handlerStuck(&other, running, errors.New("the other does not return"))
	h.handlerStuck(&other, running, nil)
	var now Health
	h.count(&now)
	require.Equal(t, stuck, now.StuckHandler)
}

// What befalls many parts at once is logged for some of them, and so is its end, for the same ones.
func TestOfManyPartsTheEndOfEachLossThatWasLoggedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &health{}
		parts, logs := make([]*listWatchHealth, 10*linesPerMinute), make([]lines, 10*linesPerMinute)
		for i := range parts {
			parts[i] = newListWatchHealth(all, part{namespace: fmt.Sprint(i)})
			parts[i].logTo(klog.New(&logs[i]))
			parts[i].listed(1)
		}
		for _, p := range parts {
			p.failed(errors.New("down"), "")
		}
		for _, p := range slices.Backward(parts) {
			p.listed(2)
			p.following(2)
		}
		lost := 0
		for i := range logs {
			var told []string
			for _, l := range logs[i].all() {
				if l.isError {
					told = append(told, l.message)
				}
			}
			if len(told) > 0 {
				lost++
				require.Equal(t, []string{"The cache does not follow the server",
					"The cache follows the server again"}, told)
			}
		}
		require.Equal(t, linesPerMinute, lost)
	})
}
