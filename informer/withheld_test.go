package informer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

// unnamed makes a pod that cannot be decoded, and whose name cannot be read either.
func unnamed(name string) func(string, []byte) []byte {
	return func(of string, encoded []byte) []byte {
		if of != name {
			return encoded
		}
		return []byte(`{"metadata":{"name":7},"spec":8}`)
	}
}

// One item without a readable name may be any object, so a list that has one deletes nothing. The cache says so, and is
// listed again, at a measured pace, until a list can be read.
func TestACacheThatKeepsWhatMayBeGoneIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		server := &answers{list: func() []byte {
			return wiretest.JSONList(podList("1", podAt("a", "1"), podAt("b", "1"),
				podAt("c", "1")), nil)
		}}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		runOn(t, inf, klog.New(log))
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State)

		broken := func() []byte {
			return wiretest.JSONList(podList("5", podAt("a", "1"), podAt("c", "1")),
				unnamed("c"))
		}
		server.serve(broken)
		list := inf.Relist(metav1.NamespaceAll, nil)
		synctest.Wait()
		require.Equal(t, list, inf.Health().Listed)
		require.Equal(t, []string{"a", "b", "c"}, names(inf), "any of them may be the one")
		require.Equal(t, Stale, inf.Health().State)
		require.ErrorContains(t, inf.Health().LastError, "so 2 that it did not name are kept")
		require.ErrorContains(t, inf.Fresh(metav1.NamespaceAll), "may have been deleted")
		server.serve(broken)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, Stale, inf.Health().State, "a watch that lives is not enough")
		whole := func() []byte { return wiretest.JSONList(podList("9", podAt("a", "1"), podAt("c", "1")), nil) }
		asked := server.serve(whole)
		require.Contains(t, asked, "LIST")
		lists := slices.DeleteFunc(asked, func(request string) bool { return request != "LIST" })
		require.Less(t, len(lists), 45, "some 26 are expected, a WATCH for each besides")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		for inf.Health().State == Stale && errors.Is(inf.Health().LastError, errSilent) {
			time.Sleep(time.Second) // a watch of this server, which never speaks, has just been replaced
		}
		require.Equal(t, []string{"a", "c"}, names(inf))
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		require.NoError(t, inf.Fresh(metav1.NamespaceAll))
		server.serve(whole)
		time.Sleep(4 * time.Minute)
		require.NotContains(t, server.serve(whole), "LIST")
		require.NoError(t, calmly(log.all()))
	})
}

// The list after such a list does not depend on how soon the store has what was listed.
func TestACacheThatKeepsWhatMayBeGoneIsListedAgainHoweverSlowItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answers{list: func() []byte {
			return wiretest.JSONList(podList("1", podAt("a", "1"), podAt("b", "1")), nil)
		}}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		_, err = inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Type == Updated {
				time.Sleep(time.Minute)
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		server.serve(func() []byte {
			return wiretest.JSONList(podList("5", podAt("a", "5"), podAt("c", "1")), unnamed("c"))
		})
		inf.Relist(metav1.NamespaceAll, nil)
		time.Sleep(time.Minute - time.Second)
		require.Equal(t, 2, inf.Health().Lists, "the store does not have the list yet")
		server.serve(func() []byte { return wiretest.JSONList(podList("9", podAt("a", "5")), nil) })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a"}, names(inf))
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
	})
}

// Where nothing is kept that the list did not name, nothing is withheld: one broken object does not make a cache
// useless.
func TestABrokenNameAloneDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answers{list: func() []byte {
			return wiretest.JSONList(podList("5", podAt("a", "1"), podAt("c", "1")),
				unnamed("c"))
		}}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		inf.Relist(metav1.NamespaceAll, nil)
		synctest.Wait()
		require.Equal(t, []string{"a"}, names(inf))
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		require.NoError(t, inf.Fresh(metav1.NamespaceAll))
		time.Sleep(4 * time.Minute)
		require.Equal(t, 2, inf.Health().Lists)
	})
}

// A body may end with its request only, and not when it is closed.
func TestAWatchEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answers{list: func() []byte { return wiretest.JSONList(podList("1", podAt("a", "1")), nil) }}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		require.Contains(t, server.serve(server.list)[2:], "WATCH 1", "a silent watch is followed by another one")
		list := inf.Relist(metav1.NamespaceAll, nil)
		synctest.Wait()
		require.Equal(t, list, inf.Health().Listed)
	})
}

// deaf is a body that heeds neither its request nor Close, until it is released.
type deaf struct{ released chan struct{} }

func (d deaf) Read([]byte) (int, error) { <-d.released; return 0, io.EOF }
func (d deaf) Close() error             { return nil }

func TestAReflectorThatDoesNotMoveIsSeenFromOutside(t *testing.T) {
	for _, synced := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log := &lines{}
			d := deaf{make(chan struct{})}
			first := true
			client := podsOver(t, roundTripper(func(r *http.Request) (*http.Response, error) {
				watching := r.URL.Query().Get("watch") != ""
				if watching == synced && first {
					first = false
					return &http.Response{StatusCode: http.StatusOK, Request: r, Body: d, Header: http.Header{}}, nil
				}
				if watching {
					return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(never{r.Context()}),
						Header: http.Header{}}, nil
				}
				return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{},
					Body: io.NopCloser(bytes.NewReader(wiretest.JSONList(podList("1", podAt("a", "1")), nil)))}, nil
			}))
			inf, err := New[*corev1.Pod](client, Options[*corev1.Pod]{DisableWatchList: true})
			require.NoError(t, err)
			runOn(t, inf, klog.New(log))
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			h := inf.Health()
			require.ErrorIs(t, h.LastError, errStuck)
			require.ErrorContains(t, h.LastError, "transport")
			require.Equal(t, map[bool]State{true: Stale, false: Failed}[synced], h.State)
			close(d.released)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
			require.NoError(t, calmly(log.all()))
		})
	}
}

// A cache into which nothing is put does not follow the server either.
func TestAStoreThatDoesNotMoveIsSeenFromOutside(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		blocked, once := make(chan struct{}), true
		_, err := inf.AddHandler(func(e Event[*corev1.Pod]) {
			if e.Type == Updated && once {
				once = false
				<-blocked
			}
		}, HandlerOptions{Inline: true})
		require.NoError(t, err)
		run(t, inf)
		synctest.Wait()
		p.Update("default", "a", func(*corev1.Pod) {})
		time.Sleep(5 * time.Minute)
		require.Equal(t, Stale, inf.Health().State)
		require.ErrorContains(t, inf.Health().LastError, "inline handler")
		close(blocked)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, Live, inf.Health().State, "%s", inf.Health())
		healed(t, p, inf, told)
	})
}

// The watchdog ends with what it watches.
func TestNobodyWatchesAnInformerThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var p pulse
		p.does(asking)
		calls := 0
		p.watch(ctx, "reflector", func(error) { calls++ })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, 1, calls)
		p.does(asking)
		cancel()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, calls)
	})
}
