package clientgo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const decodedByClient = "decoded by its client as a whole"

// logged collects what an informer logs.
type logged struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

func (l *logged) context(ctx context.Context) context.Context {
	return klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(l))))
}

// A ListerWatcher that does something with what its client returns, or hides the request, is left alone: the store is
// that of client-go's informer, and one line of the log says so.
func TestWireLeavesAListerWatcherAlone(t *testing.T) {
	in := func(cfg *rest.Config, namespace string) *cache.ListWatch {
		return through(kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(namespace))
	}
	watchesBoth := func(cfg *rest.Config) cache.WatchFuncWithContext {
		one, two := in(cfg, "default"), in(cfg, "other")
		return func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			first, err := one.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			second, err := two.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			return merged(first, second), nil
		}
	}
	for what, listWatch := range map[string]func(*rest.Config) *cache.ListWatch{
		"without a context": func(cfg *rest.Config) *cache.ListWatch {
			lw := in(cfg, "")
			return &cache.ListWatch{
				//lint:ignore SA1019 it has no context, which is the point
				ListFunc: func(opts metav1.ListOptions) (runtime.Object, error) {
					return lw.ListWithContext(context.Background(), opts)
				},
				//lint:ignore SA1019 it has no context, which is the point
				WatchFunc: func(opts metav1.ListOptions) (watch.Interface, error) {
					return lw.WatchWithContext(context.Background(), opts)
				},
			}
		},
		"which selects objects itself": func(cfg *rest.Config) *cache.ListWatch {
			return selecting(in(cfg, ""), func(m *corev1.ConfigMap) bool { return strings.HasSuffix(m.Name, "1") })
		},
		"which leaves out one object": func(cfg *rest.Config) *cache.ListWatch {
			return selecting(in(cfg, ""), func(m *corev1.ConfigMap) bool { return m.Name != "map-7" })
		},
		"which leaves out the last objects": func(cfg *rest.Config) *cache.ListWatch {
			return selecting(in(cfg, ""), func(m *corev1.ConfigMap) bool { return m.Namespace != "other" })
		},
		"which changes objects": func(cfg *rest.Config) *cache.ListWatch {
			lw := in(cfg, "")
			change := func(m *corev1.ConfigMap) { m.Annotations = map[string]string{"changed": m.Name} }
			return &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
					list, err := lw.ListWithContext(ctx, opts)
					if err != nil {
						return nil, err
					}
					for i := range list.(*corev1.ConfigMapList).Items {
						change(&list.(*corev1.ConfigMapList).Items[i])
					}
					return list, nil
				},
				WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					w, err := lw.WatchWithContext(ctx, opts)
					if err != nil {
						return nil, err
					}
					return filtered(w, func(e watch.Event) (watch.Event, bool) {
						if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name != "" {
							change(m)
						}
						return e, true
					}), nil
				},
			}
		},
		"which lists two namespaces": func(cfg *rest.Config) *cache.ListWatch {
			one, two := in(cfg, "default"), in(cfg, "other")
			return &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
					first, err := one.ListWithContext(ctx, metav1.ListOptions{})
					if err != nil {
						return nil, err
					}
					second, err := two.ListWithContext(ctx, metav1.ListOptions{})
					if err != nil {
						return nil, err
					}
					all := first.(*corev1.ConfigMapList)
					all.Items = append(all.Items, second.(*corev1.ConfigMapList).Items...)
					return all, nil
				},
				WatchFuncWithContext: watchesBoth(cfg),
			}
		},
		"which watches two namespaces": func(cfg *rest.Config) *cache.ListWatch {
			return &cache.ListWatch{
				ListWithContextFunc:  in(cfg, "").ListWithContextFunc,
				WatchFuncWithContext: watchesBoth(cfg),
			}
		},
		"which gathers pages": func(cfg *rest.Config) *cache.ListWatch {
			lw := in(cfg, "")
			return &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
					pages := pager.New(lw.ListWithContext)
					pages.PageSize = 3
					opts.Limit = 0
					list, _, err := pages.ListWithAlloc(ctx, opts)
					return list, err
				},
				WatchFuncWithContext: lw.WatchFuncWithContext,
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			for _, plain := range []bool{false, true} {
				if !plain && strings.Contains(what, "two") {
					continue // two streams have two ends
				}
				run := func(construct func(cache.ListerWatcher, runtime.Object) cache.SharedIndexInformer,
					wrap func(*rest.Config) *rest.Config) (held map[string]string, lines string) {
					synctest.Test(t, func(t *testing.T) {
						held, lines = alone(t, listWatch, plain, construct, wrap)
					})
					return held, lines
				}
				want, _ := run(theirs, rest.CopyConfig)
				require.NotEmpty(t, want)
				got, lines := run(ours, Wire)
				require.Equal(t, want, got)
				if plain || what != "which gathers pages" {
					require.Equal(t, 1, strings.Count(lines, decodedByClient), "plain=%t: %s", plain, lines)
				}
			}
		})
	}
}

// selecting leaves out some objects.
func selecting(lw *cache.ListWatch, keeps func(*corev1.ConfigMap) bool) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			all := list.(*corev1.ConfigMapList)
			all.Items = slices.DeleteFunc(all.Items, func(m corev1.ConfigMap) bool { return !keeps(&m) })
			return all, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			return filtered(w, func(e watch.Event) (watch.Event, bool) {
				m, ok := e.Object.(*corev1.ConfigMap) // else it is an error
				return e, !ok || e.Type == watch.Bookmark || keeps(m)
			}), nil
		},
	}
}

func alone(t *testing.T, listWatch func(*rest.Config) *cache.ListWatch, plain bool,
	construct func(cache.ListerWatcher, runtime.Object) cache.SharedIndexInformer,
	wrap func(*rest.Config) *rest.Config) (map[string]string, string) {
	server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1, Namespaces: []string{"default", "other"}})
	client := kubernetes.NewForConfigOrDie(server.Config())
	create := func(namespace, name string) {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for i := range 12 {
		create("default", fmt.Sprint("map-", i))
		create("other", fmt.Sprint("map-", i))
	}
	inf := construct(count(listWatch(wrap(server.Link().Config())), plain), &corev1.ConfigMap{})
	var log logged
	ctx, cancel := context.WithCancel(log.context(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		inf.RunWithContext(ctx)
	}()
	time.Sleep(time.Minute)
	require.True(t, inf.HasSynced())
	create("default", "late-0")
	create("other", "late-1")
	time.Sleep(5 * time.Minute)
	held := dump(inf.GetStore())
	cancel()
	<-ended
	return held, log.String()
}

// merged merges two watches.
func merged(one, two watch.Interface) watch.Interface {
	events := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(events)
	var ended sync.WaitGroup
	for _, w := range []watch.Interface{one, two} {
		ended.Go(func() {
			defer w.Stop()
			for {
				select {
				case e, open := <-w.ResultChan():
					if !open {
						return
					}
					select {
					case events <- e:
					case <-proxy.StopChan():
						return
					}
				case <-proxy.StopChan():
					return
				}
			}
		})
	}
	go func() {
		ended.Wait()
		close(events)
	}()
	return proxy
}

// A WatchErrorHandler is told what client-go's tells: the Status of the server, and an answer that breaks off.
func TestWirePassesErrorsOn(t *testing.T) {
	broken := func(resp *http.Response, err error) (*http.Response, error) {
		if err == nil && resp.StatusCode == http.StatusOK {
			resp.Body = &damaged{ReadCloser: resp.Body, left: 700, err: errBroken}
		}
		return resp, err
	}
	for what, answer := range map[string]func(*http.Request, http.RoundTripper) (*http.Response, error){
		"403": func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
			return answered(r, http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden)), nil
		},
		"429": func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
			resp := answered(r, http.StatusTooManyRequests, status(http.StatusTooManyRequests, "TooManyRequests"))
			resp.Header.Set("Retry-After", "2")
			return resp, nil
		},
		"a proxy's page": func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
			resp := answered(r, http.StatusBadGateway, []byte("<html>"))
			resp.Header.Set("Content-Type", "text/html")
			return resp, nil
		},
		"an answer that is no list": func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
			return answered(r, http.StatusOK, []byte("<html>a proxy's page</html>")), nil
		},
		"an object that cannot be decoded": func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err != nil {
				return resp, err
			}
			body, err := io.ReadAll(resp.Body)
			return answered(r, resp.StatusCode, undecodable(body, "map-7")), err
		},
		"a list that breaks off": func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			return broken(next.RoundTrip(r))
		},
	} {
		t.Run(what, func(t *testing.T) {
			errors := func(construct func(cache.ListerWatcher, runtime.Object) cache.SharedIndexInformer,
				wrap func(*rest.Config) *rest.Config) (told []string) {
				synctest.Test(t, func(t *testing.T) {
					server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1})
					m := writer{t, kubernetes.NewForConfigOrDie(server.Config())}
					for i := range 10 {
						m.create(fmt.Sprint("map-", i))
					}
					cfg := server.Link().Config()
					cfg.ContentType = runtime.ContentTypeJSON
					cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
						return roundTripper(func(r *http.Request) (*http.Response, error) { return answer(r, next) })
					})
					inf := construct(count(typedMaps(t, wrap(cfg)), true), &corev1.ConfigMap{})
					var mu sync.Mutex
					err := inf.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
						mu.Lock()
						defer mu.Unlock()
						told = append(told, err.Error()[strings.LastIndex(err.Error(), "failed to list"):])
					})
					require.NoError(t, err)
					stop := run(t, inf)
					time.Sleep(5 * time.Minute)
					require.False(t, inf.HasSynced())
					stop()
				})
				return told
			}
			want := errors(theirs, rest.CopyConfig)
			got := errors(ours, Wire)
			require.NotEmpty(t, want)
			require.Contains(t, got, want[0], "%q", got)
			if strings.HasPrefix(what, "an ") { // wire tells of it first, and the client the next time
				require.NotEqual(t, want[0], got[0])
				require.Equal(t, want[0], got[1])
			} else {
				require.Equal(t, want[0], got[0])
			}
		})
	}
}

// An event that cannot be decoded ends the watch, as with client-go, and is not passed over.
func TestWireDoesNotPassOverAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1})
		m := writer{t, kubernetes.NewForConfigOrDie(server.Config())}
		cfg := server.Link().Config()
		cfg.ContentType = runtime.ContentTypeJSON
		var garbled atomic.Int64
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil && r.URL.Query().Get("watch") != "" {
					resp.Body = &garbling{resp.Body, &garbled}
				}
				return resp, err
			})
		})
		inf := ours(typedMaps(t, Wire(cfg)), &corev1.ConfigMap{})
		stop := run(t, inf)
		for i := range 200 { // then the client does not see each event any more
			m.create(fmt.Sprint("map-", i))
		}
		time.Sleep(10 * time.Second)
		m.create("late")
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, garbled.Load())
		_, exists, err := inf.GetStore().GetByKey("default/late")
		require.NoError(t, err)
		require.True(t, exists)
		stop()
	})
}

// Wire changes a copy of a configuration.
func TestWireLeavesTheConfigurationAsItWas(t *testing.T) {
	cfg := &rest.Config{Host: "https://server"}
	require.NotNil(t, Wire(cfg).WrapTransport)
	require.Nil(t, cfg.WrapTransport)
}

// undecodable gives a ConfigMap data that is no map.
func undecodable(body []byte, name string) []byte {
	metadata := `"metadata":{"name":"` + name + `"`
	return bytes.Replace(body, []byte(metadata), []byte(`"data":5,`+metadata), 1)
}

// garbling is a body that makes one object undecodable, the first time.
type garbling struct {
	io.ReadCloser
	times *atomic.Int64
}

func (g *garbling) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p[:len(p)/2])
	garbled := undecodable(p[:n], "late")
	if g.times.Load() > 0 || len(garbled) == n {
		return n, err
	}
	g.times.Add(1)
	return copy(p, garbled), err
}

// A watch that the ListerWatcher ends is over, also for wire.
func TestWireWatchesAsLongAsTheListerWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Seed: 1})
		m := writer{t, kubernetes.NewForConfigOrDie(server.Config())}
		m.create("map")
		link := server.Link()
		lw := typedMaps(t, Wire(link.Config()))
		inf := ours(&cache.ListWatch{
			ListWithContextFunc: lw.ListWithContextFunc,
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				w, err := lw.WatchWithContext(ctx, opts)
				if err == nil {
					time.AfterFunc(time.Minute, w.Stop)
				}
				return w, err
			},
		}, &corev1.ConfigMap{})
		stop := run(t, inf)
		time.Sleep(10*time.Minute + time.Second)
		watches := 0
		for _, r := range link.Requests() {
			if r.Verb == "watch" {
				watches++
			}
		}
		require.GreaterOrEqual(t, watches, 10)
		m.update("map", "x")
		synctest.Wait()
		held, _, err := inf.GetStore().GetByKey("default/map")
		require.NoError(t, err)
		require.Equal(t, "x", held.(*corev1.ConfigMap).Data["value"])
		stop()
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
