package informer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
)

// shows says that the cache knows an object in the state with that value, or that there is none.
func (e *estate) shows(name, value string) {
	e.Helper()
	s, exists, err := e.secrets.Get(secretKey(name))
	require.NoError(e, err, name)
	require.Equal(e, value != "", exists, name)
	if exists {
		require.Equal(e, value, string(s.Data["v"]), name)
	}
}

// put creates or updates an object.
func (e *estate) put(name, value string) {
	api := e.theirs.CoreV1().Secrets("shop")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"v": []byte(value)}}
	_, err := api.Update(e.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(e.Context(), s, metav1.CreateOptions{})
	}
	require.NoError(e, err)
}

// requests counts what the cache has requested since the last call: lists by name, and watches of single objects.
func (e *estate) requests() (lists, watches int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, of := range e.selectors {
		switch {
		case strings.HasPrefix(of, "watch metadata.name="):
			watches++
		case strings.HasPrefix(of, "metadata.name="):
			lists++
		}
	}
	e.selectors = nil
	return lists, watches
}

// nameAtOnce lets names join together.
func (e *estate) nameAtOnce(names ...string) {
	var keys []informer.Key
	e.mu.Lock()
	for _, name := range names {
		keys = append(keys, secretKey(name))
		e.named[secretKey(name)] = true
	}
	e.mu.Unlock()
	e.secrets.Recheck(keys...)
}

var fourNames = []string{"a", "b", "c", "d"}

// nameFour names four objects, of which two exist.
func (e *estate) nameFour() {
	e.put("a", "1")
	e.put("b", "1")
	e.put("unnamed", "1")
	for _, name := range fourNames {
		e.name(secretKey(name), true)
		synctest.Wait()
	}
	time.Sleep(time.Second)
}

func TestManyNamesAreFollowedByMetadata(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2, MaxStaleness: 2 * time.Minute}, func(e *estate) {
		e.nameFour()
		require.Equal(t, 4, e.secrets.Health().ByMetadata)
		e.requests()
		e.put("a", "2")
		e.put("c", "1")
		e.put("unnamed", "2")
		require.NoError(t, e.theirs.CoreV1().Secrets("shop").Delete(e.Context(), "b", metav1.DeleteOptions{}))
		synctest.Wait()
		e.shows("a", "2")
		e.shows("b", "")
		e.shows("c", "1")
		e.shows("d", "")
		require.Equal(t, 2, e.secrets.Len(), "of the others nothing is held")
		lists, watches := e.requests()
		require.Equal(t, 3, lists, "one for each change")
		require.Zero(t, watches)

		// Bookmarks of the metadata are progress of each object.
		time.Sleep(10 * time.Minute)
		for _, name := range fourNames {
			require.NoError(t, e.secrets.Fresh("shop/"+name))
			require.Less(t, time.Since(e.secrets.HealthIn("shop/"+name).LastProgress), 2*time.Minute)
		}
		e.put("unnamed", "3")
		time.Sleep(2 * time.Minute)
		last := fmt.Sprint(e.server.Version())
		require.NoError(t, e.secrets.WaitForResourceVersion(e.Context(), "shop/d", last))
		lists, watches = e.requests()
		require.Zero(t, lists+watches, "nothing has changed")

		// With half of the names each is watched again, from where the metadata was.
		e.server.Compact()
		for _, name := range []string{"b", "c"} {
			e.name(secretKey(name), false)
		}
		synctest.Wait()
		require.Equal(t, 2, e.secrets.Health().ByMetadata)
		e.name(secretKey("d"), false)
		synctest.Wait()
		require.Zero(t, e.secrets.Health().ByMetadata)
		lists, watches = e.requests()
		require.Equal(t, 1, lists, "for the version of the server")
		require.Equal(t, 1, watches, "of the one that is left")
		e.put("a", "3")
		synctest.Wait()
		e.shows("a", "3")
	})
}

// Until the metadata has been listed nothing would tell of a change of the objects, though each has been listed.
func TestMetadataThatIsNotListedYet(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.fail("", errSlow)
		e.put("b", "1")
		e.nameAtOnce(fourNames...)
		time.Sleep(time.Second)
		e.shows("a", "")
		e.shows("b", "1")
		require.Equal(t, informer.Listing, e.secrets.HealthIn("shop/a").State)
		require.Equal(t, informer.Listing, e.secrets.Health().State)
		require.Equal(t, 4, e.secrets.Health().ByMetadata)
		require.NoError(t, e.theirs.CoreV1().Secrets("shop").Delete(e.Context(), "b", metav1.DeleteOptions{}))
		e.put("a", "1")
		time.Sleep(8 * time.Second)
		e.shows("b", "1")
		e.requests()
		time.Sleep(2 * time.Second)
		e.shows("a", "1")
		e.shows("b", "")
		h := e.secrets.HealthIn("shop/a")
		require.Equal(t, informer.Live, h.State)
		require.Equal(t, time.Second, time.Since(h.Since))
		lists, watches := e.requests()
		require.Equal(t, 2, lists, "of those that have changed meanwhile")
		require.Zero(t, watches)
	})
}

// Who may not see the metadata of all has watches, until that is allowed.
func TestMetadataThatIsForbidden(t *testing.T) {
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	t.Cleanup(func() { klog.LogToStderr(true) })
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.fail("", apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no Role")))
		e.nameFour()
		time.Sleep(time.Minute)
		require.Zero(t, e.secrets.Health().ByMetadata)
		require.Equal(t, informer.Live, e.secrets.Health().State)
		e.put("a", "2")
		synctest.Wait()
		e.shows("a", "2")
		e.shows("c", "")
		e.name(secretKey("e"), true)
		synctest.Wait()
		require.Zero(t, e.secrets.Health().ByMetadata)
		e.name(secretKey("e"), false)
		time.Sleep(time.Hour)
		klog.Flush()
		require.Equal(t, 1, strings.Count(log.String(), "are watched one by one"), log.String())

		e.fail("", nil)
		time.Sleep(time.Minute)
		require.Equal(t, 4, e.secrets.Health().ByMetadata)
		e.put("c", "1")
		synctest.Wait()
		e.shows("c", "1")
		klog.Flush()
		require.Equal(t, 1, strings.Count(log.String(), "are followed by the metadata"), log.String())
	})
}

// Neither what is not selected nor what another namespace has lets objects be listed.
func TestMetadataOfWhatIsSelectedInTwoNamespaces(t *testing.T) {
	selected := labels.SelectorFromSet(labels.Set{"app": "shop"})
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 1, LabelSelector: selected}, func(e *estate) {
		e.nameFour()
		e.shows("a", "")
		blog := []informer.Key{{Namespace: "blog", Name: "a"}, {Namespace: "blog", Name: "e"}}
		_, err := e.theirs.CoreV1().Secrets("blog").Create(e.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "e", Labels: map[string]string{"app": "shop"}}}, metav1.CreateOptions{})
		require.NoError(t, err)
		e.mu.Lock()
		e.named[blog[0]], e.named[blog[1]] = true, true
		e.mu.Unlock()
		e.secrets.Recheck(blog...)
		time.Sleep(time.Minute)
		require.Equal(t, 6, e.secrets.Health().ByMetadata)
		e.requests()
		for range 5 {
			e.put("unnamed", fmt.Sprint(e.server.Version()))
			time.Sleep(2 * time.Minute)
		}
		lists, watches := e.requests()
		require.Zero(t, lists+watches)
		for _, key := range blog {
			require.NoError(t, e.secrets.Fresh(key.String()))
		}
	})
}

// compared waits until the objects have been compared with the metadata. In the next 15 seconds they will not be.
func (e *estate) compared() {
	for now := time.Now(); ; now = time.Now() {
		e.put("unnamed", fmt.Sprint(e.server.Version()))
		synctest.Wait()
		if e.secrets.HealthIn("shop/d").LastProgress.Equal(now) {
			return
		}
		time.Sleep(time.Second)
	}
}

// A list of the metadata does not say how old a deletion is.
func TestADeletionThatTheWatchOfMetadataHasMissed(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.nameFour()
		e.compared()
		e.link.CutWatches()
		require.NoError(t, e.theirs.CoreV1().Secrets("shop").Delete(e.Context(), "b", metav1.DeleteOptions{}))
		e.server.Compact()
		time.Sleep(10 * time.Second)
		e.shows("b", "")

		// To compare all objects costs too much for each change.
		e.compared()
		time.Sleep(time.Second)
		e.put("unnamed", "2")
		synctest.Wait()
		require.Equal(t, time.Second, time.Since(e.secrets.HealthIn("shop/d").LastProgress))
	})
}

// Metadata that lags behind a list takes nothing back.
func TestMetadataThatLags(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.nameFour()
		time.Sleep(time.Minute)
		e.link.DelayWatches("secrets", 5*time.Second)
		for i := range 40 { // so that the objects are compared with metadata that lags
			e.put("unnamed", fmt.Sprint(i))
			name := fmt.Sprint("new-", i)
			e.name(secretKey(name), true)
			synctest.Wait()
			since := e.secrets.ResourceVersion("shop/" + name)
			require.Equal(t, fmt.Sprint(e.server.Version()), since)
			for range min(i, 10) {
				key := fmt.Sprint("shop/new-", i-1)
				before := e.secrets.ResourceVersion(key)
				time.Sleep(time.Second / 10)
				require.False(t, kube.Older(e.secrets.ResourceVersion(key), before), key)
			}
		}
		e.link.DelayWatches("secrets", 0)
	})
}

// Of two changes during a list, the list may show one.
func TestChangesWhileAnObjectIsListed(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.nameFour()
		e.compared()
		e.fail("a", errSlow)
		e.put("a", "2")
		time.Sleep(2 * time.Second)
		e.put("a", "3")
		time.Sleep(5 * time.Second) // the server has answered
		e.put("a", "4")
		e.fail("a", nil)
		time.Sleep(4 * time.Second)
		e.shows("a", "4")
	})
}

func TestNotAllAreListedAtOnce(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		names := make([]string, 40)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
			e.fail(names[i], errSlow)
		}
		e.nameAtOnce(names...)
		time.Sleep(time.Second)
		lists, _ := e.requests()
		require.Equal(t, 32, lists)
		time.Sleep(10 * time.Second)
		lists, _ = e.requests()
		require.Equal(t, 8, lists)
	})
}

// The pauses before the lists of one trouble say nothing about those of the next.
func TestPausesBeginAnewForAnObjectThatHasChanged(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.nameFour()
		for i, lasts := range []time.Duration{10 * time.Minute, time.Second} {
			value := fmt.Sprint("changed ", i)
			e.fail("a", apierrors.NewServiceUnavailable("by the test"))
			e.put("a", value)
			time.Sleep(lasts)
			e.fail("a", nil)
			time.Sleep(4 * time.Second)
			if i == 0 {
				time.Sleep(10 * time.Minute)
			}
			e.shows("a", value)
		}
	})
}

// What has befallen the watch of an object says nothing once there is none.
func TestMetadataOfAnObjectThatCouldNotBeWatched(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 1}, func(e *estate) {
		e.fail("a", errNoWatch)
		e.name(secretKey("a"), true)
		time.Sleep(time.Hour)
		require.Equal(t, informer.Failed, e.secrets.HealthIn("shop/a").State)
		e.name(secretKey("b"), true)
		time.Sleep(20 * time.Minute)
		require.Equal(t, informer.Live, e.secrets.HealthIn("shop/a").State)
		for i := range 4 {
			e.put("a", fmt.Sprint(i))
			time.Sleep(time.Second)
			e.shows("a", fmt.Sprint(i))
		}
		e.fail("a", apierrors.NewServiceUnavailable("by the test"))
		e.put("a", "4")
		synctest.Wait()
		require.Equal(t, informer.Stale, e.secrets.HealthIn("shop/a").State)
	})
}

// Metadata that nobody needs is not followed, until it is needed again.
func TestManyNamesAgain(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.nameFour()
		for _, name := range fourNames[:3] {
			e.name(secretKey(name), false)
		}
		synctest.Wait()
		e.requests()
		e.link.CutWatches()
		time.Sleep(time.Minute)
		e.mu.Lock()
		for _, of := range e.selectors {
			require.Contains(t, of, "metadata.name=")
		}
		e.mu.Unlock()
		e.nameFour()
		require.Equal(t, 4, e.secrets.Health().ByMetadata)
		e.put("c", "1")
		synctest.Wait()
		e.shows("c", "1")
		e.requests()
		e.secrets.Relist("shop/c", nil)
		synctest.Wait()
		lists, watches := e.requests()
		require.Equal(t, 1, lists)
		require.Zero(t, watches)
	})
}

// Of metadata that no longer moves nothing is known, until the objects are watched.
func TestMetadataThatIsStuck(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		defer close(e.released)
		e.nameFour()
		e.fail("", errStuck)
		e.link.CutWatches()
		time.Sleep(4*time.Minute + 10*time.Second)
		require.ErrorContains(t, e.secrets.Fresh("shop/a"), "has not moved")
		require.Equal(t, informer.Stale, e.secrets.HealthIn("shop/a").State)
		time.Sleep(2 * time.Minute)
		require.NoError(t, e.secrets.Fresh("shop/a"))
		require.Equal(t, informer.Live, e.secrets.HealthIn("shop/a").State)
		e.fail("", nil)
	})
}

func TestRunWaitsForMetadataThatIsStuck(t *testing.T) {
	inEstate(t, func(e *estate) {
		defer close(e.released)
		cfg := rest.CopyConfig(e.link.Config())
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{e, next} })
		secrets := e.cache(cfg, informer.Options[*corev1.Secret]{MaxWatches: 2})
		e.fail("", errStuck)
		for _, name := range fourNames {
			e.mu.Lock()
			e.named[secretKey(name)] = true
			e.mu.Unlock()
			secrets.Recheck(secretKey(name))
		}
		ctx, cancel := context.WithCancel(e.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- secrets.Run(ctx) }()
		time.Sleep(time.Second)
		require.Equal(t, 4, secrets.Health().ByMetadata)
		for _, name := range fourNames[1:] { // so that the metadata ends before the cache
			e.name(secretKey(name), false)
			secrets.Recheck(secretKey(name))
		}
		time.Sleep(5 * time.Second)
		require.Zero(t, secrets.Health().ByMetadata)
		cancel()
		require.ErrorIs(t, <-stopped, informer.ErrStuck)
	})
}

// While the metadata cannot be followed, the objects are Stale.
func TestMetadataThatIsLost(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.nameFour()
		e.fail("", apierrors.NewServiceUnavailable("by the test"))
		e.link.CutWatches()
		time.Sleep(50 * time.Second)
		e.put("a", "2")
		h := e.secrets.HealthIn("shop/a")
		require.Equal(t, informer.Stale, h.State)
		require.ErrorContains(t, h.LastError, "by the test")
		require.Equal(t, informer.Stale, e.secrets.Health().State)
		e.server.Compact()
		e.fail("", nil)
		time.Sleep(time.Minute)
		require.Equal(t, informer.Live, e.secrets.HealthIn("shop/a").State)
		e.shows("a", "2")
	})
}

// If the metadata cannot be followed for good, the objects are watched, until it can.
func TestMetadataThatFailsForGood(t *testing.T) {
	for name, err := range map[string]error{
		"busy":        apierrors.NewServiceUnavailable("by the test"),
		"broken":      apierrors.NewInternalError(errors.New("by the test")),
		"silent":      errHangs,
		"unreachable": errUnreachable,
	} {
		t.Run(name, func(t *testing.T) {
			inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
				e.nameFour()
				e.fail("", err)
				e.link.CutWatches()
				time.Sleep(30 * time.Second)
				require.Equal(t, 4, e.secrets.Health().ByMetadata)
				time.Sleep(2 * time.Minute)
				if err == errUnreachable { // so would requests about single objects
					require.Equal(t, 4, e.secrets.Health().ByMetadata)
				}
				time.Sleep(8 * time.Minute)
				require.Zero(t, e.secrets.Health().ByMetadata)
				require.Equal(t, informer.Live, e.secrets.HealthIn("shop/a").State)
				e.put("a", "2")
				synctest.Wait()
				e.shows("a", "2")
				e.fail("", nil)
				time.Sleep(20 * time.Minute)
				require.Equal(t, 4, e.secrets.Health().ByMetadata)
			})
		})
		t.Run(name+" from the start", func(t *testing.T) {
			inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
				e.fail("", err)
				e.nameFour()
				time.Sleep(10 * time.Second)
				require.Equal(t, 2, e.secrets.Health().ByMetadata, "the others have watches")
				time.Sleep(10 * time.Minute)
				require.Zero(t, e.secrets.Health().ByMetadata)
				e.put("a", "2")
				synctest.Wait()
				e.shows("a", "2")
			})
		})
	}
}

// A cluster that goes back to an older state takes the objects with it.
func TestMetadataThatGoesBack(t *testing.T) {
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2}, func(e *estate) {
		e.nameFour()
		before := e.server.Version()
		e.put("a", "2")
		e.put("c", "1")
		synctest.Wait()
		e.server.Restore(before)
		time.Sleep(5 * time.Minute)
		e.shows("a", "1")
		e.shows("b", "1")
		e.shows("c", "")
		version := fmt.Sprint(e.server.Version())
		require.Equal(t, version, e.secrets.ResourceVersion("shop/c"))

		// Although the objects were compared with the metadata a moment before.
		before = e.server.Version()
		e.put("c", "2")
		e.compared()
		e.server.Restore(before)
		time.Sleep(14 * time.Second)
		e.shows("c", "")
	})
}

// An object that cannot be taken is not listed again and again.
func TestMetadataOfAnInvalidObject(t *testing.T) {
	failing := errors.New("by the test")
	var takesAll atomic.Bool
	inEstateWith(t, informer.Options[*corev1.Secret]{MaxWatches: 2,
		Transform: func(s *corev1.Secret) (*corev1.Secret, error) {
			if string(s.Data["v"]) == "bad" && !takesAll.Load() {
				return nil, failing
			}
			return s, nil
		}}, func(e *estate) {
		e.nameFour()
		e.put("a", "bad")
		synctest.Wait()
		require.ErrorIs(t, e.secrets.Invalid(secretKey("a")), failing)
		time.Sleep(time.Minute)
		e.requests()
		for range 5 {
			e.put("unnamed", fmt.Sprint(e.server.Version()))
			time.Sleep(2 * time.Minute)
		}
		lists, _ := e.requests()
		require.Zero(t, lists)
		e.put("a", "good")
		synctest.Wait()
		e.shows("a", "good")

		// It is tried again, without a list.
		e.put("a", "bad")
		synctest.Wait()
		require.ErrorIs(t, e.secrets.Invalid(secretKey("a")), failing)
		e.requests()
		takesAll.Store(true)
		time.Sleep(time.Minute)
		e.shows("a", "bad")
		lists, _ = e.requests()
		require.Zero(t, lists)
	})
}

// A client that is no Resource cannot ask for metadata.
func TestManyNamesOfAClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		secrets, err := informer.NewReferenced(clientset.CoreV1().Secrets,
			informer.Options[*corev1.Secret]{MaxWatches: 1})
		require.NoError(t, err)
		secrets.NamedBy(func(informer.Key) bool { return true })
		go func() { _ = secrets.Run(t.Context()) }()
		secrets.Recheck(secretKey("a"), secretKey("b"), secretKey("c"))
		synctest.Wait()
		require.Zero(t, secrets.Health().ByMetadata)
		require.Zero(t, secrets.Health().Unknown)
	})
}

func TestMaxWatchesIsNotNegative(t *testing.T) {
	_, err := informer.NewReferenced(fake.NewClientset().CoreV1().Secrets,
		informer.Options[*corev1.Secret]{MaxWatches: -1})
	require.ErrorContains(t, err, "MaxWatches is -1")
}
