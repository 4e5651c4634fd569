package informer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

// TestWhateverAWatchAnswersTheCacheIsNotOld plays each kind of answer to all watches of a server that can be listed,
// and tells after how long a new object is in the cache, and what is said of the cache meanwhile.
func TestWhateverAWatchAnswersTheCacheIsNotOld(t *testing.T) {
	type reply func(r *http.Request) (*http.Response, error)
	body := func(code int, bytes io.Reader) reply {
		return func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Request: r, Body: io.NopCloser(bytes),
				Header: http.Header{"Content-Type": {"application/json"}}}, nil
		}
	}
	refused := func(err error) reply {
		return func(r *http.Request) (*http.Response, error) { return refusal(r, err) }
	}
	// The longest wait is for two watches of 10 minutes each that are silent.
	const paced, patient, silent = lastRetry + time.Minute, patience + 2*time.Minute, 22 * time.Minute
	type kind struct {
		name  string
		reply func() reply
		most  time.Duration // between a change and the cache
		state State
	}
	again := func(code int, text string) func() reply {
		return func() reply { return body(code, strings.NewReader(text)) }
	}
	kinds := []kind{
		{"a transport's error", func() reply {
			return func(*http.Request) (*http.Response, error) { return nil, errors.New("what nobody knows") }
		}, patient, Failed},
		{"no answer", func() reply {
			return func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
		}, patient, Failed},
		{"silence", func() reply {
			return func(r *http.Request) (*http.Response, error) { return body(200, never{r.Context()})(r) }
		}, silent, Live},
		{"an end at once", again(200, ""), patient, Failed},
		{"half an event", again(200, `{"type":"ADDED","object":{"kind":"Pod",`), paced, Failed},
		{"garbage", again(200, "a login page"), paced, Failed},
		{"a page of HTML", again(502, "<html>"), paced, Failed},
		{"no content", again(204, ""), patient, Failed},
		{"an unknown type", again(200, `{"type":"SURPRISE","object":{"kind":"Pod","apiVersion":"v1",`+
			`"metadata":{"name":"a","namespace":"default","resourceVersion":"9000000"}}}`), paced, Failed},
	}
	for code, kindOf := range map[int32]struct {
		most  time.Duration
		state State
	}{
		400: {paced, Failed}, 401: {patient, Denied}, 403: {patient, Denied}, 404: {paced, Failed},
		405: {paced, Failed}, 406: {paced, Failed}, 409: {paced, Failed}, 410: {paced, Failed}, 413: {paced, Failed},
		415: {paced, Failed}, 422: {paced, Failed}, 429: {patient, Failed}, 500: {paced, Failed}, 501: {paced, Failed},
		503: {patient, Failed}, 504: {paced, Failed},
	} {
		for _, retryAfter := range []int32{0, 7} {
			err := problem(code, map[int32]metav1.StatusReason{401: metav1.StatusReasonUnauthorized,
				403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 410: metav1.StatusReasonExpired,
				429: metav1.StatusReasonTooManyRequests, 503: metav1.StatusReasonServiceUnavailable,
				504: metav1.StatusReasonTimeout}[code], retryAfter)
			most := kindOf.most
			if retryAfter != 0 {
				most = patient // the server asks for it
			}
			kinds = append(kinds, kind{fmt.Sprintf("%d, Retry-After %d", code, retryAfter), func() reply {
				return refused(err)
			}, most, kindOf.state}, kind{fmt.Sprintf("an event of %d, Retry-After %d", code, retryAfter), func() reply {
				return body(200, bytes.NewReader(wiretest.JSONFrame(watch.Error, &err.ErrStatus, nil)))
			}, most, kindOf.state})
		}
	}
	kinds = append(kinds, kind{"500, ServerTimeout", func() reply {
		return refused(problem(500, metav1.StatusReasonServerTimeout, 0))
	}, patient, Failed})

	for _, k := range kinds {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, plain=%t", k.name, plain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lists := &answers{list: func() []byte {
						return wiretest.JSONList(podList("5", podAt("a", "4")), nil)
					}}
					transport := func(r *http.Request) (*http.Response, error) {
						if r.URL.Query().Get("watch") != "" {
							return k.reply()(r)
						}
						return lists.RoundTrip(r)
					}
					inf, err := New[*corev1.Pod](podsOver(t, roundTripper(transport)),
						Options[*corev1.Pod]{DisableWatchList: plain})
					require.NoError(t, err)
					run(t, inf)
					shown := func(n int) (took time.Duration) {
						for began := time.Now(); inf.Len() < n; took = time.Since(began) {
							require.Less(t, took, time.Hour)
							time.Sleep(time.Second)
							synctest.Wait()
						}
						return took
					}
					first := shown(1)
					require.LessOrEqual(t, first, patient)
					time.Sleep(2 * time.Hour)
					asked := len(slices.DeleteFunc(lists.serve(func() []byte {
						return wiretest.JSONList(podList("6", podAt("a", "4"), podAt("new", "6")), nil)
					}), func(verb string) bool { return verb != "LIST" }))
					require.Less(t, asked, 60, "lists in two hours")
					took := shown(2)
					require.LessOrEqual(t, took, k.most)
					time.Sleep(time.Minute)
					h := inf.Health()
					require.Equal(t, k.state, h.State, "%s", h)
					if k.state == Failed {
						require.ErrorContains(t, h.LastError, "cannot be watched")
					}
					t.Logf("first list %s, new object %s, %d lists in two hours, %s", first, took, asked, h)
				})
			})
		}
	}
}

// A watch that lives for a while is no proof that the next one will not lead to a list, too. A large cluster cannot be
// listed every few seconds.
func TestListsDoNotFollowEachOtherSoonThoughTheirWatchesLive(t *testing.T) {
	for name, end := range map[string]string{
		"expired": string(wiretest.JSONFrame(watch.Error, &errExpired.ErrStatus, nil)),
		"cut off": `{"type":"ADDED","object":{"kind":"Pod",`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := &answers{list: func() []byte { return wiretest.JSONList(podList("5", podAt("a", "4")), nil) }}
				transport := func(r *http.Request) (*http.Response, error) {
					if r.URL.Query().Get("watch") == "" {
						return lists.RoundTrip(r)
					}
					ctx, cancel := context.WithCancel(r.Context())
					time.AfterFunc(longLived+time.Second, cancel)
					body := io.MultiReader(quiet{ctx}, strings.NewReader(end))
					return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(body),
						Header: http.Header{"Content-Type": {"application/json"}}}, nil
				}
				inf, err := New[*corev1.Pod](podsOver(t, roundTripper(transport)),
					Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synced(t, inf)
				time.Sleep(time.Hour)
				require.Less(t, inf.Health().Lists, 180, "lists in an hour")
			})
		})
	}
}

// What a proxy swallows no watch brings, and each ends before its time, though it has lived for a while. A watch that
// brings something, or ends when it is asked to, needs no list.
func TestAListFollowsWatchesThatEndEarlyAndBringNothing(t *testing.T) {
	bookmark := string(wiretest.JSONFrame(watch.Bookmark, podAt("", "5"), nil))
	for name, test := range map[string]struct {
		lives  time.Duration // how long a watch lives; zero: as long as it is asked to
		nth    int           // zero: all are alike; else only every nth brings something, or ends in its time
		brings string
		took   time.Duration // until a new object is shown; zero: it never is
		most   int           // lists in two hours
	}{
		"soon":                           {lives: longLived + time.Second, took: patience + 10*time.Second, most: 24},
		"after minutes":                  {lives: 4 * time.Minute, took: patience + 2*4*time.Minute, most: 15},
		"soon, and it brings a bookmark": {lives: longLived + time.Second, brings: bookmark, most: 1},
		"when it is asked to":            {most: 1},
		"every third brings something":   {lives: time.Minute, nth: 3, brings: bookmark, most: 1},
		"every third in its time":        {lives: time.Minute, nth: 3, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := &answers{list: func() []byte { return wiretest.JSONList(podList("5", podAt("a", "4")), nil) }}
				watches := 0
				transport := func(r *http.Request) (*http.Response, error) {
					if r.URL.Query().Get("watch") == "" {
						return lists.RoundTrip(r)
					}
					asked, err := time.ParseDuration(r.URL.Query().Get("timeoutSeconds") + "s")
					require.NoError(t, err)
					lives, brings := cmp.Or(test.lives, asked), test.brings
					switch watches++; {
					case test.nth == 0:
					case watches%test.nth != 0:
						brings = ""
					case brings == "":
						lives = asked
					}
					ctx, cancel := context.WithCancel(r.Context())
					time.AfterFunc(lives, cancel)
					body := io.MultiReader(strings.NewReader(brings), quiet{ctx})
					return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(body),
						Header: http.Header{"Content-Type": {"application/json"}}}, nil
				}
				inf, err := New[*corev1.Pod](podsOver(t, roundTripper(transport)),
					Options[*corev1.Pod]{DisableWatchList: true})
				require.NoError(t, err)
				run(t, inf)
				synced(t, inf)
				lists.serve(func() []byte {
					return wiretest.JSONList(podList("6", podAt("a", "4"), podAt("new", "6")), nil)
				})
				began, took := time.Now(), time.Duration(0)
				for time.Since(began) < 2*time.Hour {
					time.Sleep(time.Second)
					synctest.Wait()
					if inf.Len() == 2 && took == 0 {
						took = time.Since(began)
					}
				}
				require.Equal(t, test.took == 0, took == 0)
				require.LessOrEqual(t, took, test.took)
				require.LessOrEqual(t, inf.Health().Lists, test.most)
			})
		})
	}
}

// quiet is an answer of which nothing comes, until it ends.
type quiet struct{ ctx context.Context }

func (q quiet) Read([]byte) (int, error) {
	<-q.ctx.Done()
	return 0, io.EOF
}
