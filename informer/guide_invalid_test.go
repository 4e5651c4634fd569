package informer

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

// halves serves lists of single pods, and what it is told to as their metadata.
type halves struct {
	metadata *answers

	mu sync.Mutex
	// Guarded by mu. versions are those of the pods; lists counts the lists of each.
	versions map[string]string
	lists    map[string]int
}

func (h *halves) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		return h.metadata.RoundTrip(r)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	h.lists[name]++
	list := podList(h.versions[name], podAt(name, h.versions[name]))
	return answerBytes(r, http.StatusOK, "", wiretest.JSONList(list, nil)), nil
}

// An object whose metadata cannot be taken is listed, once.
func TestMetadataThatCannotBeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, send := io.Pipe()
		server := &halves{versions: map[string]string{"a": "1", "b": "1"}, lists: map[string]int{},
			metadata: &answers{watches: []io.Reader{events}, list: func() []byte {
				return wiretest.JSONList(podList("1", podAt("a", "1"), podAt("b", "1")), nil)
			}}}
		pods, err := NewResource[*corev1.Pod](&rest.Config{Host: "http://server", QPS: -1, Transport: server},
			corev1.SchemeGroupVersion.WithResource("pods"), ResourceOptions{})
		require.NoError(t, err)
		inf, err := NewReferenced(pods.In, Options[*corev1.Pod]{MaxWatches: 1, DisableWatchList: true})
		require.NoError(t, err)
		inf.NamedBy(func(Key) bool { return true })
		run(t, inf.SharedIndexInformer)
		t.Cleanup(func() { _ = send.Close() })
		inf.Recheck(named("a"), named("b"))
		synctest.Wait()
		require.Equal(t, 2, inf.Health().ByMetadata)
		require.Equal(t, Live, inf.Health().State)

		server.mu.Lock()
		server.versions["a"] = "5"
		server.mu.Unlock()
		_, err = send.Write(wiretest.JSONFrame(watch.Modified, podAt("a", "5"), func(string, []byte) []byte {
			return []byte(`{"metadata":{"name":"a","namespace":"default","resourceVersion":"5","labels":{"x":1}}}`)
		}))
		require.NoError(t, err)
		synctest.Wait()
		a, exists, err := inf.Get(named("a"))
		require.NoError(t, err)
		require.True(t, exists)
		require.Equal(t, "5", a.ResourceVersion)

		time.Sleep(20 * time.Second)
		bookmark := &corev1.Pod{}
		bookmark.ResourceVersion = "7"
		_, err = send.Write(wiretest.JSONFrame(watch.Bookmark, bookmark, nil))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, "7", inf.ResourceVersion("default/a"))
		require.Equal(t, map[string]int{"a": 2, "b": 1}, server.lists)
	})
}
